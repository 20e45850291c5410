"""Find the columns that a Catalyst plan reads."""

from __future__ import annotations

from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

# operators that read no column but those of their expressions
EXPLICIT = {
    "Project", "Filter", "Generate", "Expand", "Join", "Aggregate", "Window", "Sort", "GlobalLimit", "LocalLimit",
    "Offset", "LogicalRDD", "LocalRelation", "OneRowRelation", "View", "SubqueryAlias", "ResolvedHint",
}  # fmt: skip


def used_attributes(root: J) -> set[int]:
    """Return the identities of all attributes that some operator of a plan reads, or that its result has."""
    used = {a.exprId().id() for a in catalyst.sequence(root.output())}
    pending = [root]
    while pending:
        node = pending.pop()
        used |= {a.exprId().id() for a in catalyst.sequence(node.references().toSeq())}
        children = catalyst.sequence(node.children())
        if catalyst.kind(node) not in EXPLICIT:
            # it reads by position, or is unknown: it may read any column of its inputs
            used |= {a.exprId().id() for child in children for a in catalyst.sequence(child.output())}
        pending += children
    return used
