"""Compiler pass: sources give only columns that somebody uses. In: a plan and its outputs. Out: the plan, narrowed."""

from __future__ import annotations

from dataclasses import replace

from incremental.algebra.plan import (
    Aggregate,
    Column,
    Expand,
    Filter,
    Foreign,
    Generate,
    Join,
    KeyLocal,
    Plan,
    Project,
    Source,
    StateRead,
    Union,
    Values,
    walk,
    with_children,
)


def pruned(plan: Plan, outputs: tuple[Column, ...]) -> Plan:
    """The plan with every source narrowed to the columns used anywhere; names are unique, so one set serves all."""
    used = {column.name for column in outputs} | {name for node in walk(plan) for name in uses(node)}

    def narrow(node: Plan) -> Plan:
        if isinstance(node, Source):
            return replace(node, fields=tuple(field for field in node.fields if field[1].name in used))
        return with_children(node, tuple(narrow(child) for child in node.children))

    return narrow(plan)


def uses(node: Plan) -> set[str]:
    """The columns of its inputs that a node needs."""
    match node:
        case Project(items=items):
            return {name for item in items for name in item.scalar.columns}
        case Filter(condition=condition):
            return set(condition.columns)
        case Generate(generator=generator):
            return set(generator.columns)
        case Expand(projections=projections):
            return {name for projection in projections for scalar in projection for name in scalar.columns}
        case Join(condition=condition):
            return set() if condition is None else set(condition.columns)
        case Aggregate(keys=keys, calls=calls):
            return {c.name for c in keys} | {c.name for call in calls for c in call.arguments}
        case Union() | KeyLocal() | Foreign():
            return {column.name for child in node.children for column in child.columns}
        case Source() | StateRead() | Values():
            return set()
