"""Evaluate k-means: from the start over all points, or from the references of the last evaluation over the change.

A reference of a step is the center that a cluster had there when all points were last read. As long as no center of the
step is farther than half the least margin from its reference, each point has the same nearest center as then, so

    sums of the step  =  stored sums  +  the change of the points, by the references

and the next centers follow from the sums, which are exact. If one is farther, all points are read, and the centers of
that evaluation are the next references.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from incremental.algebra.errors import StateError
from incremental.algebra.loops import NUMBER, STEP
from incremental.algebra.plan import Column, Plan
from incremental.algebra.program import BUCKET, ROWS
from incremental.algebra.sqltext import quoted
from incremental.dataflow.loops.assignment import STRANGE, Assignment
from incremental.dataflow.loops.cluster_table import MARGIN, ClusterTable
from incremental.dataflow.loops.rounds import Round
from incremental.dataflow.lowering import Lowering, Relation
from incremental.dataflow.partial_aggregate import TOUCHED, may_recompute
from incremental.spark import catalyst
from incremental.spark.checkpoint import Checkpoints, in_one_task

SLACK = 2.000001  # a center that moves by δ changes the difference of two distances by at most 2 δ, before rounding
Point = tuple[float | None, ...]
Centers = Mapping[int, Mapping[int, Point]]
"""The coordinates of the center of each cluster, by step and number."""


@dataclass(frozen=True)
class Clustered:
    """An evaluation; references: with the sums of all steps, None if there are none; touched: points that it read."""

    references: DataFrame | None
    answer: DataFrame
    rounds: tuple[Round, ...]
    touched: int


@dataclass(frozen=True)
class Clustering:
    """One loop in one epoch; most: the most rows that the driver keeps; block: frees frames."""

    table: ClusterTable
    lowering: Lowering
    most: int
    block: ExitStack

    @property
    def assignment(self) -> Assignment:
        """The expressions over points and centers."""
        return Assignment(self.table, self.lowering)

    def points(self, side: Relation, columns: Collection[Column], small: bool) -> DataFrame:
        """Return the points of rows of the side input, or of their change; columns: under which they are.

        small: whether one task reads them sooner than several that exchange rows.
        """
        clusters = self.table.clusters
        given = self.lowering.union(clusters.side.columns, [(tuple(columns), side)])
        arguments = dict.fromkeys(argument for call in clusters.calls for argument in call.arguments)
        named = [(column, f"__point_{i}") for i, (column, _) in enumerate(clusters.coordinates)]
        named += [(column, column.name) for column in arguments]
        frame = self.lowering.frame(self._evaluate(clusters.points, given), named)
        return frame.coalesce(1) if small else frame

    def number_start(self, start: DataFrame) -> DataFrame:
        """Return the centers of the start, numbered by their order."""
        listed = F.sort_array(F.collect_set(F.struct(*map(quoted, self.table.row))))
        numbered = start.agg(listed.alias("all")).select(F.posexplode("all").alias(NUMBER.name, "center"))
        return numbered.select(F.lit(0).alias(STEP.name), NUMBER.name, "center.*")

    def from_start(self, start: DataFrame, points: DataFrame) -> Clustered | None:
        """Return the evaluation of all steps over all points; None if some centers cannot be references."""
        held, parts = Checkpoints(self.block, self.most).keep(points), list[DataFrame]()
        centers, rounds, touched = self._compute(self.number_start(start)), list[Round](), 0
        for step in range(self.table.loop.limit):
            if not _can_be_references(self._coordinates(centers).get(step, {}).values()):
                return None
            sums = self.assignment.sum_points(self.assignment.assign(held, centers))
            references, found = self._measure(self._add(self._without_points(centers), sums))
            if int(found[STRANGE]):
                return None
            rounds.append(Round("steps", int(found["centers"])))
            touched = max(touched, int(found[TOUCHED]))
            parts.append(references)
            centers = self._next_centers(references)
        return Clustered(reduce(DataFrame.unionByName, parts), centers, tuple(rounds), touched)

    def by_references(
        self, references: DataFrame, change: DataFrame | None, start: DataFrame | None
    ) -> Clustered | None:
        """Return the evaluation from stored references; None if all points have to be read.

        change: of the points; start: as it is now; None where nothing changed.
        """
        touched = 0
        if change is not None:
            sums = self.assignment.sum_points(self.assignment.assign(change, references))
            added, found = self._measure(self._add(references, sums))
            if int(found[STRANGE]) or found["recompute"]:
                return None
            if int(found["least"]) < 0:
                raise StateError(
                    f"the table of {self.table.loop.name} does not match its sources: a cluster would have a negative "
                    "number of points. Rebuild the view."
                )
            references, touched = added, int(found[TOUCHED])
        centers = self._next_centers(references)
        first = references.where(f"{STEP.name} = 0") if start is None else self._compute(self.number_start(start))
        now = {**self._coordinates(centers), **self._coordinates(first)}
        if not self._are_near(self._coordinates(references), now, self._margins(references)):
            return None
        answer = centers.where(f"{STEP.name} = {self.table.loop.limit}")
        rounds = tuple(Round("points", 0) for _ in range(self.table.loop.limit))
        return Clustered(references, answer, rounds, touched)

    def _are_near(self, references: Centers, now: Centers, margins: Mapping[int, float]) -> bool:
        """Return whether every point has the same nearest center as among the references, in each step."""
        decided = {column for _, column in self.table.clusters.coordinates} == {*self.table.loop.columns}
        for step in range(self.table.loop.limit):
            then, here = references.get(step, {}), now.get(step, {})
            if then.keys() != here.keys() or not _can_be_references(here.values()):
                return False
            moved = max(math.dist(_numbers(then[number]), _numbers(here[number])) for number in here)
            same = decided and not moved  # else the order of equally near centers may be another one
            if not same and not moved * SLACK < margins.get(step, math.inf):
                return False
        return True

    def _coordinates(self, centers: DataFrame) -> dict[int, dict[int, Point]]:
        """Return the coordinates of few centers by step and number."""
        names = [quoted(column.name) for _, column in self.table.clusters.coordinates]
        found = defaultdict[int, dict[int, Point]](dict)
        for row in centers.select(STEP.name, NUMBER.name, *names).collect():
            found[row[0]][row[1]] = tuple(row[2:])
        return dict(found)

    def _margins(self, references: DataFrame) -> dict[int, float]:
        """Return the least margin of a point in each step."""
        found = defaultdict[int, float](lambda: math.inf)
        for row in references.select(STEP.name, MARGIN).where(f"{MARGIN} IS NOT NULL").collect():
            found[row[0]] = min(found[row[0]], row[1])
        return dict(found)

    def _without_points(self, centers: DataFrame) -> DataFrame:
        """Return centers as references without points."""
        zeros = {name: f"CAST({zero} AS {type_})" for name, (type_, zero) in self.table.sums.items()}
        zeros |= {MARGIN: "CAST(NULL AS DOUBLE)", BUCKET: "0"}
        return centers.select("*", *(F.expr(sql).alias(name) for name, sql in zeros.items()))

    def _add(self, references: DataFrame, sums: DataFrame) -> DataFrame:
        """Return references with sums added to theirs."""
        layout = self.table.layout
        stored, added = in_one_task(references, sums)
        same = F.expr(f"t.{STEP.name} = u.{STEP.name} AND t.{NUMBER.name} = u.{NUMBER.name}")
        joined = stored.alias("t").join(added.alias("u"), same, "left")
        values = {name: f"t.{quoted(name)}" for name in (*self.table.row, STEP.name, NUMBER.name, BUCKET)}
        values |= {ROWS: f"t.{ROWS} + coalesce(u.{ROWS}, 0L)", MARGIN: f"least(t.{MARGIN}, u.{MARGIN})"}
        for slot, part, name in layout.parts:
            sides = {
                s: {p.name: f"{s}.{quoted(slot.stored_name(p))}" for p in slot.accumulator.components} for s in "tu"
            }
            merged = f"CAST({part.merge.format(**sides)} AS {part.type})"
            values[name] = f"if(u.{ROWS} IS NULL, t.{quoted(name)}, {merged})"
        others = {name: f"u.{quoted(name)}" for name in (TOUCHED, STRANGE, *(name for _, _, name in layout.watched))}
        return joined.select(*(F.expr(sql).alias(name) for name, sql in (values | others).items()))

    def _measure(self, rows: DataFrame) -> tuple[DataFrame, Mapping[str, Any]]:
        """Return references with added sums, computed once, and what has been found of them."""
        slots = [slot for slot in self.table.layout.state.slots if slot.accumulator.watched]
        recompute = " OR ".join(f"({may_recompute(slot)})" for slot in slots) or "false"
        measures = [
            F.count(F.lit(1)).alias("centers"),
            F.expr(f"coalesce(sum({STRANGE}), 0)").alias(STRANGE),
            F.expr(f"coalesce(sum(if({STEP.name} = 0, {TOUCHED}, 0)), 0)").alias(TOUCHED),
            F.expr(f"coalesce(min({ROWS}), 0)").alias("least"),
            F.expr(f"coalesce(bool_or({TOUCHED} IS NOT NULL AND ({recompute})), false)").alias("recompute"),
        ]
        found, measured = Checkpoints(self.block, self.most).measure(rows, measures, True)
        return found.select(*map(quoted, self.table.columns)), measured

    def _next_centers(self, references: DataFrame) -> DataFrame:
        """Return the centers that follow from the sums of each step."""
        clusters, spark = self.table.clusters, self.lowering.spark
        values = self.table.layout.call_values(self.lowering, quoted)
        items = [(call.column, values[call.column.name]) for call in clusters.calls]
        items = [
            (STEP, catalyst.parse_expression(spark, f"{STEP.name} + 1")),
            (NUMBER, catalyst.parse_expression(spark, NUMBER.name)),
            *items,
        ]
        groups = self.lowering.compute(references.where(f"{ROWS} > 0"), items)
        names = (STEP.name, NUMBER.name, *self.table.row)
        named = list(zip(clusters.answer.columns, names, strict=True))
        return self.lowering.frame(self._evaluate(clusters.answer, groups), named)

    def _evaluate(self, plan: Plan, leaf: Relation) -> Relation:
        """Return a plan of linear operators over one leaf."""
        return self.lowering.linear(plan, self._evaluate(plan.children[0], leaf)) if plan.children else leaf

    def _compute(self, frame: DataFrame) -> DataFrame:
        return Checkpoints(self.block, self.most).small(frame)


def _can_be_references(centers: Collection[Point]) -> bool:
    """Return whether there are centers, with a number in every coordinate, of which no two are equal."""
    numbers = all(value is not None and math.isfinite(value) for center in centers for value in center)
    return bool(centers) and numbers and len(set(centers)) == len(centers)


def _numbers(center: Point) -> tuple[float, ...]:
    return tuple(value for value in center if value is not None)
