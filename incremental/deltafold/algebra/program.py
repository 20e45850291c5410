"""Define the compiled program, the interface between compiler and runtime, and its expected cost.

A program is the split q = a ∘ h: `stages` lists every homomorphism with its merge, and every loop, inputs first;
`answer` is the plan over their tables that computes the view.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from deltafold.algebra.canonical import digest_text
from deltafold.algebra.constraints import Constraint
from deltafold.algebra.loops import LoopState
from deltafold.algebra.monoids.kinds import Accumulator, Component, Group, Recomputed
from deltafold.algebra.plan import Call, Column, Item, Plan
from deltafold.algebra.traversal import source_names

BUCKET = "__bucket"
ROWS = "__rows"
WEIGHT = "__weight"
RESERVED = "__"


@dataclass(frozen=True)
class Slot:
    """One aggregate in a state: its call and its accumulator; component c is stored as `__<answer column>_c`."""

    call: Call
    accumulator: Accumulator

    def stored_name(self, component: Component) -> str:
        """Return the name of a component's column in the state table."""
        return f"{RESERVED}{self.call.column.name}_{component.name}"


@dataclass(frozen=True, kw_only=True)
class State:
    """One homomorphism: h groups `input` by the lineage key, ⊗ merges into the table `name`.

    keys: the lineage key in storage order, outer keys first; bucket_by: the prefix of it that buckets are hashed by;
    slots: the aggregates. Every state also stores the row count of each group.
    """

    name: str
    input: Plan
    keys: tuple[Column, ...]
    bucket_by: tuple[Column, ...]
    slots: tuple[Slot, ...]

    @property
    def invertible(self) -> bool:
        """Whether every deletion subtracts."""
        return all(isinstance(slot.accumulator, Group) for slot in self.slots)

    @property
    def recompute_always(self) -> bool:
        """Whether every touched group is recomputed, because one of its aggregates does not merge."""
        return any(isinstance(slot.accumulator, Recomputed) for slot in self.slots)

    @property
    def reads(self) -> tuple[Column, ...]:
        """The columns of the input that h reads."""
        arguments = [column for slot in self.slots for column in slot.call.arguments]
        return tuple(dict.fromkeys([*self.keys, *arguments]))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that readers of the state see: keys and answers."""
        return self.keys + tuple(slot.call.column for slot in self.slots)


Stage = State | LoopState
"""A table that a refresh maintains before it publishes the answer."""


def stage_inputs(stage: Stage) -> tuple[Plan, ...]:
    """Return the plans whose change a stage takes in."""
    return (stage.input,) if isinstance(stage, State) else stage.inputs


def stage_tables(stage: Stage) -> tuple[str, ...]:
    """Return the tables that a stage writes, in the order of their commits."""
    return stage.tables if isinstance(stage, LoopState) else (stage.name,)


@dataclass(frozen=True)
class InPlace:
    """The answer is a function of one row of one state, so its columns are stored in the state table itself."""

    state: str
    items: tuple[Item, ...]
    because: str


@dataclass(frozen=True)
class OwnTable:
    """The answer has a table of its own, to which its change is applied."""

    because: str


Publication = InPlace | OwnTable


@dataclass(frozen=True)
class NodeRule:
    """How one node of the query is maintained, for explain: its line, the rule, and its depth in the plan."""

    node: str
    rule: str
    depth: int


@dataclass(frozen=True, kw_only=True)
class Program:
    """A compiled query."""

    fingerprint: str
    stages: tuple[Stage, ...]
    answer: Plan
    outputs: tuple[tuple[Column, str], ...]
    publication: Publication
    node_rules: tuple[NodeRule, ...]
    notes: tuple[str, ...]
    invariant: frozenset[str]
    constraints: tuple[Constraint, ...] = ()

    @property
    def states(self) -> tuple[State, ...]:
        """The stages that are homomorphisms, inputs first."""
        return tuple(stage for stage in self.stages if isinstance(stage, State))

    @property
    def loops(self) -> tuple[LoopState, ...]:
        """The stages that are loops, inputs first."""
        return tuple(stage for stage in self.stages if isinstance(stage, LoopState))

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans whose changes a refresh takes in: the inputs of each stage, then the answer."""
        return (*(plan for stage in self.stages for plan in stage_inputs(stage)), self.answer)

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources that the query reads, in order of first occurrence."""
        return tuple(dict.fromkeys(name for plan in self.plans for name in source_names(plan)))

    @property
    def has_answer_table(self) -> bool:
        """Whether the answer has a table of its own, beside those of the stages."""
        match self.publication:
            case InPlace():
                return False
            case OwnTable():
                return True
            case _:
                assert_never(self.publication)

    def digests(self, circumstances: object) -> dict[str, str]:
        """Return a digest of what each stage contains, whatever it and its aggregates are called.

        circumstances: what else the rows depend on. A digest has 16 hexadecimal digits, the same in every process.
        """
        digests: dict[str, str] = {}
        for stage in self.stages:  # a stage comes after those that it reads
            text = digest_text((*_content(stage), circumstances), digests)
            digests[stage.name] = hashlib.sha256(text.encode()).hexdigest()[:16]
        return digests


def _content(stage: Stage) -> tuple[object, ...]:
    """Return what the rows of a stage depend on, without the names of the stage and of its aggregates."""
    if isinstance(stage, LoopState):
        return (replace(stage, name=""),)
    calls = tuple(replace(slot.call, column=Column("", slot.call.column.type)) for slot in stage.slots)
    return stage.input, stage.keys, calls, tuple(slot.accumulator for slot in stage.slots)


@dataclass(frozen=True, kw_only=True)
class Volume:
    """The size of each source by name: all bytes, the bytes of added and removed files, the number of columns.

    rounds, levels: by loop, the rounds of its last refreshes, and the levels of its rows, as far as they are known.
    """

    total: Mapping[str, float]
    change: Mapping[str, float]
    columns: Mapping[str, int]
    rounds: Mapping[str, float] = field(default_factory=dict[str, float])
    levels: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Estimate:
    """Expected seconds of a refresh and of a full recompute; least: of a recompute whose operators cost nothing."""

    refresh: float
    recompute: float
    least: float
