"""Compiler pass: partition keys that reach the answer. In: a plan, its outputs, its sources' partition columns.
Out: the answer column that holds one of them as it is, by which a reader knows what part of the answer changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from incremental.algebra.plan import Column, Expand, Plan, Project, Reference, Scalar, SourceRead, Union

PartitionColumns = Mapping[str, Sequence[str]]


def partition_key(plan: Plan, outputs: Sequence[tuple[Column, str]], partitioned_by: PartitionColumns) -> str | None:
    """The first answer column that is a source's partition column, passed through; None where there is none."""
    held = _held(plan, partitioned_by)
    return next((shown for column, shown in outputs if column.name in held), None)


def _held(plan: Plan, partitioned_by: PartitionColumns) -> frozenset[str]:
    """The names of those columns of a node that are a source's partition column as it is."""
    if isinstance(plan, SourceRead):
        names = partitioned_by.get(plan.relation, ())
        return frozenset(column.name for name, column in plan.fields if name in names)
    below = [_held(child, partitioned_by) for child in plan.children]
    match plan:
        case Project(items=items):
            return frozenset(item.column.name for item in items if _passes(item.scalar, below[0]))
        case Union(children=children):
            sides = [[c.name in held for c in child.columns] for child, held in zip(children, below, strict=True)]
            return frozenset(c.name for c, *same in zip(plan.columns, *sides, strict=True) if all(same))
        case Expand(projections=projections, columns=columns):
            rows = [[_passes(scalar, below[0]) for scalar in row] for row in projections]
            return frozenset(c.name for c, *same in zip(columns, *rows, strict=True) if all(same))
        case _:
            return frozenset[str]().union(*below) & frozenset(column.name for column in plan.columns)


def _passes(scalar: Scalar, held: frozenset[str]) -> bool:
    return isinstance(scalar, Reference) and scalar.column.name in held
