"""Pass: keep one state for group-bys of the same rows by the same keys (a common table that is read twice, say).

    γ k; f(x) (R), γ k; f(x), g(x) (R)   →   one state γ k; f(x), g(x) (R), which both read

R is the same rows if the plans are aligned (algebra/alignment.py), and aggregates are equal if Spark's expressions
are. If the aggregates of one state are among those of another, the readers of both read the larger one, each under its
own column names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deltafold.algebra.alignment import Aligner, Alignment, Equality
from deltafold.algebra.plan import Call, Column, Plan, SourceRead, StateRead
from deltafold.algebra.program import Slot, Stage, State
from deltafold.algebra.traversal import replace_children, walk
from deltafold.compiler.draft import Draft

Served = dict[str, tuple[str, Alignment]]
"""The state that stands for another, and its columns by the names of the other's."""


def share_states(draft: Draft) -> Draft:
    """Return the program with one state for each set of equal group-bys, and a note for each that serves several."""
    sharing = _Sharing(draft.equality)
    for state in draft.states:
        sharing.add(state)
    if not sharing.served:
        return draft
    names = {state.name: f"state_{number}" for number, state in enumerate(sharing.kept, 1)}

    def rename_reads(plan: Plan) -> Plan:
        if not isinstance(plan, StateRead):
            return replace_children(plan, tuple(map(rename_reads, plan.children)))
        state, own = sharing.state_columns(plan)
        return StateRead(names.get(state, state), plan.columns, () if own == plan.columns else own)

    def rename(stage: Stage) -> Stage:
        if isinstance(stage, State):
            return replace(stage, name=names[stage.name], input=rename_reads(stage.input))
        sides = tuple(replace(side, plan=rename_reads(side.plan)) for side in stage.sides)
        return replace(stage, init=rename_reads(stage.init), sides=sides)

    stages = tuple(map(rename, sharing.stages(draft.stages)))
    notes = _notes(draft.states, sharing, names)
    return replace(draft, plan=rename_reads(draft.plan), stages=stages, notes=(*draft.notes, *notes))


class _Sharing:
    """The states so far without those that another one serves; a state comes after those that it reads."""

    def __init__(self, equality: Equality) -> None:
        self.kept: list[State] = []
        self.served: Served = {}
        self._aligner = Aligner(equality, self.state_columns)

    def add(self, state: State) -> None:
        """Keep another state, unless a kept one serves it; it may serve kept ones, and is kept in place of them."""
        alike = [kept for kept in self.kept if _shape(kept.input) == _shape(state.input)]
        for kept in alike:
            if (columns := self._serves(kept, state)) is not None:
                self.served[state.name] = kept.name, columns
                return
        smaller = {kept.name: columns for kept in alike if (columns := self._serves(state, kept)) is not None}
        self.served |= {name: (state.name, columns) for name, columns in smaller.items()}
        # the first of them comes after all that it reads, which is what the new one reads
        position = next((i for i, kept in enumerate(self.kept) if kept.name in smaller), len(self.kept))
        self.kept.insert(position, state)
        self.kept = [kept for kept in self.kept if kept.name not in smaller]

    def stages(self, all_stages: Sequence[Stage]) -> list[Stage]:
        """Return loops and kept states, each in the place of the first state that it stands for."""
        kept: dict[str, Stage] = {state.name: state for state in self.kept}
        stages: dict[str, Stage] = {}
        for stage in all_stages:
            if isinstance(stage, State):
                name, _ = self.state_columns(StateRead(stage.name, stage.columns))
                stages.setdefault(name, kept[name])
            else:
                stages[stage.name] = stage
        return [*stages.values()]

    def state_columns(self, read: StateRead) -> tuple[str, tuple[Column, ...]]:
        """Return the kept state that a reader gets, and that state's columns in the order of the reader's."""
        name = read.state
        columns = read.own
        while name in self.served:
            name, equal_columns = self.served[name]
            columns = tuple(equal_columns[column.name] for column in columns)
        return name, columns

    def _serves(self, large: State, small: State) -> Alignment | None:
        """Return the columns of a state that are those of another; None if it lacks one, or has other groups."""
        if len(small.keys) != len(large.keys) or len(small.slots) > len(large.slots):
            return None
        rows = self._aligner.align(small.input, large.input)
        if rows is None or {rows.get(key.name) for key in small.keys} != set(large.keys):
            return None
        columns = {key.name: rows[key.name] for key in small.keys}
        for slot in small.slots:
            equal = next((other for other in large.slots if self._equal(slot, other, rows)), None)
            if equal is None:
                return None
            columns[slot.call.column.name] = equal.call.column
        return columns

    def _equal(self, one: Slot, other: Slot, rows: Alignment) -> bool:
        """Return whether two aggregates of the same rows are equal."""
        call = one.call
        other_call = other.call
        if one.accumulator != other.accumulator or _signature(call) != _signature(other_call):
            return False
        if [rows.get(column.name) for column in call.arguments] != [*other_call.arguments]:
            return False
        pairs = zip((*call.arguments, *call.buffers), (*other_call.arguments, *other_call.buffers), strict=True)
        names = {column.name: equal for column, equal in pairs}
        texts = {name: column.name for name, column in names.items()}
        return self._aligner.same(call.answer, other_call.answer, names) and self._aligner.same_handles(
            call.handle, other_call.handle, texts
        )


def _signature(call: Call) -> tuple[object, ...]:
    """Return the properties that two equal calls share; their columns may have other names."""
    types = tuple(column.type for column in (*call.arguments, *call.buffers))
    return call.function, call.column.type, call.distinct, call.mode, len(call.arguments), types


def _shape(plan: Plan) -> tuple[str, ...]:
    """Return the tables that a plan reads, in order, which quickly distinguish most plans."""
    return tuple(
        node.relation if isinstance(node, SourceRead) else "a state"
        for node in walk(plan)
        if isinstance(node, SourceRead | StateRead)
    )


def _notes(states: Sequence[State], sharing: _Sharing, names: dict[str, str]) -> list[str]:
    """Return a line for each state that serves several group-bys, with their columns."""
    notes: list[str] = []
    for kept in sharing.kept:
        readers = [s for s in states if sharing.state_columns(StateRead(s.name, s.columns))[0] == kept.name]
        if len(readers) > 1:
            columns = " and ".join(f"({', '.join(column.name for column in state.columns)})" for state in readers)
            notes.append(f"{names[kept.name]} is shared by {len(readers)} group-bys of the same rows: {columns}")
    return notes
