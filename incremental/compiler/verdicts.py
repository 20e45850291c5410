"""Compiler pass: how each node is maintained, in words. In: the normalised plan. Out: lines for explain."""

from __future__ import annotations

from typing import assert_never

from incremental.algebra.plan import (
    Aggregate,
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
    sources,
)
from incremental.algebra.program import State, Verdict
from incremental.compiler.factor import infer
from incremental.compiler.refuse import join_text


def verdicts(plan: Plan, invariant: frozenset[str], depth: int = 0) -> tuple[Verdict, ...]:
    """The query from the answer down to the sources, one verdict a node."""
    here = Verdict(*describe(plan, invariant), depth)
    return (here, *(line for child in plan.children for line in verdicts(child, invariant, depth + 1)))


def describe(plan: Plan, invariant: frozenset[str]) -> tuple[str, str]:
    """A node's line and the rule that maintains it."""
    match plan:
        case Source(relation=name, fields=fields):
            names = ", ".join(field for field, _ in fields)
            changing = "files that left or came between two versions"
            return f"source {name} ({names})", "declared invariant: no term" if name in invariant else changing
        case StateRead(state=name):
            return f"state {name}", "touched groups, before and after"
        case Values(text=text):
            return text, "constant: no term"
        case Project() | Filter() | Generate() | Expand() | Union():
            return linear_text(plan), "linear"
        case Join():
            return join_text(plan), join_rule(plan, invariant)
        case Aggregate():
            return describe_aggregate(plan)
        case KeyLocal(kind=kind, text=text):
            rule = "touched partitions, before and after" if plan.keys else "all rows, before and after"
            return f"{kind} {text}", f"{rule}; ties settled by all columns"
        case Foreign(text=text, because=because):
            return text, because
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


def join_rule(node: Join, invariant: frozenset[str]) -> str:
    """Which side carries the change."""
    frozen = [all(name in invariant for name in sources(side)) for side in node.children]
    still = [name for side, f in zip(node.children, frozen, strict=True) if f for name in sources(side)]
    unchanged = f"{', '.join(still) or 'constants'} does not change"
    if node.kind == "inner":
        return f"linear: {unchanged}" if any(frozen) else "bilinear: Δl ⋈ before(r) + after(l) ⋈ Δr"
    moving = {"right": frozen[0], "full": all(frozen)}.get(node.kind, frozen[1])
    if moving:
        return f"linear: {unchanged}"
    reach = "with an equal key" if node.keys else "(no equality: each side is read whole)"
    return f"Δl, then the rows that a changed row of r can match {reach}, before and after"


def describe_aggregate(node: Aggregate) -> tuple[str, str]:
    """A group-by and its monoids."""
    keys = ", ".join(column.name for column in node.keys) or "()"
    if not node.calls:
        return f"distinct {keys}", "group row count crossing zero"
    parts: list[str] = []
    for call in node.calls:
        found = infer(call)
        parts.append(f"{call.text}: {found.name}, deletions {found.deletions}")
    return f"group by {keys}: " + ", ".join(call.text for call in node.calls), "; ".join(parts)


def notes(states: tuple[State, ...]) -> tuple[str, ...]:
    """What a reader should know beside the plan: rules where Spark leaves the answer open."""
    found = [
        f"{slot.call.text}: {slot.monoid.ambiguous}"
        for state in states
        for slot in state.slots
        if slot.monoid.ambiguous
    ]
    return tuple(dict.fromkeys(found))
