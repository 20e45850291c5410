"""Runtime room: how far a small change reaches. In: its rows, held, and its keys. Out: their number and ranges.

The ranges become literal conditions on what the change meets, so that Delta skips files: Spark's own optimiser does not
do this across a join.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from incremental import catalyst
from incremental.algebra.plan import Scalar
from incremental.catalyst import J
from incremental.runtime.lowering import Lowering, Relation

SKIPPABLE = re.compile(r"tinyint|smallint|int|bigint|date|decimal\(.*\)")  # types whose text is a literal anywhere
BROADCAST_ROWS = 50_000  # fewer rows are sent to where the other side is
WORTH_BYTES = 32 << 20  # what is smaller is read whole: finding out which part of it matters would take longer
SMALL_BYTES = 256 << 20  # a change that Spark expects to be larger is not computed ahead


@dataclass(frozen=True)
class Extent:
    """The number of rows, and the least and greatest value of each key as text (None: unknown)."""

    rows: int
    ranges: tuple[tuple[str, str] | None, ...]

    @property
    def small(self) -> bool:
        """Whether the rows can be sent to every task."""
        return self.rows <= BROADCAST_ROWS


def expected_bytes(frame: DataFrame) -> int:
    """What Spark expects a frame's rows to take."""
    return int(str(catalyst.optimised(frame).stats().sizeInBytes()))


def extent(lowering: Lowering, frame: DataFrame, keys: Sequence[Scalar], nulls_match: bool = False) -> Extent:
    """One job over held rows whose columns have the names of the plan's; nulls_match: a NULL key equals another."""
    known = [(i, lowering.expression(key)) for i, key in enumerate(keys) if SKIPPABLE.fullmatch(key.type)]
    chosen = [(i, lowering.over(frame, key)) for i, key in known]
    found = [end(key).cast("string").alias(f"{end.__name__}_{i}") for i, key in chosen for end in (F.min, F.max)]
    found += [F.count(key).alias(f"known_{i}") for i, key in chosen]
    row = frame.agg(F.count(F.lit(1)).alias("rows"), *found).first()
    assert row is not None
    ranges: list[tuple[str, str] | None] = [None] * len(keys)
    for i, _ in chosen:
        if row[f"known_{i}"] and not (nulls_match and row[f"known_{i}"] < row["rows"]):
            ranges[i] = (row[f"min_{i}"], row[f"max_{i}"])
    return Extent(row["rows"], tuple(ranges))


def within(lowering: Lowering, relation: Relation, keys: Sequence[Scalar], found: Extent) -> Relation:
    """The rows of a relation whose keys lie in the ranges of the keys that they are to equal."""
    plan = relation.plan
    expressions, logical = lowering.catalyst.expressions, lowering.catalyst.plans.logical
    for key, ends in zip(keys, found.ranges, strict=True):
        if ends is None or not SKIPPABLE.fullmatch(key.type):
            continue
        low, high = (catalyst.parsed(lowering.spark, f"CAST('{text}' AS {key.type})") for text in ends)
        value = lowering.expression(key)
        bounds = (expressions.GreaterThanOrEqual(value, low), expressions.LessThanOrEqual(value, high))
        plan = logical.Filter(expressions.And(*bounds), plan)
    return Relation(plan, relation.weighted)


def hinted(lowering: Lowering, plan: J) -> J:
    """A plan that Spark is to broadcast."""
    logical = lowering.catalyst.plans.logical
    strategy = catalyst.some(lowering.spark, catalyst.module(logical, "BROADCAST"))
    return logical.ResolvedHint(plan, logical.HintInfo(strategy))
