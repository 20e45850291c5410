"""Walk and rebuild plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import assert_never

from deltafold.algebra.plan import (
    Aggregate,
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
