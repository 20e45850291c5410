"""Print plans: one operator per line, the answer first, each indented below the operator that reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
from deltafold.algebra.product import flatten_joins

FUNCTION_DIGEST = re.compile(r" ~ python \S+ [0-9a-f]{12}")
NO_VIEWS = frozenset[str]()


def outline_plan(plan: Plan) -> tuple[str, ...]:
    """Return the lines of a plan as recipes record them, without the digests of Python functions."""
    return tuple(FUNCTION_DIGEST.sub("", line) for line in plan_lines(plan))


def plan_lines(plan: Plan, depth: int = 0) -> Iterator[str]:
    """Yield the lines of a plan; a tree of inner joins is one operator with its conditions below it."""
    yield "  " * depth + node_text(plan)
    yield from ("  " * (depth + 1) + condition for condition in condition_texts(plan))
    for child in shown_inputs(plan):
        yield from plan_lines(child, depth + 1)


def shown_inputs(plan: Plan) -> tuple[Plan, ...]:
    """Return the inputs that are printed below a node."""
    return flatten_joins(plan).inputs if isinstance(plan, Join) and plan.kind == "inner" else plan.children


def condition_texts(plan: Plan) -> list[str]:
    """Return the lines of the conditions of an inner join."""
    if not isinstance(plan, Join) or plan.kind != "inner":
        return []
    return [f"on {condition.text}" for condition in flatten_joins(plan).conditions]


def node_text(node: Plan, views: frozenset[str] = NO_VIEWS) -> str:
    """Return the line of one node; views: the sources that are answers of other views."""
    match node:
        case SourceRead(relation=name, fields=fields):
            columns = ", ".join(_field_text(field, column) for field, column in fields)
            return f"{'view' if name in views else 'source'} {name} ({columns})"
        case StateRead() | Given() | Loop():
            return _stage_text(node)
        case Values(text=text) | Unsupported(text=text):
            return text
        case Project(items=items):
            return "project " + ", ".join(_item_text(item.column.name, item.scalar.text) for item in items)
        case Filter(condition=condition):
            return f"filter {condition.text}"
        case Generate(generator=generator, outer=outer):
            return f"generate {generator.text}{' outer' if outer else ''}"
        case Expand(projections=projections):
            return f"expand each row to {len(projections)}"
        case Union(children=children):
            return f"union all of {len(children)}"
        case Join():
            return _join_text(node)
        case Aggregate(keys=keys, calls=calls):
            names = ", ".join(column.name for column in keys) or "()"
            return f"group by {names}: {', '.join(call.text for call in calls)}" if calls else f"distinct {names}"
        case GroupwiseOp(kind=kind, text=text):
            return text if text.startswith(f"{kind} ") else f"{kind} {text}"
        case _:
            assert_never(node)


def _item_text(name: str, text: str) -> str:
    """Print one output of a projection; a column that keeps its name appears once."""
    return name if name == text else f"{text} AS {name}"


def _field_text(field: str, column: Column) -> str:
    """Print a column of a source, and its name in the plan if that differs."""
    return field if field.lower() == column.name else f"{field} AS {column.name}"


def _stage_text(node: StateRead | Given | Loop) -> str:
    match node:
        case StateRead(state=name, stored=stored):
            pairs = zip(stored, node.columns, strict=True) if stored else ()
            renamed = ", ".join(_item_text(column.name, own.name) for own, column in pairs)
            return f"state {name}{f' ({renamed})' if renamed else ''}"
        case Given(name=name):
            return f"rows of {name}"
        case Loop(name=name):
            return f"{name} ({_loop_text(node)})"


def _loop_text(loop: Loop) -> str:
    """Return what the answer of a loop is."""
    keys = ", ".join(column.name for column in loop.keys)
    tolerance = loop.tolerance
    match loop.kind:
        case "levels":
            return f"sum of its levels{', each row once in each but the first' if loop.distinct else ''}"
        case "set":
            return "least set"
        case "best":
            return f"{loop.keep} row of each {keys}"
        case "times":
            return f"{loop.limit} steps"
        case "converged":
            assert tolerance is not None
            if tolerance.error is None:
                return f"steps by {keys} until a residual of {tolerance.residual:g} in the {tolerance.norm} norm"
            bound = f"an error of {tolerance.error:g} in the {tolerance.norm} norm"
            return f"steps by {keys} until {bound}, contraction {tolerance.contraction:g}"


def _join_text(node: Join) -> str:
    if node.kind == "inner":
        return f"join of {len(flatten_joins(node).inputs)}"
    return f"{node.kind} join{f' on {node.condition.text}' if node.condition else ''}"
