"""Random graphs and their histories: cycles, self-loops, parallel edges, nodes without a name, and nothing left."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.loops.references.model import ZSet, add

APART = 1000  # between the nodes of one graph and those of the next


@dataclass
class Graph:
    """Edges and starts, each as often as it is there; lengths: edges have one; acyclic: they go upwards."""

    random: random.Random
    nodes: int
    lengths: bool = False
    acyclic: bool = False
    nulls: bool = False
    edges: ZSet = field(default_factory=dict[Any, int])
    starts: ZSet = field(default_factory=dict[Any, int])

    def edge(self) -> tuple[Any, ...]:
        """Any edge, as a rule between two of the nodes."""
        ends: list[Any] = [self.random.randrange(self.nodes), self.random.randrange(self.nodes)]
        if self.acyclic:
            ends = sorted(ends) if ends[0] != ends[1] else [ends[0], ends[0] + self.nodes]
        if self.nulls and self.random.random() < 0.1:
            ends[self.random.randrange(2)] = None
        return (*ends, self.random.randrange(4)) if self.lengths else tuple(ends)

    def histories(self, refreshes: int) -> Iterator[tuple[ZSet, ZSet]]:
        """The edges and the starts after each of several changes; the first is the largest."""
        for number in range(refreshes):
            chance = self.random.random()
            if number and chance < 0.04:
                self.edges = {}
            for _ in range(2 * self.nodes if number == 0 else self.random.randint(1, 4)):
                self._change(self.edges, self.edge(), self.random.random() < (0.7 if number == 0 else 0.5))
            for _ in range(2 if number == 0 else self.random.randint(0, 1)):
                self._change(self.starts, self.random.randrange(self.nodes), self.random.random() < 0.6)
            yield dict(self.edges), dict(self.starts)

    def _change(self, zset: ZSet, new: Any, adds: bool) -> None:
        """Add something, or take a copy of something away."""
        if adds or not zset:
            add(zset, new, 1)
        else:
            add(zset, self.random.choice(sorted(zset, key=repr)), -1)


@dataclass
class Graphs:
    """Several graphs as one, each with a history of its own."""

    members: Sequence[Graph]

    def histories(self, refreshes: int) -> Iterator[tuple[ZSet, ZSet]]:
        """The edges and the starts of all, after each of several changes."""
        for states in zip(*(graph.histories(refreshes) for graph in self.members), strict=True):
            edges, starts = dict[Any, int](), dict[Any, int]()
            for number, (some, begun) in enumerate(states):
                for (a, b, *length), copies in some.items():
                    ends = (None if end is None else end + APART * number for end in (a, b))
                    add(edges, (*ends, *length), copies)
                for start, copies in begun.items():
                    add(starts, start + APART * number, copies)
            yield edges, starts
