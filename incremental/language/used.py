"""Language room: which columns a query reads. In: a Catalyst plan. Out: the identities of its used attributes."""

from __future__ import annotations

from incremental.spark import catalyst
from incremental.spark.catalyst import J

PASSING = {
    "Project", "Filter", "Generate", "Expand", "Join", "Aggregate", "Window", "Sort", "GlobalLimit", "LocalLimit",
    "Offset", "LogicalRDD", "LocalRelation", "OneRowRelation", "View", "SubqueryAlias", "ResolvedHint",
}  # fmt: skip


def used_attributes(root: J) -> set[int]:
    """The identities of all attributes that some operator of a plan reads, or that its result has."""
    used = {a.exprId().id() for a in catalyst.sequence(root.output())}
    pending = [root]
    while pending:
        node = pending.pop()
        used |= {a.exprId().id() for a in catalyst.sequence(node.references().toSeq())}
        children = catalyst.sequence(node.children())
        if catalyst.kind(node) not in PASSING:
            # by position, or unknown to us: it may read anything its inputs have
            used |= {a.exprId().id() for child in children for a in catalyst.sequence(child.output())}
        pending += children
    return used
