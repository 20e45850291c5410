"""Pass: drop a DISTINCT whose rows a declared primary key already distinguishes.

    δ k, c (R)   →   π k, c (R)   where k contains a whole primary key of the one source that R reads row by row

The group-by would store one row for each row of the source; the projection stores none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deltafold.algebra.constraints import Constraint, PrimaryKeyFact, find_distinguishing_key
from deltafold.algebra.plan import Aggregate, Plan, Project
from deltafold.algebra.traversal import pass_columns, replace_children, walk
from deltafold.compiler.draft import Draft


def drop_keyed_distinct(draft: Draft) -> Draft:
    """Return the query without group-bys whose groups are single rows, and a note for each of them."""
    keys = ((node, _key_of(node, draft.facts)) for node in walk(draft.plan) if isinstance(node, Aggregate))
    notes = tuple(
        f"distinct {', '.join(column.name for column in node.keys)} needs no state: its rows differ ({key.text})"
        for node, key in keys
        if key is not None
    )
    return replace(draft, plan=_rewrite(draft.plan, draft.facts), notes=draft.notes + notes)


def _rewrite(plan: Plan, facts: Sequence[Constraint]) -> Plan:
    plan = replace_children(plan, tuple(_rewrite(child, facts) for child in plan.children))
    if isinstance(plan, Aggregate) and _key_of(plan, facts) is not None:
        return Project(plan.child, pass_columns(plan.keys))
    return plan


def _key_of(node: Aggregate, facts: Sequence[Constraint]) -> PrimaryKeyFact | None:
    """Return the primary key by which each group of a DISTINCT is one row."""
    return None if node.calls else find_distinguishing_key(facts, node.child, [column.name for column in node.keys])
