"""Find the source columns that each column of a plan is computed from.

A column is computed from the columns of its expression; conditions of joins and filters choose rows, and do not count.
What Spark's own nodes compute inside (windows, functions of groups) is not inspected: the lineage of such a column is
unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from deltafold.algebra.plan import (
    Aggregate,
    Column,
    Expand,
    Filter,
    Generate,
    Given,
    GroupwiseOp,
    Join,
    Loop,
    Plan,
    Project,
    SourceRead,
    StateRead,
    Union,
    Unsupported,
    Values,
)

Origins = frozenset[tuple[str, str]] | None
"""The (source, column) pairs that a column is computed from, none for a constant or a count; None if unknown."""

_NOTHING: Origins = frozenset()
_Loops = Mapping[str, Sequence[Origins]]
"""The origins of the rows of the loops around a plan, by the loop's name and the column's position."""


def column_lineage(plan: Plan, outputs: Sequence[tuple[Column, str]]) -> dict[str, Origins]:
    """Return the origins of each answer column; outputs: the plan's column and the user's name of each."""
    traced = _trace(plan, {})
    return {name: traced[column.name] for column, name in outputs}


def _trace(plan: Plan, loops: _Loops) -> dict[str, Origins]:
    """Return the origins of a plan's columns by name."""
    match plan:
        case SourceRead():
            return {column.name: frozenset({(plan.relation, own)}) for own, column in plan.fields}
        case Values():
            return dict.fromkeys((column.name for column in plan.columns), _NOTHING)
        case Given():
            return _by_name(plan.columns, loops.get(plan.name) or [None] * len(plan.columns))
        case Loop():
            return _by_name(plan.columns, _fixpoint(plan, loops))
        case Union():
            return _by_name(plan.columns, _align(_trace_positions(child, loops) for child in plan.children))
        case StateRead() | Unsupported():
            return dict.fromkeys(column.name for column in plan.columns)
        case Project() | Filter() | Generate() | Expand() | Join() | Aggregate() | GroupwiseOp():
            inputs = (_trace(child, loops) for child in plan.children)
            return _compute(plan, {name: origins for traced in inputs for name, origins in traced.items()})
        case _:
            assert_never(plan)


def _compute(
    plan: Project | Filter | Generate | Expand | Join | Aggregate | GroupwiseOp, below: dict[str, Origins]
) -> dict[str, Origins]:
    """Return the origins of what a node computes from its inputs' columns."""
    match plan:
        case Filter():
            return below
        case Project():
            return {item.column.name: _pick(below, item.scalar.columns) for item in plan.items}
        case Generate():
            return below | dict.fromkeys((c.name for c in plan.produced), _pick(below, plan.generator.columns))
        case Expand():
            scalars = zip(*plan.projections, strict=True)
            return {
                column.name: _union(_pick(below, scalar.columns) for scalar in of_column)
                for column, of_column in zip(plan.columns, scalars, strict=True)
            }
        case Join():
            exists = plan.exists and {plan.exists.name: _union(map(below.get, _key_columns(plan)))}
            return below | (exists or {})
        case Aggregate():
            calls = {call.column.name: _pick(below, (c.name for c in call.arguments)) for call in plan.calls}
            return {key.name: below[key.name] for key in plan.keys} | calls
        case GroupwiseOp():
            passed = set(plan.child.columns)
            return {column.name: below[column.name] if column in passed else None for column in plan.columns}
        case _:
            assert_never(plan)


def _trace_positions(plan: Plan, loops: _Loops) -> list[Origins]:
    """Return the origins of a plan's columns by position."""
    traced = _trace(plan, loops)
    return [traced[column.name] for column in plan.columns]


def _fixpoint(loop: Loop, loops: _Loops) -> list[Origins]:
    """Return the origins of a loop's columns: those of its start and of its step over itself, until none is added."""
    reached = _trace_positions(loop.init, loops)
    while (grown := _align([reached, _trace_positions(loop.step, {**loops, loop.name: reached})])) != reached:
        reached = grown
    return reached


def _align(inputs: Iterable[Sequence[Origins]]) -> list[Origins]:
    """Return the origins of columns that match by position."""
    return [_union(origins) for origins in zip(*inputs, strict=True)]


def _pick(below: Mapping[str, Origins], columns: Iterable[str]) -> Origins:
    """Return the origins of an expression over some columns."""
    return _union(below[column] for column in columns)


def _union(origins: Iterable[Origins]) -> Origins:
    """Return all origins together, unknown if one is."""
    union: frozenset[tuple[str, str]] = frozenset()
    for more in origins:
        if more is None:
            return None
        union |= more
    return union


def _key_columns(join: Join) -> list[str]:
    """Return the columns of a join's conditions, which an existence column is computed from."""
    return sorted({column for scalar in join.conjuncts for column in scalar.columns})


def _by_name(columns: Sequence[Column], origins: Iterable[Origins]) -> dict[str, Origins]:
    return {column.name: origin for column, origin in zip(columns, origins, strict=True)}
