"""How far a small change reaches. In: its rows, held, and its keys. Out: their number and intervals.

The intervals become literal conditions on what the change meets, so that Delta skips files: Spark's own optimiser does
not do this across a join.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from incremental.algebra.plan import Scalar
from incremental.dataflow.intervals import Interval, Range, narrowed, range_of
from incremental.dataflow.lowering import Lowering, Relation
from incremental.spark import catalyst
from incremental.spark.catalyst import J

SKIPPABLE = re.compile(r"tinyint|smallint|int|bigint|date|decimal\(.*\)")  # types whose text is a literal anywhere
BROADCAST_ROWS = 50_000  # fewer rows are sent to where the other side is
WORTH_BYTES = 32 << 20  # what is smaller is read whole: finding out which part of it matters would take longer
SMALL_BYTES = 256 << 20  # a change that Spark expects to be larger is not computed ahead


@dataclass(frozen=True)
class Extent:
    """The number of rows, and the intervals in which the values of each key lie (None: unknown)."""

    rows: int
    ranges: tuple[tuple[Interval, ...] | None, ...]

    @property
    def small(self) -> bool:
        """Whether the rows can be sent to every task."""
        return self.rows <= BROADCAST_ROWS


def expected_bytes(frame: DataFrame) -> int:
    """What Spark expects a frame's rows to take."""
    return int(str(catalyst.optimised(frame).stats().sizeInBytes()))


def extent(
    lowering: Lowering, frame: DataFrame, keys: Sequence[Scalar], worth: bool, nulls_match: bool = False
) -> Extent:
    """One job over held rows whose columns have the names of the plan's, or two.

    worth: what they meet is so large that a second job pays, to find more than one interval; nulls_match: a NULL key
    equals another.
    """
    known = [(i, lowering.expression(key)) for i, key in enumerate(keys) if SKIPPABLE.fullmatch(key.type)]
    chosen = [(i, lowering.over(frame, key)) for i, key in known]
    found = [end(key).cast("string").alias(f"{end.__name__}_{i}") for i, key in chosen for end in (F.min, F.max)]
    found += [F.count(key).alias(f"known_{i}") for i, key in chosen]
    row = frame.agg(F.count(F.lit(1)).alias("rows"), *found).first()
    assert row is not None
    ranges: list[tuple[Interval, ...] | None] = [None] * len(keys)
    wide: dict[int, Range] = {}
    for i, key in chosen:
        if row[f"known_{i}"] and not (nulls_match and row[f"known_{i}"] < row["rows"]):
            least, greatest = row[f"min_{i}"], row[f"max_{i}"]
            ranges[i] = ((least, greatest),)
            if worth and (found_range := range_of(key, keys[i].type, least, greatest)):
                wide[i] = found_range
    if wide:
        for i, intervals in zip(wide, narrowed(frame, list(wide.values())), strict=True):
            ranges[i] = intervals
    return Extent(row["rows"], tuple(ranges))


def within(lowering: Lowering, relation: Relation, keys: Sequence[Scalar], found: Extent) -> Relation:
    """The rows of a relation whose keys lie in the intervals of the keys that they are to equal."""
    plan = relation.plan
    for key, intervals in zip(keys, found.ranges, strict=True):
        if intervals is not None and SKIPPABLE.fullmatch(key.type):
            conditions = [between(lowering, key, interval) for interval in intervals]
            condition = reduce(lowering.catalyst.expressions.Or, conditions)
            plan = lowering.catalyst.plans.logical.Filter(condition, plan)
    return Relation(plan, relation.weighted)


def between(lowering: Lowering, key: Scalar, interval: Interval) -> J:
    """Whether a key lies in an interval."""
    expressions, value = lowering.catalyst.expressions, lowering.expression(key)
    low, high = (catalyst.parsed(lowering.spark, f"CAST('{text}' AS {key.type})") for text in interval)
    return expressions.And(expressions.GreaterThanOrEqual(value, low), expressions.LessThanOrEqual(value, high))


def hinted(lowering: Lowering, plan: J) -> J:
    """A plan that Spark is to broadcast."""
    logical = lowering.catalyst.plans.logical
    strategy = catalyst.some(lowering.spark, catalyst.module(logical, "BROADCAST"))
    return logical.ResolvedHint(plan, logical.HintInfo(strategy))
