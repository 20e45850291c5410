"""State what every pass has to leave as it is, and find what one of them broke.

| kept | meaning |
| --- | --- |
| columns | the answer has the same names and types, and each is a column of the plan |
| sources | the same sources are read, and no other column of them |
| keys | columns whose values identified a row of the answer still do |
| stages | a plan reads stages before it alone, with their columns; a lineage key is of the input's columns |

How often a row occurs depends on data: tests evaluate `join_stages(draft)` before and after a pass, and compare bags.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from deltafold.algebra.constraints import Constraint, PrimaryKeyFact
from deltafold.algebra.plan import (
    Aggregate,
    Column,
    Filter,
    Item,
    Join,
    Plan,
    Project,
    Reference,
    SourceRead,
    StateRead,
)
from deltafold.algebra.program import Stage, State, stage_inputs
from deltafold.algebra.traversal import replace_children, walk
from deltafold.compiler.draft import Draft

Keys = frozenset[frozenset[str]]


class BrokenPassError(Exception):
    """A pass of the compiler changed what it has to leave as it is: a fault of this program, not of a query."""


def check_pass(name: str, before: Draft, after: Draft) -> None:
    """Raise BrokenPassError with all that a pass broke."""
    broken = [*_find_stages(after), *_find_columns(before, after), *_find_sources(before, after)]
    if broken := broken or [*_find_keys(before, after)]:  # stages that can be read, and columns, are what keys take
        raise BrokenPassError(f"pass {name}: {'; '.join(broken)}. Report it with the query.")


def join_stages(draft: Draft) -> Plan:
    """Return the plan of the whole query: each read of a state is its group-by again. Loops stay as they are."""
    states = {state.name: state for state in draft.states}

    def join(plan: Plan) -> Plan:
        if not isinstance(plan, StateRead) or plan.state not in states:
            return replace_children(plan, tuple(map(join, plan.children)))
        state = states[plan.state]
        groups = Aggregate(join(state.input), state.keys, tuple(slot.call for slot in state.slots))
        named = zip(plan.columns, plan.own, strict=True)
        return Project(groups, tuple(Item(column, Reference(own)) for column, own in named))

    return join(draft.plan)


def _find_columns(before: Draft, after: Draft) -> Iterator[str]:
    wanted, named = ([(column.type, name) for column, name in draft.outputs] for draft in (before, after))
    if wanted != named:
        yield f"the answer has the columns {_as_text(named)}, not {_as_text(wanted)}"
    if lost := [name for column, name in after.outputs if column not in after.plan.columns]:
        yield f"the plan lacks {', '.join(lost)} of the answer"


def _as_text(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {type_}" for type_, name in columns)


def _find_sources(before: Draft, after: Draft) -> Iterator[str]:
    allowed, reads = _read_columns(before), _read_columns(after)
    if allowed.keys() != reads.keys():
        yield f"it reads the sources {', '.join(sorted(reads))}, not {', '.join(sorted(allowed))}"
    for source in allowed.keys() & reads.keys():
        if more := reads[source] - allowed[source]:
            yield f"it reads {', '.join(sorted(more))} of {source} too"


def _read_columns(draft: Draft) -> dict[str, set[str]]:
    """Return the columns that a draft reads, by source."""
    columns = dict[str, set[str]]()
    for node in _all_nodes(draft):
        if isinstance(node, SourceRead):
            columns[node.relation] = columns.get(node.relation, set()) | {name for name, _ in node.fields}
    return columns


def _all_nodes(draft: Draft) -> Iterator[Plan]:
    for plan in (*(plan for stage in draft.stages for plan in stage_inputs(stage)), draft.plan):
        yield from walk(plan)


def _find_keys(before: Draft, after: Draft) -> Iterator[str]:
    kept = find_answer_keys(after)
    for key in sorted(map(sorted, find_answer_keys(before))):
        if not any(other <= set(key) for other in kept):
            yield f"({', '.join(key)}) no longer identifies a row of the answer"


def find_answer_keys(draft: Draft) -> Keys:
    """Return sets of the answer's columns, each of which is known to identify a row."""
    names = {column.name: name for column, name in draft.outputs}
    return _rename(_keys_of(join_stages(draft), draft.facts), names)


def _keys_of(plan: Plan, facts: Iterable[Constraint]) -> Keys:
    """Return sets of a plan's columns that are known to identify a row; not all of them are found."""
    match plan:
        case SourceRead(relation=relation, fields=fields):
            names = {name: column.name for name, column in fields}
            primary = (
                frozenset(fact.columns)
                for fact in facts
                if isinstance(fact, PrimaryKeyFact) and fact.source == relation
            )
            return _rename(frozenset(primary), names)
        case Aggregate(keys=keys):
            return frozenset({frozenset(key.name for key in keys)})
        case Project(child=child, items=items):
            passed = {i.scalar.column.name: i.column.name for i in items if isinstance(i.scalar, Reference)}
            return _rename(_keys_of(child, facts), passed)
        case Filter(child=child):
            return _keys_of(child, facts)
        case Join(left=left, right=right, kind=kind, keys=equal):
            reached = frozenset(scalar.column.name for _, scalar, _ in equal if isinstance(scalar, Reference))
            is_single = kind in ("semi", "anti", "existence", "single") or (
                kind in ("inner", "left") and any(key <= reached for key in _keys_of(right, facts))
            )
            return _keys_of(left, facts) if is_single else Keys()
        case _:
            return Keys()


def _rename(keys: Keys, names: Mapping[str, str]) -> Keys:
    """Return the keys all of whose columns have a name."""
    return frozenset(frozenset(names[column] for column in key) for key in keys if key <= names.keys())


def _find_stages(after: Draft) -> Iterator[str]:
    """Yield what is wrong with the order, the columns and the lineage keys of stages."""
    written = dict[str, Stage]()
    for stage in after.stages:
        for plan in stage_inputs(stage):
            yield from _find_reads(stage.name, plan, written)
        if isinstance(stage, State):
            yield from _find_key(stage)
        written[stage.name] = stage
    yield from _find_reads("the answer", after.plan, written)


def _find_reads(reader: str, plan: Plan, written: Mapping[str, Stage]) -> Iterator[str]:
    for read in walk(plan):
        if not isinstance(read, StateRead):
            continue
        if (stage := written.get(read.state)) is None:
            yield f"{reader} reads {read.state} before it is written"
        elif lost := set(read.own) - set(stage.columns):
            yield f"{reader} reads {_names(lost)} of {read.state}, which lacks it"


def _find_key(state: State) -> Iterator[str]:
    if lost := set(state.reads) - set(state.input.columns):
        yield f"{state.name} reads {_names(lost)}, which its input lacks"
    if state.bucket_by != state.keys[: len(state.bucket_by)]:
        yield f"{state.name} has buckets by {_names(state.bucket_by)}, no prefix of its key ({_names(state.keys)})"


def _names(columns: Iterable[Column]) -> str:
    return ", ".join(sorted(column.name for column in columns))
