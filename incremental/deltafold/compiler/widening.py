"""Compare the programs of one query before and after columns of its sources got wider types (D-173).

Two values are the same if one becomes the other by a cast that loses nothing: INT 5 and BIGINT 5, but not FLOAT 0.1 and
its text. Programs are compared node by node. If every column has the same values in both, the tables of the one hold
what the other would have computed: as they are where their types are equal, and cast where a type is wider.

| node | has the same values if its inputs do, and |
| --- | --- |
| source, state | it is the same table |
| projection, filter, join, generate, expand | their expressions do |
| union | always |
| groupwise operator | its expressions do |
| anything else | no type in it differs |

| aggregate over a wider type | columns of its state |
| --- | --- |
| count | the same |
| sum, avg of integers | the same; of BIGINT the sum is split into its halves |
| sum, avg of decimals of one scale, of floats | the same |
| min, max, min_by, max_by, bit_and, bit_or, bit_xor | cast |
| anything else | unknown |

The rule is sufficient and not necessary. Whether expressions have the same values is decided by Spark's side
(`SameValues`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from deltafold.algebra.canonical import fingerprint_text
from deltafold.algebra.monoids.kinds import Recomputed
from deltafold.algebra.plan import (
    Column,
    Expand,
    Filter,
    Generate,
    GroupwiseOp,
    Item,
    Join,
    Opaque,
    Plan,
    Project,
    Reference,
    Scalar,
    SourceRead,
    Sql,
    StateRead,
    Union,
)
from deltafold.algebra.program import InPlace, Program, Slot, State
from deltafold.algebra.sqltext import quoted
from deltafold.algebra.wider_types import WHOLE_NUMBERS, is_wider

CAST_TO_WIDER = {"min", "max", "minby", "maxby", "bitandagg", "bitoragg", "bitxoragg"}
SUMMED = {"sum", "average"}
OTHER_OPERATORS = "its operators are others for the wider type"


class SameValues(Protocol):
    """Decides whether Spark's expressions, which the algebra keeps as handles, have the same values."""

    def find_difference(self, old: Scalar, new: Scalar, names: Mapping[str, str]) -> str | None:
        """Return the text of an expression whose value may be another one; None if the values are the same.

        names: the new columns by those with the same values.
        """
        ...

    def find_operator_difference(self, old: GroupwiseOp, new: GroupwiseOp, names: Mapping[str, str]) -> str | None:
        """Return the same of the expressions of two operators."""
        ...


class DifferentError(Exception):
    """A value may be another one for the wider type; its text is the reason."""


@dataclass(frozen=True)
class WidenedState:
    """What becomes of a state: its keys as SQL over `{}`, the stored key, and its other columns as SQL over those.

    same: whether all of them stay as they are.
    """

    keys: tuple[str, ...]
    parts: tuple[str, ...]
    same: bool


@dataclass(frozen=True)
class Widening:
    """What becomes of the tables of a program: of its states by name; answer: its columns that get another type."""

    states: Mapping[str, WidenedState]
    answer: tuple[str, ...]

    @property
    def keeps_answer(self) -> bool:
        """Whether the answer has the types that it had."""
        return not self.answer

    @property
    def keeps_tables(self) -> bool:
        """Whether all tables stay as they are."""
        return self.keeps_answer and all(state.same for state in self.states.values())


def compare_programs(old: Program, new: Program, values: SameValues) -> Widening:
    """Return what becomes of the tables of a program whose sources got wider types; raises DifferentError."""
    return _Comparison(values).programs(old, new)


def widened_columns(old: Sequence[tuple[Column, str]], new: Sequence[tuple[Column, str]]) -> tuple[str, ...]:
    """Return the answer's columns that get another type, in words."""
    return tuple(
        f"{name} becomes {after.type} (it was {before.type})"
        for (before, _), (after, name) in zip(old, new, strict=True)
        if before.type != after.type
    )


