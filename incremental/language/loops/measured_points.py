"""Verify loops to a tolerance: take their stored answers as they are, and measure what one batch step changes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from incremental.algebra.results.report import MeasuredPoint
from incremental.algebra.sqltext import quoted
from incremental.language.loops.definition import Definition, computed, distance
from incremental.language.loops.options import LoopOptions, Step


class MeasuredPoints:
    """Evaluates the loops of a query, in the order of their calls, over the stored answers of some of them.

    stored: the answer of each loop by the number of its call; measured: what was found of each that has a tolerance.
    A loop that the step of another one calls is evaluated by its definition.
    """

    def __init__(self, stored: Mapping[int, DataFrame]) -> None:
        self._stored, self._calls, self._depth = stored, count(), 0
        self.measured: list[MeasuredPoint] = []

    def evaluate(self, start: DataFrame, step: Step, options: LoopOptions) -> DataFrame:
        """Return the stored answer of a loop to a tolerance, and the batch answer of any other."""
        number = None if self._depth else next(self._calls)
        self._depth += 1
        try:
            if number not in self._stored or options.tolerance is None:
                return Definition().evaluate(start, step, options)
            return self._measured(self._stored[number].toDF(*start.columns), step, options)
        finally:
            self._depth -= 1

    def _measured(self, point: DataFrame, step: Step, options: LoopOptions) -> DataFrame:
        assert options.tolerance is not None
        point = computed(point)
        moved = computed(step(point).toDF(*point.columns))
        tolerance, keys = options.tolerance, [quoted(key) for key in options.keys]
        sides = [frame.select(*keys, F.lit(sign).alias("side")) for frame, sign in ((point, 1), (moved, -1))]
        summed = sides[0].unionByName(sides[1]).groupBy(*keys).agg(F.sum("side").alias("side"))
        self.measured.append(
            MeasuredPoint(
                distance(point, moved, options.keys, tolerance.norm), tolerance.allowed,
                None if tolerance.contraction is None else 1 - tolerance.contraction,
                summed.where("side <> 0").count(),
            )
        )  # fmt: skip
        return point
