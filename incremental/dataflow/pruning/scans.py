"""Find the scan from which a column of a Catalyst plan comes, and read fewer of its files."""

from __future__ import annotations

from collections.abc import Sequence

from incremental.dataflow.lowering import Lowering
from incremental.dataflow.pruning.intervals import Interval
from incremental.lake.log.file_skipping import skip_files
from incremental.spark import catalyst
from incremental.spark.catalyst import J

FROM_THE_LEFT = ("LeftSemi", "LeftAnti", "LeftOuter")  # joins each of whose rows is one of the left side


def restrict_scan(lowering: Lowering, plan: J, key: J, intervals: Sequence[Interval], type_: str) -> J:
    """Return a plan that may lack rows whose key is in none of the intervals, by skipping files of the key's scan.

    key: an attribute that the plan returns, else nothing is skipped. The search ends at an operator whose other rows
    could depend on the missing ones: a window, a limit, the side of an outer join that is filled with NULLs.
    """
    if not plan.resolved():
        plan = catalyst.analysed_plan(catalyst.frame(lowering.spark, plan))
    if catalyst.kind(plan) == "LogicalRelation":
        return skip_files(lowering.spark, plan, str(key.name()), intervals, type_)
    position, key = _origin(lowering, plan, key)
    if position is None or catalyst.kind(key) != "AttributeReference":
        return plan
    children = catalyst.sequence(plan.children())
    restricted = restrict_scan(lowering, children[position], key, intervals, type_)
    if restricted is children[position]:
        return plan
    children[position] = restricted
    return plan.withNewChildren(catalyst.vector(lowering.spark, children))


def _origin(lowering: Lowering, plan: J, key: J) -> tuple[int | None, J]:
    """Return the child of a node whose rows can be restricted by a key of the node, and the key in that child."""
    match catalyst.kind(plan):
        case "Project":
            helper = catalyst.module(lowering.catalyst.optimizer, "PushPredicateThroughNonJoin")
            return 0, helper.replaceAlias(key, helper.getAliasMap(plan))
        case "Filter" | "ResolvedHint":
            return 0, key
        case "Join":
            kind, left = str(plan.joinType()), bool(plan.left().outputSet().contains(key))
            if left:
                return (0 if kind in ("Inner", *FROM_THE_LEFT) else None), key
            return (1 if kind == "Inner" else None), key
        case _:
            return None, key
