"""Find the answer columns that show a partition of a source, or the key of the topmost group-by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltafold.algebra.plan import (
    Aggregate,
    Column,
    Expand,
    Filter,
    Plan,
    Project,
    Reference,
    Scalar,
    SourceRead,
    Union,
)

PartitionColumns = Mapping[str, Sequence[str]]


def find_partition_key(
    plan: Plan, outputs: Sequence[tuple[Column, str]], partitioned_by: PartitionColumns
) -> str | None:
    """Return the first answer column that is a source's partition column, passed through; None if there is none.

    Its values show which part of the answer changed.
    """
    passed = _partition_columns(plan, partitioned_by)
    return next((name for column, name in outputs if column.name in passed), None)


def find_group_key(plan: Plan, outputs: Sequence[tuple[Column, str]]) -> tuple[str, ...]:
    """Return the answer columns that show the key of the topmost group-by, () if there is no group-by."""
    names = {column.name: name for column, name in outputs}
    while isinstance(plan, Project | Filter):
        if isinstance(plan, Project):
            passed = {item.column.name: item.scalar for item in plan.items if item.column.name in names}
            names = {s.column.name: names[name] for name, s in passed.items() if isinstance(s, Reference)}
        plan = plan.child
    return tuple(names[key.name] for key in plan.keys if key.name in names) if isinstance(plan, Aggregate) else ()


def _partition_columns(plan: Plan, partitioned_by: PartitionColumns) -> frozenset[str]:
    """Return the names of a node's columns that are a source's partition column, unchanged."""
    if isinstance(plan, SourceRead):
        names = partitioned_by.get(plan.relation, ())
        return frozenset(column.name for name, column in plan.fields if name in names)
    below = [_partition_columns(child, partitioned_by) for child in plan.children]
    match plan:
        case Project(items=items):
            return frozenset(item.column.name for item in items if _is_one_of(item.scalar, below[0]))
        case Union(children=children):
            sides = [[c.name in found for c in child.columns] for child, found in zip(children, below, strict=True)]
            return frozenset(c.name for c, *same in zip(plan.columns, *sides, strict=True) if all(same))
        case Expand(projections=projections, columns=columns):
            rows = [[_is_one_of(scalar, below[0]) for scalar in row] for row in projections]
            return frozenset(c.name for c, *same in zip(columns, *rows, strict=True) if all(same))
        case _:
            return frozenset[str]().union(*below) & frozenset(column.name for column in plan.columns)


def _is_one_of(scalar: Scalar, columns: frozenset[str]) -> bool:
    return isinstance(scalar, Reference) and scalar.column.name in columns
