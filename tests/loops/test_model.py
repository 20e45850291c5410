"""Both algorithms against textbook oracles on random histories: what the product relies on, checked in seconds.

Protects from the mistakes that deletions invite: rows that hold each other up in a cycle, counts that drift, levels
that stay after a shortcut went, rounds that never end.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.loops.references.graphs import Graph
from tests.loops.references.model import ByLevel, Linear, LoseAndGain, Squared, Step, ZSet, best, every, minus, once
from tests.loops.references.oracles import closure, components, distances, levels, reachable
from tests.night import night

REACH = Linear(lambda row: row, lambda row, edge: edge[1])
LONGER = Linear(lambda row: row[1], lambda row, edge: (row[0], edge[1]))
DISTANCE = Linear(lambda row: row[0], lambda row, edge: (edge[1], row[1] + edge[2]))
LABEL = Linear(lambda row: row[0], lambda row, edge: (edge[1], row[1]))
FEW, MANY = 150, 3500  # histories of each kind: a second, and the 100,000 refreshes of the night


def reach_set(graph: Graph, refreshes: int) -> int:
    """Reachability: a set, whatever the number of paths."""
    return sets(graph, refreshes, REACH, lambda edges, starts: starts, lambda e, s: reachable(s, e))


def linear_closure(graph: Graph, refreshes: int) -> int:
    """Closure, one edge longer in each round."""
    return sets(graph, refreshes, LONGER, lambda edges, starts: edges, lambda e, s: closure(e))


def squared_closure(graph: Graph, refreshes: int) -> int:
    """Closure, paths twice as long in each round: the loop stands twice in its step."""
    return sets(graph, refreshes, Squared(), lambda edges, starts: edges, lambda e, s: closure(e))


def sets(
    graph: Graph,
    refreshes: int,
    step: Step,
    init: Callable[[ZSet, ZSet], ZSet],
    expected: Callable[[ZSet, ZSet], set[Any]],
) -> int:
    loop, old, was = LoseAndGain(step), dict[Any, int](), dict[Any, int]()
    for edges, starts in graph.histories(refreshes):
        now = init(edges, starts)
        loop.refresh(minus(now, was), old, edges)
        assert set(loop.answer) == expected(edges, starts)
        old, was = edges, now
    return refreshes


def bag_of_levels(graph: Graph, refreshes: int) -> int:
    """Numbers of paths: a bag, over a graph without cycles."""
    graph.acyclic = True
    loop, old, was = ByLevel(REACH, every), dict[Any, int](), dict[Any, int]()
    for edges, starts in graph.histories(refreshes):
        loop.refresh(minus(starts, was), old, edges)
        assert loop.accepted == levels(starts, edges)
        old, was = edges, starts
    return refreshes


def distinct_levels(graph: Graph, refreshes: int) -> int:
    """Each node once a level, that there is a path of this length; but each start as often as it is there."""
    graph.acyclic = True
    loop, old, was = ByLevel(REACH, once), dict[Any, int](), dict[Any, int]()
    for edges, starts in graph.histories(refreshes):
        loop.refresh(minus(starts, was), old, edges)
        assert loop.accepted == {each: 1 if each[1] else n for each, n in levels(starts, edges).items()}
        old, was = edges, starts
    return refreshes


def shortest_paths(graph: Graph, refreshes: int) -> int:
    """Shortest paths, with edges of length 0 too."""
    graph.lengths = True
    loop = ByLevel(DISTANCE, best, lambda row: (row[0], row[1:]), lambda key, value: (key, *value))
    old, was = dict[Any, int](), dict[Any, int]()
    for edges, starts in graph.histories(refreshes):
        now = {(node, node % 3): copies for node, copies in starts.items()}
        loop.refresh(minus(now, was), old, edges)
        assert least(loop.accepted) == distances({node: node % 3 for node in starts}, edges)
        old, was = edges, now
    return refreshes


def labels(graph: Graph, refreshes: int) -> int:
    """Components: every node starts with a label of its own, and the least spreads both ways."""
    graph.nulls = False
    loop = ByLevel(LABEL, best, lambda row: (row[0], row[1:]), lambda key, value: (key, *value))
    old, was = dict[Any, int](), dict[Any, int]()
    for edges, _ in graph.histories(refreshes):
        both = Counter(edges) + Counter({(other, one): copies for (one, other), copies in edges.items()})
        now = Counter({(node, node): 1 for edge in both for node in edge})
        loop.refresh(minus(now, was), old, both)
        assert least(loop.accepted) == components(edges)
        old, was = dict(both), dict(now)
    return refreshes


def least(accepted: Mapping[Any, int]) -> dict[Any, Any]:
    """The best value of each node among the accepted candidates."""
    found = dict[Any, Any]()
    for (node, value), _ in accepted:
        found[node] = min(found.get(node, value), value)
    return found


KINDS = (reach_set, linear_closure, squared_closure, bag_of_levels, distinct_levels, shortest_paths, labels)


def run(kind: Callable[[Graph, int], int], histories: int) -> int:
    """Check random histories; returns the number of refreshes."""
    done = 0
    for seed in range(histories):
        chance = random.Random(seed)
        graph = Graph(chance, chance.randint(2, 8), nulls=bool(seed % 2))
        try:
            done += kind(graph, 12)
        except AssertionError as error:
            error.add_note(f"{kind.__name__}, seed {seed}")
            raise
    return done


@pytest.mark.parametrize("kind", KINDS)
def test_random_histories(kind: Callable[[Graph, int], int]) -> None:
    assert run(kind, FEW) == FEW * 12


@night
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_histories(kind: Callable[[Graph, int], int]) -> None:
    """In all some 300,000 refreshes."""
    assert run(kind, MANY) == MANY * 12


def test_a_cycle_that_lost_its_start_goes() -> None:
    """b and c hold each other up after a → b went: by levels in rising order they meet and cancel at once."""
    loop = LoseAndGain(REACH)
    loop.refresh({"a": 1}, {}, {("a", "b"): 1})
    loop.refresh({}, {("a", "b"): 1}, {("b", "c"): 1, ("c", "b"): 1})
    assert loop.answer == {"a": 1}
    bag = ByLevel(REACH, every)
    bag.refresh({"a": 1}, {}, {("a", "b"): 1})
    assert bag.refresh({}, {("a", "b"): 1}, {("b", "c"): 1, ("c", "b"): 1}) == 1
    assert bag.accepted == {("a", 0): 1}
