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
from deltafold.dataflow.pruning.scans import read_whole_files, restrict_scans
from deltafold.lake.log.file_skipping import SKIPPABLE
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
    known = [(i, lowering.expression(key)) for i, key in enumerate(keys) if SKIPPABLE.fullmatch(key.type)]
    return [(i, lowering.over(frame, key)) for i, key in known]


def find_key_ranges(
    lowering: Lowering,
    frame: DataFrame,
    keys: Sequence[Scalar],
    row: Mapping[str, Any],
    narrowed: Tuning | None,
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
