"""Compiler pass: DISTINCT of rows that a declared primary key tells apart (DESIGN section 5, invariants).

    δ k, c (R)   →   π k, c (R)   where k holds a whole primary key of the one source that R sees row by row

The group-by would keep one row for each row of the source; the projection keeps none.
In: any plan, the declared constraints. Out: the plan without such group-bys, and what to say of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from incremental.algebra.constraints import Constraint, PrimaryKeyFact, find_distinguishing_key
from incremental.algebra.plan import Aggregate, Item, Plan, Project, Reference
from incremental.algebra.traversal import replace_children, walk


def unique(plan: Plan, facts: Sequence[Constraint]) -> Plan:
    """The plan without group-bys whose groups are single rows."""
    plan = replace_children(plan, tuple(unique(child, facts) for child in plan.children))
    if isinstance(plan, Aggregate) and key_of(plan, facts) is not None:
        return Project(plan.child, tuple(Item(column, Reference(column)) for column in plan.keys))
    return plan


def needless(plan: Plan, facts: Sequence[Constraint]) -> tuple[str, ...]:
    """Why each of these group-bys keeps nothing."""
    found = ((node, key_of(node, facts)) for node in walk(plan) if isinstance(node, Aggregate))
    return tuple(
        f"distinct {', '.join(column.name for column in node.keys)} keeps no state: its rows differ ({key.text})"
        for node, key in found
        if key is not None
    )


def key_of(node: Aggregate, facts: Sequence[Constraint]) -> PrimaryKeyFact | None:
    """The primary key that makes each group of a DISTINCT one row."""
    return None if node.calls else find_distinguishing_key(facts, node.child, [column.name for column in node.keys])
