"""Evaluate k-means from the start, or from stored references (D-109).

The latter reads the change of the points and the few old points that it may affect:

    sums of a step  =  stored sums  +  the change, by the references  -  near points, by the references
                                                                      +  near points, by the centers of this step

No other point can have another nearest center than its reference (near_points.py). Centers follow from sums, which are
exact, so the answer is that of an evaluation over all points, whatever the references are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.errors import StateError
from deltafold.algebra.loops import POSITION, STEP
from deltafold.dataflow.loops.clusters.assignment import SLACK, STRANGE
from deltafold.dataflow.loops.clusters.cluster_sums import (
    Centers,
    Clustered,
    ClusterSums,
    as_numbers,
    can_be_references,
)
from deltafold.dataflow.loops.clusters.near_points import NearPoints
from deltafold.dataflow.loops.rounds import Round
from deltafold.dataflow.partial_aggregate import TOUCHED
from deltafold.spark.checkpoint import LocalPlan, in_one_task, is_local


@dataclass(frozen=True)
class ByReferences:
    """One evaluation.

    near: gives the near points, from the references and the change of the points as logged; None if no log is kept.
    """

    sums: ClusterSums
    near: Callable[[DataFrame, DataFrame | None], NearPoints] | None

    def run(self, references: DataFrame, change: DataFrame | None, start: DataFrame) -> Clustered | None:
        """Return the evaluation; None if all points have to be read.

        references: as stored; change: of the points, None if there is none; start: as it is now, by number.
        """
        touched = 0
        if change is not None:
            sums = self.sums.assignment.sum_points(self.sums.assignment.assign(change, references))
            references, measured = self.sums.measure(self.sums.add(references, sums))
            if int(measured[STRANGE]) or measured["recompute"]:
                return None
            if int(measured["least"]) < 0:
                raise StateError(
                    f"the table of {self.sums.table.loop.name} does not match its sources: a cluster would have a "
                    "negative number of points. Rebuild the view."
                )
            touched = int(measured[TOUCHED])
        near = None if self.near is None else self.near(references, change)
        return _Walk(self.sums, references, near, touched).run(start)


class _Walk:
    """The steps of one evaluation, in order; references: with the sums of the points as they are now."""

    def __init__(self, sums: ClusterSums, references: DataFrame, near: NearPoints | None, touched: int) -> None:
        self._sums, self._references, self._near, self._touched = sums, references, near, touched
        self._limit, self._then = sums.table.loop.limit, sums.coordinates(references)
        self._margins, self._taking_back = sums.margins(references), TakingBack(sums=sums, references=references)
        coordinates = {column for _, column in sums.table.clusters.coordinates}
        self._decided = coordinates == {*sums.table.loop.columns}  # else others may decide between equally near ones

    def run(self, start: DataFrame) -> Clustered | None:
        expected = self._sums.next_centers(self._references)  # of all steps, if no point is near
        now = {**self._sums.coordinates(expected), **self._sums.coordinates(start)}
        needs, near = [self._need(step, now) for step in range(self._limit)], dict[int, float]()
        centers = start
        for step in range(self._limit):
            needs[step] = need = self._need(step, now)
            if math.isinf(need):
                return None
            if need < 0 or need < self._margins.get(step, math.inf):
                centers = expected.where(f"{STEP.name} = {step + 1}")
                continue
            moved = self._take_back(step, needs, centers)
            if moved is None:
                return None
            centers, near[step] = moved, need
            now[step + 1] = self._sums.coordinates(centers).get(step + 1, {})
        return self._conclude(start, centers, near)

    def _need(self, step: int, now: Centers) -> float:
        """Return the greatest margin of points that may have another nearest center; infinity if all may have.

        -1 if none has: the centers are the references.
        """
        then, here = self._then.get(step, {}), now.get(step, {})
        if then.keys() != here.keys() or not can_be_references(here.values()):
            return math.inf
        moved = max(math.dist(as_numbers(then[number]), as_numbers(here[number])) for number in here)
        return -1.0 if self._decided and not moved else moved * SLACK

    def _take_back(self, step: int, needs: list[float], centers: DataFrame) -> DataFrame | None:
        """Return the centers after a step with near points; None if all points have to be read."""
        margins = [need if math.isfinite(need) else needs[step] for need in needs]
        points = None if self._near is None else self._near.of_step(step, margins)
        return None if points is None else self._taking_back.run(points, centers)

    def _conclude(self, start: DataFrame, centers: DataFrame, needs: dict[int, float]) -> Clustered:
        counts = {} if self._near is None else self._near.count_old(needs)
        rounds = tuple(Round("points", counts.get(step, 0)) for step in range(self._limit))
        read = 0 if self._near is None else self._near.read
        return Clustered(
            references=self._references, start=start, answer=centers, rounds=rounds, touched=self._touched + read
        )


Computed = tuple[DataFrame, Mapping[str, Any]]


@dataclass(kw_only=True)
class TakingBack:
    """Takes near points from the sums of their references to those of the centers of a step, by a plan built once.

    Steps differ in the rows of their centers alone, so the plan of one step is that of another with other rows in it.
    That saves building it, which takes longer than running it.

    references: with the sums of the points as they are now.
    """

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
            self._sums = RepeatedPlan(
                sums=self.sums, build=lambda rows: self._add(points, rows), measures=self.sums.measures
            )
            self._centers = RepeatedPlan(
                sums=self.sums, build=self.sums.next_centers, measures=[F.count(F.lit(1)).alias("rows")]
            )
        assert self._sums is not None and self._centers is not None
        added, measured = self._sums.run(centers)
        return None if measured["recompute"] else self._centers.run(added)[0]

    def _add(self, points: DataFrame, centers: DataFrame) -> DataFrame:
        """Return the references of the step of the centers, with sums by these."""
        assignment, keys = self.sums.assignment, [STEP.name, POSITION.name]
        moved = assignment.take_back(points.coalesce(1), assignment.list_moved(centers, self.references))
        references, own = in_one_task(self.references, centers.select(*keys))
        return self.sums.add(references.join(own, keys, "left_semi"), assignment.sum_points(moved))


@dataclass(kw_only=True)
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
            return self.sums.checkpoints.measure(self.build(rows), self.measures, small=True)
        if self._again is not None and rows.schema == self._form and (computed := self._again(rows)) is not None:
            return computed
        plan = LocalPlan(self.build(rows).coalesce(1), self.measures, self.sums.most)
        self._again, self._form = plan.over(rows), rows.schema
        return plan.run() or self.sums.checkpoints.measure(self.build(rows), self.measures, small=True)


def from_start(sums: ClusterSums, start: DataFrame, points: DataFrame) -> Clustered | None:
    """Return the evaluation of all steps; None if some centers cannot be references.

    points: read once a step.
    """
    parts, rounds, touched = list[DataFrame](), list[Round](), 0
    centers = first = sums.compute(sums.number_start(start))
    for step in range(sums.table.loop.limit):
        if not can_be_references(sums.coordinates(centers).get(step, {}).values()):
            return None
        added = sums.assignment.sum_points(sums.assignment.assign(points, centers))
        references, measured = sums.measure(sums.add(sums.drop_points(centers), added))
        if int(measured[STRANGE]):
            return None
        rounds.append(Round("steps", int(measured["centers"])))
        touched = max(touched, int(measured[TOUCHED]))
        parts.append(references)
        centers = sums.next_centers(references)
    return Clustered(
        references=reduce(DataFrame.unionByName, parts),
        start=first,
        answer=centers,
        rounds=tuple(rounds),
        touched=touched,
    )
