"""Recognise rows that the driver holds in a Catalyst plan, and put other rows in their place."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from deltafold.spark.catalyst import J, analysed_plan, catalyst, jvm, kind, none, sequence, vector


def is_local(rows: DataFrame) -> bool:
    """Return whether a frame is rows that the driver holds."""
    return kind(analysed_plan(rows)) == "LocalRelation"


def with_local_rows(spark: SparkSession, plan: J, held: J) -> Callable[[J], J] | None:
    """Return what puts other rows in place of those of a LocalRelation wherever a plan reads them; None if nowhere."""
    if kind(plan) == "LocalRelation":
        if not identical(spark, plan.data(), held.data()):
            return None
        output, local = plan.output(), catalyst(spark).plans.logical.LocalRelation
        return lambda data: local(output, data, False, none(spark))
    children = sequence(plan.children())
    made = [with_local_rows(spark, child, held) for child in children]
    if not any(made):
        return None
    pairs = list(zip(children, made, strict=True))
    return lambda data: plan.withNewChildren(vector(spark, [make(data) if make else child for child, make in pairs]))


def identical(spark: SparkSession, one: J, other: J) -> bool:
    """Return whether two Java objects are the same, not only equal."""
    known = jvm(spark).java.util.IdentityHashMap()
    known.put(one, True)
    return bool(known.containsKey(other))
