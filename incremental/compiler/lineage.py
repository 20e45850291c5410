"""Compiler pass: lineage keys (MRQL section 8). In: a plan. Out: for each group-by its key order and bucket prefix.

A group-by below another starts its key with the outer key, so that all inner groups of one outer group lie together
and both states fall into the same bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from incremental.algebra.plan import Aggregate, Column, Filter, Plan, Project, Reference


@dataclass(frozen=True)
class LineageKey:
    """The key of a state: all its columns in order, and the prefix it shares with the group-by above."""

    keys: tuple[Column, ...]
    bucket_by: tuple[Column, ...]


def lineage_key(aggregate: Aggregate, outer: tuple[str, ...]) -> LineageKey:
    """The key of a group-by below one that groups by the columns `outer`."""
    by_name = {column.name: column for column in aggregate.keys}
    shared = tuple(by_name[name] for name in outer if name in by_name)
    rest = tuple(column for column in aggregate.keys if column not in shared)
    return LineageKey(shared + rest, shared or aggregate.keys)


def shown_key(plan: Plan, outputs: Sequence[tuple[Column, str]]) -> tuple[str, ...]:
    """The names under which an answer shows what its topmost group-by groups by; () where it has none."""
    names = {column.name: name for column, name in outputs}
    while isinstance(plan, Project | Filter):
        if isinstance(plan, Project):
            passed = {item.column.name: item.scalar for item in plan.items if item.column.name in names}
            names = {s.column.name: names[shown] for shown, s in passed.items() if isinstance(s, Reference)}
        plan = plan.child
    return tuple(names[key.name] for key in plan.keys if key.name in names) if isinstance(plan, Aggregate) else ()


def below(plan: Plan, outer: tuple[str, ...]) -> tuple[str, ...]:
    """What the columns `outer` of a node are called in its first input; () where they are not passed through."""
    match plan:
        case Project(items=items):
            names = {item.column.name: item.scalar.column.name for item in items if isinstance(item.scalar, Reference)}
            return tuple(names[name] for name in outer) if all(name in names for name in outer) else ()
        case Aggregate(keys=keys):
            own = tuple(column.name for column in keys)
            shared = tuple(name for name in outer if name in own)
            return shared or own
        case _:
            return outer
