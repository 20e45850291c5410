"""Walk, rebuild and search plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from deltafold.algebra.plan import (
    Aggregate,
    Column,
    Expand,
    Filter,
    Generate,
    Given,
    GroupwiseOp,
    Item,
    Join,
    Loop,
    Plan,
    Project,
    Reference,
    Scalar,
    SourceRead,
    StateRead,
    Union,
    Unsupported,
    Values,
)


def walk(plan: Plan) -> Iterator[Plan]:
    """Yield every node, inputs before the nodes that read them, left to right."""
    for child in plan.children:
        yield from walk(child)
    yield plan


def source_names(plan: Plan) -> tuple[str, ...]:
    """Return the names of the sources that a plan reads, in order of first occurrence."""
    return tuple(dict.fromkeys(node.relation for node in walk(plan) if isinstance(node, SourceRead)))


def column_names(plan: Plan) -> frozenset[str]:
    """Return the names of the plan's own columns."""
    return frozenset(column.name for column in plan.columns)


def all_column_names(plan: Plan) -> frozenset[str]:
    """Return the names of the columns of every node in a plan."""
    return frozenset(column.name for node in walk(plan) for column in node.columns)


def only_chooses(items: Sequence[Item]) -> bool:
    """Return whether the items of a projection only choose and rename columns."""
    return all(isinstance(item.scalar, Reference) for item in items)


def pass_columns(columns: Iterable[Column]) -> tuple[Item, ...]:
    """Return the items of a projection that passes these columns on unchanged."""
    return tuple(Item(column, Reference(column)) for column in columns)


def project(child: Plan, items: tuple[Item, ...]) -> Plan:
    """Return a projection, or its input if the projection would change nothing."""
    return child if items == pass_columns(child.columns) else Project(child, items)


def replace_children(plan: Plan, children: tuple[Plan, ...]) -> Plan:
    """Return the same node over other inputs."""
    match plan:
        case SourceRead() | StateRead() | Values() | Given():
            return plan
        case Union() | Unsupported():
            return replace(plan, children=children)
        case Join():
            return replace(plan, left=children[0], right=children[1])
        case Loop():
            return replace(plan, init=children[0], step=children[1])
        case Project() | Filter() | Generate() | Expand() | Aggregate() | GroupwiseOp():
            return replace(plan, child=children[0])
        case _:
            assert_never(plan)


def find_repeats(plans: Sequence[Plan]) -> frozenset[Plan]:
    """Return the largest inputs that occur several times in the plans of a program, so that each is computed once.

    Inputs are the same if they are equal plans, columns included: a pass made them of one plan of the query (the
    branches of expand_distinct, say). What the query itself reads twice has columns of other names. Only inputs that
    join or rank rows are worth it.
    """
    occurrences = Counter(node for plan in plans for node in walk(plan) if _is_expensive(node))
    return frozenset(node for plan in plans for node in _largest_repeats(plan, occurrences))


def _largest_repeats(plan: Plan, occurrences: Counter[Plan]) -> Iterator[Plan]:
    """Yield the inputs of a plan that occur several times, but not those that occur within such an input alone."""
    if occurrences[plan] > 1:
        yield plan
        return
    for child in plan.children:
        yield from _largest_repeats(child, occurrences)


def _is_expensive(plan: Plan) -> bool:
    """Return whether computing the change of a plan takes more than reading changed rows."""
    return any(isinstance(node, Join | GroupwiseOp) for node in walk(plan))


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
            names = {
                scalar.column.name: names[name] for name, scalar in passed.items() if isinstance(scalar, Reference)
            }
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
            branches = [[c.name in names for c in child.columns] for child, names in zip(children, below, strict=True)]
            return frozenset(c.name for c, *same in zip(plan.columns, *branches, strict=True) if all(same))
        case Expand(projections=projections, columns=columns):
            rows = [[_is_one_of(scalar, below[0]) for scalar in row] for row in projections]
            return frozenset(c.name for c, *same in zip(columns, *rows, strict=True) if all(same))
        case _:
            return frozenset[str]().union(*below) & frozenset(column.name for column in plan.columns)


def _is_one_of(scalar: Scalar, columns: frozenset[str]) -> bool:
    return isinstance(scalar, Reference) and scalar.column.name in columns
