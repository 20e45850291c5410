"""Restrict a relation by the ranges of a small change's keys, as literal conditions.

Delta skips files by such conditions; Spark's own optimiser does not derive them across a join.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.plan import Reference, Scalar
from deltafold.algebra.tuning import Tuning
from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.dataflow.pruning.intervals import Interval, Range, align, are_dense, find_intervals, range_of
from deltafold.lake.log.file_skipping import SKIPPABLE, skip_files
from deltafold.lake.log.whole_files import read_whole
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J


@dataclass(frozen=True)
class KeyRanges:
    """The number of rows, and the intervals that contain the values of each key (None: unknown)."""

    rows: int
    intervals: tuple[tuple[Interval, ...] | None, ...]


def range_measures(lowering: Lowering, frame: DataFrame, keys: Sequence[Scalar]) -> list[Column]:
    """Return the aggregates over a frame that give the ranges of its keys; its columns have the plan's names."""
    chosen = skippable(lowering, frame, keys)
    ends = [end(key).cast("string").alias(f"{end.__name__}_{i}") for i, key in chosen for end in (F.min, F.max)]
    return [F.count(F.lit(1)).alias("rows"), *ends, *(F.count(key).alias(f"known_{i}") for i, key in chosen)]


def skippable(lowering: Lowering, frame: DataFrame, keys: Sequence[Scalar]) -> list[tuple[int, Column]]:
    """Return the keys by whose ranges Delta can skip files, with their positions."""
    measured = [(i, lowering.expression(key)) for i, key in enumerate(keys) if SKIPPABLE.fullmatch(key.type)]
    return [(i, lowering.over(frame, key)) for i, key in measured]


def find_key_ranges(
    lowering: Lowering,
    frame: DataFrame,
    keys: Sequence[Scalar],
    row: Mapping[str, Any],
    narrowed: Tuning | None,
    *,
    nulls_match: bool = False,
) -> KeyRanges:
    """Find the ranges of the keys of computed rows.

    row: the values of their measures. narrowed: the joined relation is large enough for a Spark job that finds
    several intervals of a key; None for one interval. nulls_match: a NULL key equals another.
    """
    chosen = skippable(lowering, frame, keys)
    intervals: list[tuple[Interval, ...] | None] = [None] * len(keys)
    wide: dict[int, Range] = {}
    for i, key in chosen:
        if row[f"known_{i}"] and not (nulls_match and row[f"known_{i}"] < row["rows"]):
            least, greatest = row[f"min_{i}"], row[f"max_{i}"]
            intervals[i] = ((least, greatest),)
            if narrowed and (found_range := range_of(key, keys[i].type, least, greatest, narrowed.range_slices)):
                wide[i] = found_range
    if wide:
        assert narrowed is not None
        for i, several in zip(wide, find_intervals(frame, list(wide.values()), narrowed.range_intervals), strict=True):
            intervals[i] = several
    return KeyRanges(row["rows"], tuple(intervals))


def restrict_to_ranges(lowering: Lowering, relation: Relation, keys: Sequence[Scalar], ranges: KeyRanges) -> Relation:
    """Filter a relation to the rows whose keys are within the ranges of the keys that they are compared with.

    Files are skipped by each interval; rows are too, unless most of the range lies within the intervals.
    """
    plan, conditions, dense = relation.plan, list[J](), True
    for key, intervals in zip(keys, ranges.intervals, strict=True):
        if intervals is not None and SKIPPABLE.fullmatch(key.type):
            if isinstance(key, Reference):
                plan = restrict_scans(lowering, plan, lowering.attribute(key.column), intervals, key.type)
            if are_dense(intervals, key.type):  # to compare each row with all of them takes longer than what they spare
                intervals = [align((intervals[0][0], intervals[-1][1]), key.type)]
            else:
                dense = False
            any_of = [between(lowering, key, interval) for interval in intervals]
            conditions.append(reduce(lowering.catalyst.expressions.Or, any_of))
    if dense and conditions:
        plan = read_whole_files(lowering, plan)
    for condition in conditions:
        plan = lowering.catalyst.plans.logical.Filter(condition, plan)
    return Relation(plan, relation.weighted)


def between(lowering: Lowering, key: Scalar, interval: Interval) -> J:
    """Build the condition that a key is within an interval."""
    expressions, value = lowering.catalyst.expressions, lowering.expression(key)
    low, high = (catalyst.parse_expression(lowering.spark, f"CAST('{text}' AS {key.type})") for text in interval)
    return expressions.And(expressions.GreaterThanOrEqual(value, low), expressions.LessThanOrEqual(value, high))


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
    below = _conditions_below(lowering, plan, conditions)
    origins = [(i, each) for i, each in _origins(lowering, plan, key) if catalyst.kind(each) == "AttributeReference"]
    children = catalyst.sequence(plan.children()) if origins else []
    fewer = {i: _restrict(lowering, children[i], each, intervals, type_, below) for i, each in origins}
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
            return [helper.replaceAlias(condition, aliases) for condition in conditions]
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
    keys = catalyst.option(catalyst.module(lowering.catalyst.planning, "ExtractEquiJoinKeys").unapply(join))
    if keys is None:
        return []
    mine, others = (keys._2(), keys._3()) if side == 0 else (keys._3(), keys._2())
    return [(1 - side, others.apply(i)) for i, one in enumerate(catalyst.sequence(mine)) if one.semanticEquals(key)]
