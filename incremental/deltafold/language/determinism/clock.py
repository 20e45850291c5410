"""Bind the clock that a query reads to one time, so that its answer follows from its sources and that time (D-234).

Spark replaces `current_date()` and its like when it optimises a query, by the time at which it does so. Before that,
they are expressions of the plan, here replaced by the literals that Spark would have put there at a given time.
"""

from __future__ import annotations

import datetime

from pyspark.sql import DataFrame, SparkSession

from deltafold.language.translation.scalars import BOUND_TO_CLOCK
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

MICROSECOND = datetime.timedelta(microseconds=1)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def bind_clock(spark: SparkSession, frame: DataFrame, time: str) -> DataFrame:
    """Return a query in which each expression that is bound to the clock has its value at a time (ISO 8601)."""
    plan = catalyst.analysed_plan(frame)
    micros = (datetime.datetime.fromisoformat(time) - EPOCH) // MICROSECOND
    literals = catalyst.module(catalyst.jvm(spark).scala.collection.immutable, "Map").empty()
    for node in catalyst.nodes(plan):
        for expression in catalyst.sequence(node.expressions()):
            for part in catalyst.subexpressions(expression):
                if catalyst.kind(part) in BOUND_TO_CLOCK:
                    literals = literals.updated(part, _literal_at(spark, part, micros))
    if literals.isEmpty():
        return frame
    # a Map is a partial function, which Spark expects
    return catalyst.frame(spark, plan.transformAllExpressionsWithSubqueries(literals))


def _literal_at(spark: SparkSession, expression: J, micros: int) -> J:
    """Return the value of an expression in microseconds since 1970 in UTC, in its time zone and of its type."""
    times = catalyst.module(catalyst.catalyst(spark).util, "DateTimeUtils")
    value = micros
    if catalyst.kind(expression) == "CurrentDate":
        value = times.microsToDays(micros, expression.zoneId())
    if catalyst.kind(expression) == "LocalTimestamp":
        value = times.convertTz(micros, catalyst.jvm(spark).java.time.ZoneOffset.UTC, expression.zoneId())
    return catalyst.catalyst(spark).expressions.Literal(value, expression.dataType())
