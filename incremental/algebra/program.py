"""Algebra room: what the compiler hands to the runtime. In: plans and monoids. Out: states, answer, publication.

A program is the split q = a ∘ h: `states` holds, inputs first, every homomorphism with its merge; `answer` is the plan
over their tables that gives the view.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from incremental.algebra.constraints import Constraint
from incremental.algebra.monoids import Monoid, Part
from incremental.algebra.plan import Call, Column, Item, Plan, Source, StateRead, walk

BUCKET, ROWS, WEIGHT = "__bucket", "__rows", "__weight"
RESERVED = "__"


@dataclass(frozen=True)
class Slot:
    """One aggregate in a state: its call and its monoid; part p is stored in column `__<answer column>_p`."""

    call: Call
    monoid: Monoid

    def stored(self, part: Part) -> str:
        """The name of a part's column in the state table."""
        return f"{RESERVED}{self.call.column.name}_{part.name}"


@dataclass(frozen=True)
class State:
    """One homomorphism: h groups `input` by the lineage key, ⊗ merges into the table `name`.

    keys: the lineage key in storage order, outer keys first; bucket_by: the prefix of it that buckets are hashed by;
    slots: the aggregates; the group row count is kept in every state.
    """

    name: str
    input: Plan
    keys: tuple[Column, ...]
    bucket_by: tuple[Column, ...]
    slots: tuple[Slot, ...]

    @property
    def invertible(self) -> bool:
        """Whether every deletion subtracts."""
        return all(slot.monoid.invertible for slot in self.slots)

    @property
    def whole(self) -> bool:
        """Whether every touched group is computed anew, because an aggregate of it has no merge."""
        return any(slot.monoid.whole for slot in self.slots)

    @property
    def reads(self) -> tuple[Column, ...]:
        """The columns of its input that h reads."""
        arguments = [column for slot in self.slots for column in slot.call.arguments]
        return tuple(dict.fromkeys([*self.keys, *arguments]))

    @property
    def columns(self) -> tuple[Column, ...]:
        """What readers of the state see: keys and answers."""
        return self.keys + tuple(slot.call.column for slot in self.slots)


@dataclass(frozen=True)
class InPlace:
    """The answer is a function of one row of one state: its columns stand in the state table itself."""

    state: str
    items: tuple[Item, ...]
    because: str


@dataclass(frozen=True)
class Table:
    """The answer is a table of its own, changed by the answer's change."""

    because: str


Publication = InPlace | Table


@dataclass(frozen=True)
class Verdict:
    """How one node of the query is maintained, for explain: the node's line, the rule, what is kept and read."""

    node: str
    rule: str
    depth: int


@dataclass(frozen=True)
class Program:
    """A compiled query."""

    fingerprint: str
    states: tuple[State, ...]
    answer: Plan
    outputs: tuple[tuple[Column, str], ...]
    publication: Publication
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]
    invariant: frozenset[str]
    constraints: tuple[Constraint, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        """Every source the query reads, in order of first occurrence."""
        plans = (*(state.input for state in self.states), self.answer)
        return tuple(dict.fromkeys(n.relation for plan in plans for n in walk(plan) if isinstance(n, Source)))

    def digests(self, circumstances: object) -> dict[str, str]:
        """What each state holds, whatever it and its aggregates are called: 16 hexadecimal digits by name.

        circumstances: what else the rows depend on. The same in every process.
        """
        found: dict[str, str] = {}
        for state in self.states:  # those that others read come first
            calls = tuple(replace(slot.call, column=Column("", slot.call.column.type)) for slot in state.slots)
            monoids = tuple(slot.monoid for slot in state.slots)
            holds = canonical((state.input, state.keys, calls, monoids, circumstances), found)
            found[state.name] = hashlib.sha256(holds.encode()).hexdigest()[:16]
        return found


def canonical(value: Any, states: Mapping[str, str]) -> str:
    """A text that differs where two plans do; states: what stands for the name of a state."""
    match value:
        case StateRead(state=state, columns=columns):
            return f"StateRead({states[state]}, {canonical(columns, states)})"
        case frozenset():
            return str(sorted(canonical(each, states) for each in cast("frozenset[Any]", value)))
        case tuple():
            return f"({', '.join(canonical(each, states) for each in cast('tuple[Any, ...]', value))})"
        case _ if dataclasses.is_dataclass(value):
            shown = [field.name for field in dataclasses.fields(value) if field.repr]
            parts = [f"{name}={canonical(getattr(value, name), states)}" for name in shown]
            return f"{type(value).__name__}({', '.join(parts)})"
        case _:
            return repr(value)