class _Comparison:
    """One comparison; `_names`: the new columns so far by the old ones, `_wider`: the old ones whose types differ."""

    def __init__(self, values: SameValues) -> None:
        self._values = values
        self._names: dict[str, str] = {}
        self._wider: set[str] = set()

    def programs(self, old: Program, new: Program) -> Widening:
        stages = list(zip(old.stages, new.stages, strict=False))
        alike = len(old.stages) == len(new.stages) and type(old.publication) is type(new.publication)
        if not alike or [name for _, name in old.outputs] != [name for _, name in new.outputs]:
            raise DifferentError(OTHER_OPERATORS)
        states: dict[str, WidenedState] = {}
        for one, other in stages:
            if isinstance(one, State) and isinstance(other, State):
                states[other.name] = self._state(one, other)
            elif fingerprint_text(one) != fingerprint_text(other):
                raise DifferentError("a loop reads the wider column")
        if isinstance(old.publication, InPlace) and isinstance(new.publication, InPlace):
            if old.publication.state != new.publication.state:
                raise DifferentError(OTHER_OPERATORS)
            self._items(old.publication.items, new.publication.items)
        self._plan(old.answer, new.answer)
        self._columns([c for c, _ in old.outputs], [c for c, _ in new.outputs])
        return Widening(states, widened_columns(old.outputs, new.outputs))

    def _state(self, old: State, new: State) -> WidenedState:
        if old.name != new.name or len(old.slots) != len(new.slots):
            raise DifferentError(OTHER_OPERATORS)
        self._plan(old.input, new.input)
        self._columns(old.keys, new.keys)
        self._columns(old.bucket_by, new.bucket_by)
        slots = list(zip(old.slots, new.slots, strict=True))
        parts = [part for one, other in slots for part in self._slot(one, other)]
        stored = [
            (quoted(slot.stored_name(part)), part.type) for slot in new.slots for part in slot.accumulator.components
        ]
        types = [part.type for slot in old.slots for part in slot.accumulator.components]
        same = old.keys == new.keys and list(zip(parts, types, strict=False)) == stored
        keys = [
            "{}" if one.type == other.type else f"CAST({{}} AS {other.type})"
            for one, other in zip(old.keys, new.keys, strict=True)
        ]
        return WidenedState(tuple(keys), tuple(parts), same)

    def _slot(self, old: Slot, new: Slot) -> Iterator[str]:
        """Yield the stored columns of an aggregate as SQL over those that it had."""
        one, other = old.call, new.call
        facts, others = ((c.function, c.distinct, c.mode, c.declared, len(c.arguments)) for c in (one, other))
        if facts != others:
            raise DifferentError(OTHER_OPERATORS)
        self._columns(one.arguments, other.arguments)
        self._columns(one.buffers, other.buffers)
        self._scalar(one.answer, other.answer)
        self._columns([one.column], [other.column])
        types = [(a.type, b.type) for a, b in zip(one.arguments, other.arguments, strict=True)]
        wider = any(a != b for a, b in types)
        merges = not isinstance(old.accumulator, Recomputed)
        if old.accumulator == new.accumulator and (not wider or (merges and self._sums_values(old, types))):
            if not wider and one.text != other.text and not merges:
                raise DifferentError(f"{other.text} may be another one")
            yield from (quoted(old.stored_name(part)) for part in old.accumulator.components)
            return
        known_parts = {part.name: part for part in old.accumulator.components}
        stored = {name: quoted(old.stored_name(part)) for name, part in known_parts.items()}
        whole = one.function in SUMMED and all(type_ in WHOLE_NUMBERS for pair in types for type_ in pair)
        if not (whole or one.function in CAST_TO_WIDER or (merges and self._sums_values(old, types))):
            raise DifferentError(f"the state of {other.text} is another one for the wider type")
        for part in new.accumulator.components:
            if whole and part.name in ("hi", "lo") and "s" in stored:
                yield f"shiftright({stored['s']}, 32)" if part.name == "hi" else f"({stored['s']} & 4294967295L)"
            elif part.name not in stored:
                raise DifferentError(f"the state of {other.text} is another one for the wider type")
            elif known_parts[part.name].type == part.type:
                yield stored[part.name]
            else:
                yield f"CAST({stored[part.name]} AS {part.type})"

    def _sums_values(self, slot: Slot, types: Sequence[tuple[str, str]]) -> bool:
        """Return whether an accumulator has the same columns over the same values of a wider type."""
        function, mode = slot.call.function, slot.call.mode
        if function == "count":
            return True
        if slot.call.declared is None and all(type_ in WHOLE_NUMBERS for pair in types for type_ in pair):
            return True  # where both types have the same accumulator, which is compared beside this
        if function not in SUMMED:
            return False
        decimals = all(type_.startswith("decimal") for pair in types for type_ in pair)
        if decimals:
            return all(_scale(a) == _scale(b) for a, b in types)
        # without ANSI, Spark multiplies a float by a weight as floats
        return mode == "ansi" and set(types) == {("float", "double")}

    def _plan(self, old: Plan, new: Plan) -> None:
        if fingerprint_text(old) == fingerprint_text(new):  # it reads no wider column
            self._columns(old.columns, new.columns)
            return
        if isinstance(old, Project) != isinstance(new, Project):
            self._casts(old, new)
            return
        if len(old.children) != len(new.children) or type(old) is not type(new):
            raise DifferentError(OTHER_OPERATORS)
        for pair in zip(old.children, new.children, strict=True):
            self._plan(*pair)
        self._node(old, new)
        self._columns(old.columns, new.columns)

    def _casts(self, old: Plan, new: Plan) -> None:
        """Compare plans of which one has casts on top, as Spark adds them to the inputs of a union, and to IN."""
        self._plan(*(plan.child if isinstance(plan, Project) else plan for plan in (old, new)))
        one, other = (
            [item.scalar for item in plan.items] if isinstance(plan, Project) else [Reference(c) for c in plan.columns]
            for plan in (old, new)
        )
        self._scalars(one, other)
        for before in old.columns:
            self._names.pop(before.name, None)
        self._columns(old.columns, new.columns)

    def _node(self, old: Plan, new: Plan) -> None:
        """Check the expressions of a node, over inputs with the same values."""
        if isinstance(old, GroupwiseOp) and isinstance(new, GroupwiseOp):
            self._operator(old, new)
            return
        match old, new:
            case SourceRead(), SourceRead():
                self._same(old.relation == new.relation and [n for n, _ in old.fields] == [n for n, _ in new.fields])
            case StateRead(), StateRead():
                self._same(old.state == new.state)
                self._columns(old.own, new.own)
            case Project(), Project():
                self._items(old.items, new.items)
            case Filter(), Filter():
                self._scalar(old.condition, new.condition)
            case Generate(), Generate():
                self._same(old.outer == new.outer)
                self._scalar(old.generator, new.generator)
            case Expand(), Expand():
                self._same(len(old.projections) == len(new.projections))
                for pair in zip(old.projections, new.projections, strict=True):
                    self._scalars(*pair)
            case Union(), Union():
                pass
            case Join(), Join():
                self._join(old, new)
            case _:
                raise DifferentError(OTHER_OPERATORS)

    def _join(self, old: Join, new: Join) -> None:
        self._same(old.kind == new.kind and [key[2] for key in old.keys] == [key[2] for key in new.keys])
        self._scalar(old.condition, new.condition)
        for one, other in zip(old.keys, new.keys, strict=True):
            self._scalars(one[:2], other[:2])
        self._scalars(old.conjuncts, new.conjuncts)

    def _operator(self, old: GroupwiseOp, new: GroupwiseOp) -> None:
        self._same((old.kind, old.undetermined) == (new.kind, new.undetermined))
        self._columns(old.keys, new.keys)
        if difference := self._values.find_operator_difference(old, new, self._names):
            raise DifferentError(_reads_width(difference))

    def _items(self, old: Sequence[Item], new: Sequence[Item]) -> None:
        self._scalars([item.scalar for item in old], [item.scalar for item in new])
        self._columns([item.column for item in old], [item.column for item in new])

    def _columns(self, old: Sequence[Column], new: Sequence[Column]) -> None:
        """Check that columns with the same values have the same or a wider type."""
        self._same(len(old) == len(new))
        for one, other in zip(old, new, strict=True):
            self._same(self._names.setdefault(one.name, other.name) == other.name)
            if one.type != other.type:
                if not is_wider(one.type, other.type):
                    raise DifferentError(f"{other.name} becomes {other.type}, which does not contain {one.type}")
                self._wider.add(one.name)

    def _scalars(self, old: Sequence[Scalar], new: Sequence[Scalar]) -> None:
        self._same(len(old) == len(new))
        for pair in zip(old, new, strict=True):
            self._scalar(*pair)

    def _scalar(self, old: Scalar | None, new: Scalar | None) -> None:
        match old, new:
            case None, None:
                pass
            case Reference(), Reference():
                self._same(self._names.get(old.column.name) == new.column.name)
            case Sql(), Sql():
                self._same(old.text == new.text and self._are_as_before(old.columns))
            case ((Reference() | Opaque()), (Reference() | Opaque())):
                if old == new and self._are_as_before(old.columns):
                    return
                if difference := self._values.find_difference(old, new, self._names):
                    raise DifferentError(_reads_width(difference))
            case _:
                raise DifferentError(OTHER_OPERATORS)

    def _are_as_before(self, names: frozenset[str]) -> bool:
        return self._wider.isdisjoint(names) and all(self._names.get(name) == name for name in names)

    def _same(self, condition: bool) -> None:  # noqa: FBT001 what it is given is what it asserts
        if not condition:
            raise DifferentError(OTHER_OPERATORS)


def _reads_width(text: str) -> str:
    return f"{text} may have another value for the wider type"


def _scale(decimal: str) -> str:
    return decimal.rpartition(",")[2]
