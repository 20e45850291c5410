"""Compiler pass: how each node is maintained, in words. In: the normalised plan. Out: lines for explain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from incremental.algebra.constraints import AppendOnlyFact, Constraint, ForeignKeyFact, find_reference
from incremental.algebra.monoids.family import infer_accumulator
from incremental.algebra.monoids.kinds import Monoid
from incremental.algebra.plan import (
    Aggregate,
    Column,
    Expand,
    Filter,
    Generate,
    GroupwiseOp,
    Join,
    Plan,
    Project,
    SourceRead,
    StateRead,
    Union,
    Unsupported,
    Values,
)
from incremental.algebra.product import flatten_joins, rank_inputs
from incremental.algebra.program import State, Verdict
from incremental.algebra.traversal import source_names
from incremental.compiler.operators import DISTINCT, INNER, LINEAR, OUTER, WHOLE, WINDOW
from incremental.compiler.refuse import explain_unsupported, join_text


def verdicts(
    plan: Plan, invariant: frozenset[str], facts: Sequence[Constraint] = (), depth: int = 0
) -> tuple[Verdict, ...]:
    """The query from the answer down to the sources, one verdict a node; a tree of inner joins is one node."""
    here = (Verdict(*describe(plan, invariant, facts), depth),)
    children = plan.children
    if isinstance(plan, Join) and plan.kind == "inner":
        whole = flatten_joins(plan)
        children = whole.inputs
        here += tuple(Verdict(f"on {condition.text}", "condition", depth + 1) for condition in whole.conditions)
    return (*here, *(line for child in children for line in verdicts(child, invariant, facts, depth + 1)))


def describe(plan: Plan, invariant: frozenset[str], facts: Sequence[Constraint] = ()) -> tuple[str, str]:
    """A node's line and the rule that maintains it."""
    match plan:
        case SourceRead(relation=name, fields=fields):
            names = ", ".join(field_text(field, column) for field, column in fields)
            grows = AppendOnlyFact(name) in facts
            changing = f"files that {'came' if grows else 'left or came'} between two versions"
            return f"source {name} ({names})", "declared invariant: no term" if name in invariant else changing
        case StateRead(state=name):
            return f"state {name}", "touched groups, before and after"
        case Values(text=text):
            return text, "constant: no term"
        case Project() | Filter() | Generate() | Expand() | Union():
            return linear_text(plan), LINEAR.rule
        case Join():
            return join_line(plan), "; ".join([join_rule(plan, invariant), *spared(plan, invariant, facts)])
        case Aggregate():
            return describe_aggregate(plan)
        case GroupwiseOp(kind=kind, text=text):
            return f"{kind} {text}", f"{(WINDOW if plan.keys else WHOLE).rule}; ties settled by all columns"
        case Unsupported(text=text):
            return text, explain_unsupported(plan)[0]
        case _:
            assert_never(plan)


def linear_text(node: Project | Filter | Generate | Expand | Union) -> str:
    """The line of an operator that is its own change."""
    match node:
        case Project(items=items):
            return "project " + ", ".join(item_text(i.column.name, i.scalar.text) for i in items)
        case Filter(condition=condition):
            return f"filter {condition.text}"
        case Generate(generator=generator, outer=outer):
            return f"generate {generator.text}{' outer' if outer else ''}"
        case Expand(projections=projections):
            return f"expand each row to {len(projections)}"
        case Union(children=children):
            return f"union all of {len(children)}"


def item_text(name: str, text: str) -> str:
    """One output of a projection; a column that keeps its name stands alone."""
    return name if name == text else f"{text} AS {name}"


def field_text(field: str, column: Column) -> str:
    """A column of a source, and what the plan calls it where that is not its own name."""
    return field if field.lower() == column.name else f"{field} AS {column.name}"


def join_line(node: Join) -> str:
    """The line of a join; the conditions of an inner one stand below it."""
    if node.kind == "inner":
        return f"join of {len(flatten_joins(node).inputs)}"
    return join_text(node)


def join_rule(node: Join, invariant: frozenset[str]) -> str:
    """Which inputs carry the change."""
    inputs = flatten_joins(node).inputs if node.kind == "inner" else node.children
    frozen = [all(name in invariant for name in source_names(side)) for side in inputs]
    still = dict.fromkeys(name for side, f in zip(inputs, frozen, strict=True) if f for name in source_names(side))
    unchanged = f"{', '.join(still) or 'constants'} does not change"
    if node.kind == "inner":
        changing = frozen.count(False)
        return f"linear: {unchanged}" if changing < 2 else f"{changing} terms: {INNER.rule}"
    moving = {"right": frozen[0], "full": all(frozen)}.get(node.kind, frozen[1])
    if moving:
        return f"linear: {unchanged}"
    return OUTER.rule if node.keys else f"{OUTER.rule} (no equality: r is read whole)"


def spared(node: Join, invariant: frozenset[str], facts: Sequence[Constraint]) -> list[str]:
    """Which terms of a join a foreign key empties, and why."""
    if node.kind == "inner":
        whole = flatten_joins(node)
        found = whole.references(facts)
        rank = rank_inputs(len(whole.inputs), [(referred, referring) for referring, referred, _ in found])
        kept = (fact for one, other, fact in found if rank[other] < rank[one] and fact.to not in invariant)
        return list(dict.fromkeys(no_term(fact, facts) for fact in kept))
    mirrored = node.kind == "right"
    left, right = (node.right, node.left) if mirrored else (node.left, node.right)
    pairs = [(two, one) if mirrored else (one, two) for one, two, _ in node.keys]
    said: list[str] = []
    if (fact := find_reference(facts, left, right, pairs)) is not None and fact.to not in invariant:
        said.append(no_term(fact, facts) if node.kind != "full" else meets_nothing(fact))
    if (fact := find_reference(facts, right, left, [(two, one) for one, two in pairs])) is not None:
        said.append(meets_nothing(fact))
    return said


def no_term(fact: ForeignKeyFact, facts: Sequence[Constraint]) -> str:
    """The term that a foreign key empties."""
    when = "" if AppendOnlyFact(fact.to) in facts else " where its rows only came, or only left"
    return f"no term for {fact.to}{when}: {fact.source} that were there refer to no new {fact.to} ({by(fact)})"


def meets_nothing(fact: ForeignKeyFact) -> str:
    """What new rows need not be compared with."""
    return f"new {fact.to} meet no {fact.source} that were there ({by(fact)})"


def by(fact: ForeignKeyFact) -> str:
    """A foreign key as explain names it."""
    return f"foreign key {', '.join(fact.columns)}"


def describe_aggregate(node: Aggregate) -> tuple[str, str]:
    """A group-by and its monoids."""
    keys = ", ".join(column.name for column in node.keys) or "()"
    if not node.calls:
        return f"distinct {keys}", DISTINCT.rule
    parts: list[str] = []
    for call in node.calls:
        found = infer_accumulator(call)
        parts.append(f"{call.text}: {found.name}, {found.deletions}")
    return f"group by {keys}: " + ", ".join(call.text for call in node.calls), "; ".join(parts)


def notes(states: tuple[State, ...]) -> tuple[str, ...]:
    """What a reader should know beside the plan: rules where Spark leaves the answer open."""
    found = [
        f"{slot.call.text}: {slot.accumulator.tie_rule}"
        for state in states
        for slot in state.slots
        if isinstance(slot.accumulator, Monoid) and slot.accumulator.tie_rule
    ]
    return tuple(dict.fromkeys(found))
