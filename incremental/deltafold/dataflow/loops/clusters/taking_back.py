"""Take near points from the sums of their references to those of the centers of a step, by a plan that is built once.

Steps differ in the rows of their centers alone, so the plan of one step is that of another with other rows in it. That
saves building it, which takes longer than running it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.loops import POSITION, STEP
from deltafold.dataflow.loops.clusters.cluster_sums import ClusterSums
from deltafold.spark.checkpoint import LocalPlan, in_one_task
from deltafold.spark.local_rows import is_local

Computed = tuple[DataFrame, Mapping[str, Any]]


@dataclass
class TakingBack:
    """The steps of one evaluation; references: with the sums of the points as they are now."""

    sums: ClusterSums
    references: DataFrame
    _centers: RepeatedPlan | None = None
    _sums: RepeatedPlan | None = None
    _points: DataFrame | None = None

    def run(self, points: DataFrame, centers: DataFrame) -> DataFrame | None:
        """Return the centers after a step; None if a sum has to be computed from all its points.

        points: logged ones, with all that may not keep their reference; centers: of the step.
        """
        if points is not self._points:
            self._points = points
            self._sums = RepeatedPlan(self.sums, lambda rows: self._add(points, rows), self.sums.measures)
            self._centers = RepeatedPlan(self.sums, self.sums.next_centers, [F.count(F.lit(1)).alias("rows")])
        assert self._sums is not None and self._centers is not None
        added, found = self._sums.run(centers)
        return None if found["recompute"] else self._centers.run(added)[0]

    def _add(self, points: DataFrame, centers: DataFrame) -> DataFrame:
        """Return the references of the step of the centers, with sums by these."""
        assignment, keys = self.sums.assignment, [STEP.name, POSITION.name]
        moved = assignment.take_back(points.coalesce(1), assignment.list_moved(centers, self.references))
        references, own = in_one_task(self.references, centers.select(*keys))
        return self.sums.add(references.join(own, keys, "left_semi"), assignment.sum_points(moved))


@dataclass
class RepeatedPlan:
    """A plan over few rows, built for the first ones; measures: aggregates over its rows."""

    sums: ClusterSums
    build: Callable[[DataFrame], DataFrame]
    measures: Sequence[Column]
    _again: Callable[[DataFrame], Computed | None] | None = None
    _form: object = field(default=None)

    def run(self, rows: DataFrame) -> Computed:
        """Return the rows of the plan and the aggregates, computed."""
        rows = rows if is_local(rows) else self.sums.compute(rows)
        if not is_local(rows):
            return self.sums.checkpoints.measure(self.build(rows), self.measures, True)
        if self._again is not None and rows.schema == self._form and (found := self._again(rows)) is not None:
            return found
        plan = LocalPlan(self.build(rows).coalesce(1), self.measures, self.sums.most)
        self._again, self._form = plan.over(rows), rows.schema
        return plan.run() or self.sums.checkpoints.measure(self.build(rows), self.measures, True)
