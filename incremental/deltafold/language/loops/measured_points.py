"""Verify loops to a tolerance: take their stored answers as they are, and measure what one batch step changes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from pyspark.sql import DataFrame

from deltafold.algebra.results.report import MeasuredPoint
from deltafold.language.loops.definition import Definition, compute_once, distance
from deltafold.language.loops.options import LoopOptions, StepFunction


class MeasuredPoints:
    """Evaluates the loops of a query, in the order of their calls, over the stored answers of some of them.

    stored: the answer of each loop by the number of its call; measured: what was found of each that has a tolerance.
    A loop that the step of another one calls is evaluated by its definition.
    """

    def __init__(self, stored: Mapping[int, DataFrame]) -> None:
        self._stored, self._calls, self._depth = stored, count(), 0
        self.measured: list[MeasuredPoint] = []

    def evaluate(self, start: DataFrame, step: StepFunction, options: LoopOptions) -> DataFrame:
        """Return the stored answer of a loop to a tolerance, and the batch answer of any other."""
        stored = None if self._depth else self._stored.get(next(self._calls))
        self._depth += 1
        try:
            if stored is None or options.tolerance is None:
                return Definition().evaluate(start, step, options)
            return self._measure(stored.toDF(*start.columns), step, options)
        finally:
            self._depth -= 1

    def _measure(self, point: DataFrame, step: StepFunction, options: LoopOptions) -> DataFrame:
        assert options.tolerance is not None
        point = compute_once(point)
        moved = compute_once(step(point).toDF(*point.columns))
        tolerance = options.tolerance
        residual, unmatched = distance(point, moved, options.keys, tolerance.norm)
        shrinks = None if tolerance.contraction is None else 1 - tolerance.contraction
        self.measured.append(MeasuredPoint(residual, tolerance.allowed, shrinks, unmatched))
        return point
