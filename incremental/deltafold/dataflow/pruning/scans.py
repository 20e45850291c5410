"""Find the scans from which a column of a Catalyst plan comes, and read fewer of their files."""

from __future__ import annotations

from collections.abc import Sequence

from deltafold.dataflow.lowering import Lowering
from deltafold.dataflow.pruning.intervals import Interval
from deltafold.lake.log.file_skipping import skip_files
from deltafold.lake.log.whole_files import read_whole
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

Origin = tuple[int, J]
"""A child of a node, and an attribute of it whose values are those of the node's key."""


def restrict_scans(lowering: Lowering, plan: J, key: J, intervals: Sequence[Interval], type_: str) -> J:
    """Return a plan that may lack rows whose key is in none of the intervals, by skipping files of scans.

    key: an attribute that the plan returns. The scans are those whose values it has, and those joined by it. Nothing is
    skipped below an operator whose other rows could depend on the missing ones: a window, a limit, the side of an outer
    join that is filled with NULLs.
    """
    return _restrict(lowering, lowering.resolve(plan), key, intervals, type_, [])


def _restrict(
    lowering: Lowering, plan: J, key: J, intervals: Sequence[Interval], type_: str, conditions: Sequence[J]
) -> J:
    """Restrict the scans below a node; conditions: which the node's rows have to fulfil, too."""
    if catalyst.kind(plan) == "LogicalRelation":
        return skip_files(lowering.spark, plan, str(key.name()), intervals, type_, conditions)
    known = _conditions_below(lowering, plan, conditions)
    origins = [(i, each) for i, each in _origins(lowering, plan, key) if catalyst.kind(each) == "AttributeReference"]
    children = catalyst.sequence(plan.children()) if origins else []
    fewer = {i: _restrict(lowering, children[i], each, intervals, type_, known) for i, each in origins}
    if all(child is children[i] for i, child in fewer.items()):
        return plan
    return plan.withNewChildren(
        catalyst.vector(lowering.spark, [fewer.get(i, each) for i, each in enumerate(children)])
    )


def _conditions_below(lowering: Lowering, plan: J, conditions: Sequence[J]) -> Sequence[J]:
    """Return the conditions that the rows of a node's child have to fulfil, so that the node's rows are kept."""
    match catalyst.kind(plan):
        case "Filter":
            return [*conditions, *catalyst.split_conjuncts(plan.condition())]
        case "ResolvedHint":
            return conditions
        case "Project":
            helper = catalyst.module(lowering.catalyst.optimizer, "PushPredicateThroughNonJoin")
            aliases = helper.getAliasMap(plan)
            return [helper.replaceAlias(each, aliases) for each in conditions]
        case _:
            return []


def read_whole_files(lowering: Lowering, plan: J) -> J:
    """Return a plan whose scans read files as a whole where that is quicker, except those below a condition.

    By a condition of the query, Spark may skip parts of files that were not skipped here.
    """
    match catalyst.kind(plan):
        case "LogicalRelation":
            return read_whole(lowering.spark, plan)
        case "Project" | "Union" | "Join" | "ResolvedHint":
            children = catalyst.sequence(plan.children())
            whole = [read_whole_files(lowering, child) for child in children]
            if all(one is other for one, other in zip(whole, children, strict=True)):
                return plan
            return plan.withNewChildren(catalyst.vector(lowering.spark, whole))
        case _:
            return plan


def _origins(lowering: Lowering, plan: J, key: J) -> list[Origin]:
    """Return the children whose rows can be restricted by a key of a node."""
    match catalyst.kind(plan):
        case "Project":
            helper = catalyst.module(lowering.catalyst.optimizer, "PushPredicateThroughNonJoin")
            return [(0, helper.replaceAlias(key, helper.getAliasMap(plan)))]
        case "Filter" | "ResolvedHint":
            return [(0, key)]
        case "Union":
            position = next(i for i, each in enumerate(catalyst.sequence(plan.output())) if each.semanticEquals(key))
            return [(i, child.output().apply(position)) for i, child in enumerate(catalyst.sequence(plan.children()))]
        case "Join":
            side = 0 if plan.left().outputSet().contains(key) else 1
            if str(plan.joinType()) == "Inner" or (side == 0 and catalyst.keeps_left(plan)):
                return [(side, key), *_equals(lowering, plan, key, side)]
            return []
        case _:
            return []


def _equals(lowering: Lowering, join: J, key: J, side: int) -> list[Origin]:
    """Return the expressions of a join's other side that equal a key of one side in every joined row."""
    found = catalyst.option(catalyst.module(lowering.catalyst.planning, "ExtractEquiJoinKeys").unapply(join))
    if found is None:
        return []
    mine, others = (found._2(), found._3()) if side == 0 else (found._3(), found._2())
    return [(1 - side, others.apply(i)) for i, one in enumerate(catalyst.sequence(mine)) if one.semanticEquals(key)]
