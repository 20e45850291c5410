"""Pass: keep the keys that an existence test looks for as a state where finding them takes a join.

    l ⋉ r   →   l ⋉ δ k (r)   where r joins relations, and all conditions are equalities of columns k of r

Also for an anti-join and an existence join. Without the state, a changed row of r reads every row of r with its key
again, and so all that r joins, to find whether another one remains. The state has the number of rows of each key, and
its change is the keys that appear and disappear.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from deltafold.algebra.plan import Aggregate, Column, Join, Loop, Plan
from deltafold.algebra.sqltext import first_unstored_type, is_unordered
from deltafold.algebra.traversal import replace_children
from deltafold.compiler.draft import Draft

TESTS = ("semi", "anti", "existence")


def group_matches(draft: Draft) -> Draft:
    """Return the query with distinct keys below such tests, and a note for each of them; loops stay as they are."""
    texts = (", ".join(column.name for column in _keys_of(node)) for node in _joins(draft.plan))
    notes = dict.fromkeys(
        f"distinct {text}: a state, as an existence test looks for it in a join" for text in texts if text
    )
    return replace(draft, plan=_rewrite(draft.plan), notes=(*draft.notes, *notes))


def _joins(plan: Plan) -> Iterator[Join]:
    """Yield the joins of a plan outside its loops."""
    if not isinstance(plan, Loop):
        yield from (join for child in plan.children for join in _joins(child))
    if isinstance(plan, Join):
        yield plan


def _rewrite(plan: Plan) -> Plan:
    if isinstance(plan, Loop):
        return plan
    rewritten = replace_children(plan, tuple(map(_rewrite, plan.children)))
    if isinstance(rewritten, Join) and isinstance(plan, Join) and (keys := _keys_of(plan)):
        return replace(rewritten, right=Aggregate(rewritten.right, keys, ()))
    return rewritten


def _keys_of(node: Join) -> tuple[Column, ...]:
    """Return the columns of its right side that a test compares; () if it needs no state, or cannot have one.

    With a condition that is no equality, there might be as many keys as rows.
    """
    if node.kind not in TESTS or len(node.keys) != len(node.conjuncts) or not _is_joined(node.right):
        return ()
    compared = {name for _, other, _ in node.keys for name in other.columns}
    keys = tuple(column for column in node.right.columns if column.name in compared)
    return () if any(map(_is_unkeyed, keys)) else keys


def _is_joined(plan: Plan) -> bool:
    """Return whether the rows of a plan take a join that is not below a stage."""
    if isinstance(plan, Aggregate | Loop):
        return False
    return isinstance(plan, Join) or any(map(_is_joined, plan.children))


def _is_unkeyed(column: Column) -> bool:
    """Return whether no state can be keyed by values of a column's type."""
    return column.type == "void" or is_unordered(column.type) or first_unstored_type(column.type) is not None
