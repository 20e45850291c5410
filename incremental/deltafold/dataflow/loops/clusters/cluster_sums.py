"""Compute with the centers of k-means and the exact sums of their points.

A reference of a step is the center that a cluster had there when all points were last read; stored with it are the sums
of the points of which it is the nearest. The next centers follow from the sums.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.loops import POSITION, STEP
from deltafold.algebra.plan import Column, Plan
from deltafold.algebra.program import BUCKET, ROWS
from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.loops.clusters.assignment import STRANGE, Assignment
from deltafold.dataflow.loops.clusters.cluster_table import MARGIN, ClusterTable
from deltafold.dataflow.loops.rounds import Round
from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.dataflow.partial_aggregate import TOUCHED, may_recompute
from deltafold.spark import catalyst
from deltafold.spark.checkpoint import Checkpoints, in_one_task

Point = tuple[float | None, ...]
Centers = Mapping[int, Mapping[int, Point]]
"""The coordinates of the center of each cluster, by step and number."""


@dataclass(frozen=True, kw_only=True)
class Clustered:
    """An evaluation; touched: points that it read.

    references: with the sums of all steps; start: as it is now, by number; None if there are none.
    """

    references: DataFrame | None
    start: DataFrame | None
    answer: DataFrame
    rounds: tuple[Round, ...]
    touched: int


@dataclass(frozen=True)
class ClusterSums:
    """The centers of one loop in one epoch; most: the most rows that the driver keeps; block: frees frames."""

    table: ClusterTable
    lowering: Lowering
    most: int
    block: ExitStack

    @property
    def assignment(self) -> Assignment:
        """The expressions over points and centers."""
        return Assignment(self.table, self.lowering)

    @property
    def checkpoints(self) -> Checkpoints:
        """Compute frames once."""
        return Checkpoints(self.block, self.most)

    def points(self, side: Relation, columns: Collection[Column], *, small: bool) -> DataFrame:
        """Return the points of rows of the side input, or of their change; columns: under which they are.

        small: whether one task reads them sooner than several that exchange rows.
        """
        clusters = self.table.clusters
        start = self.lowering.union(clusters.side.columns, [(tuple(columns), side)])
        named = [(column, column.name) for column in self.table.point]
        frame = self.lowering.frame(self._evaluate(clusters.points, start), named)
        return frame.coalesce(1) if small else frame

    def number_start(self, start: DataFrame) -> DataFrame:
        """Return the centers of the start, numbered by their order."""
        listed = F.sort_array(F.collect_set(F.struct(*map(quoted, self.table.row))))
        numbered = start.agg(listed.alias("all")).select(F.posexplode("all").alias(POSITION.name, "center"))
        return numbered.select(F.lit(0).alias(STEP.name), POSITION.name, "center.*")

    def coordinates(self, centers: DataFrame) -> dict[int, dict[int, Point]]:
        """Return the coordinates of few centers by step and number."""
        names = [quoted(column.name) for _, column in self.table.clusters.coordinates]
        coordinates = defaultdict[int, dict[int, Point]](dict)
        for row in centers.select(STEP.name, POSITION.name, *names).collect():
            coordinates[row[0]][row[1]] = tuple(row[2:])
        return dict(coordinates)

    def margins(self, references: DataFrame) -> dict[int, float]:
        """Return the least margin of a point in each step."""
        distances = defaultdict[int, float](lambda: math.inf)
        for row in references.select(STEP.name, MARGIN).where(f"{MARGIN} IS NOT NULL").collect():
            distances[row[0]] = min(distances[row[0]], row[1])
        return dict(distances)

    def drop_points(self, centers: DataFrame) -> DataFrame:
        """Return centers as references without points."""
        zeros = {name: f"CAST({zero} AS {type_})" for name, (type_, zero) in self.table.sums.items()}
        zeros |= {MARGIN: "CAST(NULL AS DOUBLE)", BUCKET: "0"}
        return centers.select("*", *(F.expr(sql).alias(name) for name, sql in zeros.items()))

    def add(self, references: DataFrame, sums: DataFrame) -> DataFrame:
        """Return references with sums added to theirs."""
        layout = self.table.layout
        stored, added = in_one_task(references, sums)
        same = F.expr(f"t.{STEP.name} = u.{STEP.name} AND t.{POSITION.name} = u.{POSITION.name}")
        joined = stored.alias("t").join(added.alias("u"), same, "left")
        values = {name: f"t.{quoted(name)}" for name in (*self.table.row, STEP.name, POSITION.name, BUCKET)}
        values |= {ROWS: f"t.{ROWS} + coalesce(u.{ROWS}, 0L)", MARGIN: f"least(t.{MARGIN}, u.{MARGIN})"}
        for slot, part, name in layout.parts:
            sides = {
                s: {p.name: f"{s}.{quoted(slot.stored_name(p))}" for p in slot.accumulator.components} for s in "tu"
            }
            merged = f"CAST({part.merge.format(**sides)} AS {part.type})"
            values[name] = f"if(u.{ROWS} IS NULL, t.{quoted(name)}, {merged})"
        others = {name: f"u.{quoted(name)}" for name in (TOUCHED, STRANGE, *(name for _, _, name in layout.watched))}
        return joined.select(*(F.expr(sql).alias(name) for name, sql in (values | others).items()))

    @property
    def measures(self) -> list[SparkColumn]:
        """Aggregates over references with added sums: what has been found of them."""
        slots = [slot for slot in self.table.layout.state.slots if slot.accumulator.watched]
        recompute = " OR ".join(f"({may_recompute(slot)})" for slot in slots) or "false"
        return [
            F.count(F.lit(1)).alias("centers"),
            F.expr(f"coalesce(sum({STRANGE}), 0)").alias(STRANGE),
            F.expr(f"coalesce(sum(if({STEP.name} = 0, {TOUCHED}, 0)), 0)").alias(TOUCHED),
            F.expr(f"coalesce(min({ROWS}), 0)").alias("least"),
            F.expr(f"coalesce(bool_or({TOUCHED} IS NOT NULL AND ({recompute})), false)").alias("recompute"),
        ]

    def measure(self, rows: DataFrame) -> tuple[DataFrame, Mapping[str, Any]]:
        """Return references with added sums, computed once, and what has been found of them."""
        sums, measured = self.checkpoints.measure(rows, self.measures, small=True)
        return sums.select(*map(quoted, self.table.columns)), measured

    def next_centers(self, references: DataFrame) -> DataFrame:
        """Return the centers that follow from the sums of each step."""
        clusters, spark = self.table.clusters, self.lowering.spark
        values = self.table.layout.call_values(self.lowering, quoted)
        items = [(call.column, values[call.column.name]) for call in clusters.calls]
        items = [
            (STEP, catalyst.parse_expression(spark, f"{STEP.name} + 1")),
            (POSITION, catalyst.parse_expression(spark, POSITION.name)),
            *items,
        ]
        groups = self.lowering.compute(references.where(f"{ROWS} > 0"), items)
        names = (STEP.name, POSITION.name, *self.table.row)
        named = list(zip(clusters.answer.columns, names, strict=True))
        return self.lowering.frame(self._evaluate(clusters.answer, groups), named)

    def _evaluate(self, plan: Plan, leaf: Relation) -> Relation:
        """Return a plan of linear operators over one leaf."""
        return self.lowering.linear(plan, self._evaluate(plan.children[0], leaf)) if plan.children else leaf

    def compute(self, frame: DataFrame) -> DataFrame:
        """Return a frame of few rows, computed."""
        return self.checkpoints.small(frame)


def can_be_references(centers: Collection[Point]) -> bool:
    """Return whether there are centers, with a number in every coordinate, of which no two are equal."""
    numbers = all(value is not None and math.isfinite(value) for center in centers for value in center)
    return bool(centers) and numbers and len(set(centers)) == len(centers)


def as_numbers(center: Point) -> tuple[float, ...]:
    """Return the coordinates of a center of which none is NULL."""
    return tuple(value for value in center if value is not None)
