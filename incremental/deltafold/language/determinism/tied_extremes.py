"""Find the calls of max_by (min_by) that take their values from the same row of a group.

Spark's calls with the same order take the same row; which of several rows with an equal order, depends on the order of
the rows. If each call chose by its own value, `max_by(a, day), max_by(b, day)` would combine values of different rows.
So one row is chosen for all of them: by their values, from left to right.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from deltafold.language.determinism.row_order import different_values
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

EXTREMES_BY = {"MaxBy", "MinBy", "MaxMinByK"}


class TiedExtremes:
    """The calls of max_by and min_by of one group-by; outputs: its keys and aggregates."""

    def __init__(self, spark: SparkSession, outputs: Sequence[J]) -> None:
        self._spark = spark
        parts = [part for output in outputs for part in catalyst.subexpressions(output)]
        calls = [part for part in parts if catalyst.kind(part) == "AggregateExpression"]
        calls = [call for call in calls if catalyst.kind(call.aggregateFunction()) in EXTREMES_BY]
        self._calls = [(call, self._without_value(call)) for call in calls] if len(calls) > 1 else []

    def values(self, call: J) -> list[J]:
        """Return the values that are taken from one row for a call and all others with its order and FILTER."""
        rest = next((rest for each, rest in self._calls if each.equals(call)), None)
        if rest is None:
            return []
        return different_values([each for each, other in self._calls if other.semanticEquals(rest)])

    def _without_value(self, call: J) -> J:
        """Return a call with a constant in place of its value."""
        _, *rest = catalyst.sequence(call.aggregateFunction().children())
        constant = catalyst.module(catalyst.catalyst(self._spark).expressions, "Literal").TrueLiteral()
        function = call.aggregateFunction().withNewChildren(catalyst.vector(self._spark, [constant, *rest]))
        expression = catalyst.catalyst(self._spark).expressions.aggregate.AggregateExpression
        return expression(function, call.mode(), call.isDistinct(), call.filter(), call.resultId())
