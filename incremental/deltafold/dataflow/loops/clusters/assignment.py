"""Assign points to the nearest of the centers of several steps, and sum them by cluster.

The distances are those of `nearest` (language/loops/functions.py), in the same order of operations, and of equally near
centers the least is taken, so a point gets the center that the query gives it, bit by bit. The margin of a point is its
distance to the second nearest center minus that to the nearest, less what rounding may have added to either.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.loops import POSITION, STEP
from deltafold.algebra.plan import Column as PlanColumn
from deltafold.algebra.program import BUCKET, ROWS, WEIGHT
from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.loops.clusters.cluster_table import MARGIN, MARGINS, NEAR, ClusterTable
from deltafold.dataflow.lowering import Lowering
from deltafold.dataflow.partial_aggregate import TOUCHED, measure, unit_weights
from deltafold.spark.checkpoint import in_one_task

CENTERS, FAR, LISTS, NEED, STRANGE = "__centers", "__far", "__lists", "__need", "__strange"
SLACK = 2.000001  # a center that moves by δ changes the difference of two distances by at most 2 δ, before rounding
RELATIVE, ABSOLUTE = 1e-9, 1e-150  # far above the rounding of a squared distance, and above the least one
NARROWED, LEAST_FLOAT, GREATEST_FLOAT = 1 - 2e-7, 1e-37, 3.4e38  # so that rounding to FLOAT does not enlarge a margin


@dataclass(frozen=True)
class Assignment:
    """The expressions of one loop; points have the coordinates and the arguments of aggregates."""

    table: ClusterTable
    lowering: Lowering

    def list_centers(self, centers: DataFrame) -> DataFrame:
        """Return one row for each step with the list of its centers, the least first."""
        return centers.coalesce(1).groupBy(STEP.name).agg(self._listed.alias(CENTERS))

    def list_moved(self, centers: DataFrame, references: DataFrame) -> DataFrame:
        """Return the same, with the greatest margin of points that may not keep their reference."""
        now, then = in_one_task(centers, references)
        pairs = [(f"c.{quoted(center.name)}", f"r.{quoted(center.name)}") for _, center in self._coordinates]
        distance = " + ".join(f"({one} - {other}) * ({one} - {other})" for one, other in pairs)
        same = F.expr(f"c.{STEP.name} = r.{STEP.name} AND c.{POSITION.name} = r.{POSITION.name}")
        joined = now.alias("c").join(then.alias("r"), same)
        moved = joined.select("c.*", F.expr(f"sqrt({distance}) * {SLACK}D").alias(NEED))
        return moved.groupBy(STEP.name).agg(self._listed.alias(CENTERS), F.max(NEED).alias(NEED))

    @property
    def _listed(self) -> Column:
        fields = [F.col(quoted(name)).alias(f"c{place}") for place, name in enumerate(self.table.row)]
        return F.sort_array(F.collect_list(F.struct(*fields, F.col(POSITION.name).alias("n"))))

    def assign(self, points: DataFrame, centers: DataFrame) -> DataFrame:
        """Return each point once for each step, with the number of its nearest center and its margin."""
        return self._assign(points.crossJoin(F.broadcast(self.list_centers(centers))))

    def _assign(self, points: DataFrame) -> DataFrame:
        measured = points.withColumn(FAR, F.expr(f"transform({CENTERS}, __c -> {self._square})"))
        ranked = measured.withColumn(POSITION.name, F.expr(nearest_sql(CENTERS, FAR))).withColumn(
            FAR, F.sort_array(FAR)
        )
        return ranked.withColumn(MARGIN, F.expr(margin_sql(FAR))).drop(CENTERS, FAR)

    def log(self, points: DataFrame, references: DataFrame) -> DataFrame:
        """Return points as rows of the log, with the nearest reference of each step and their margins.

        Points without a weight count as 1.
        """
        steps = self.list_centers(references).select(F.struct(STEP.name, CENTERS).alias("step"))
        lists = steps.agg(F.sort_array(F.collect_list("step")).getField(CENTERS).alias(LISTS))
        both = points.crossJoin(F.broadcast(lists))
        measured = both.withColumn(FAR, F.expr(f"transform({LISTS}, __l -> transform(__l, __c -> {self._square}))"))
        near = f"transform({FAR}, (__f, __i) -> {nearest_sql(f'{LISTS}[__i]', '__f')})"
        margins = f"transform(transform({FAR}, __f -> sort_array(__f)), __f -> {float_sql(margin_sql('__f'))})"
        return self._as_logged(measured, near, margins, f"array_min({MARGINS})")

    def empty_log(self, points: DataFrame) -> DataFrame:
        """Return no rows of the log; points: of any number."""
        return self._as_logged(points.limit(0), "NULL", "NULL", "NULL")

    def take_back(self, logged: DataFrame, moved: DataFrame) -> DataFrame:
        """Return rows that move logged points from their reference of a step to the nearest of the centers.

        moved: the centers of the step (list_moved).
        """
        near = logged.crossJoin(F.broadcast(moved)).where(f"CAST({MARGINS}[{STEP.name}] AS DOUBLE) <= {NEED}")
        reference = f"{NEAR}[{STEP.name}]"
        sides = f"array(struct({reference} AS n, -{WEIGHT} AS w), struct({POSITION.name} AS n, {WEIGHT} AS w))"
        elsewhere = self._assign(near).where(f"{reference} <> {POSITION.name}")
        signed = elsewhere.select(*self._point, STEP.name, F.expr(f"explode({sides})").alias("__side"))
        weighted = {POSITION.name: "__side.n", WEIGHT: "__side.w", MARGIN: "CAST(NULL AS DOUBLE)"}
        return signed.select(*self._point, STEP.name, *(F.expr(v).alias(n) for n, v in weighted.items()))

    @property
    def _point(self) -> list[str]:
        return [quoted(column.name) for column in self.table.point]

    @property
    def _coordinates(self) -> tuple[tuple[PlanColumn, PlanColumn], ...]:
        return self.table.clusters.coordinates

    @property
    def _square(self) -> str:
        """SQL of the squared distance between a point and the center `__c`."""
        places = [(quoted(c.name), self.table.loop.columns.index(center)) for c, center in self._coordinates]
        squares = (f"(({point} - __c.c{place}) * ({point} - __c.c{place}))" for point, place in places)
        total = next(squares)
        for square in squares:
            total = f"({total} + {square})"
        return total

    def _as_logged(self, points: DataFrame, near: str, margins: str, margin: str) -> DataFrame:
        weight = WEIGHT if WEIGHT in points.columns else "1"
        own = {WEIGHT: (weight, "bigint"), NEAR: (near, "array<int>"), MARGINS: (margins, "array<float>")}
        rows = points.select(*self._point, *(F.expr(f"CAST({v} AS {t})").alias(n) for n, (v, t) in own.items()))
        return rows.select("*", F.expr(f"CAST({margin} AS FLOAT)").alias(MARGIN), F.lit(0).alias(BUCKET))

    def sum_points(self, points: DataFrame) -> DataFrame:
        """Return for each step and cluster the sums of its points, their least margin, and how many are strange.

        Strange is a point without a number in a coordinate, which `nearest` leaves out before.
        """
        layout, weighted = self.table.layout, WEIGHT in points.columns
        if weighted and any(slot.accumulator.unit_weights for slot in layout.state.slots):
            points = unit_weights(points)
        weight = quoted(WEIGHT) if weighted else "1L"
        coordinates = [quoted(column.name) for column, _ in self._coordinates]
        strange = " OR ".join(f"{name} IS NULL OR isnan({name})" for name in coordinates)
        return points.groupBy(STEP.name, POSITION.name).agg(
            F.expr(f"CAST(coalesce(sum({weight}), 0) AS BIGINT)").alias(ROWS),
            F.count(F.lit(1)).alias(TOUCHED),
            F.count_if(F.expr(strange)).alias(STRANGE),
            F.min(MARGIN).alias(MARGIN),
            *(measure(*part[:2], weight, self.lowering, points).alias(part[2]) for part in layout.parts),
            *(measure(*part[:2], weight, self.lowering, points).alias(part[2]) for part in layout.watched),
        )


def nearest_sql(centers: str, far: str) -> str:
    """Return SQL of the number of the nearest of listed centers, by the list of their distances."""
    return f"{centers}[CAST(array_position({far}, array_min({far})) AS INT) - 1].n"


def margin_sql(ranked: str) -> str:
    """Return SQL of the margin of a point, by the list of its squared distances in order."""
    margin = f"sqrt({ranked}[1]) * {1 - RELATIVE!r}D - sqrt({ranked}[0]) - {ABSOLUTE!r}D"
    return f"if(size({ranked}) = 1, CAST('Infinity' AS DOUBLE), coalesce(nanvl({margin}, 0D), 0D))"


def float_sql(value: str) -> str:
    """Return SQL of a DOUBLE as a FLOAT that is not greater, and not negative."""
    return f"CAST(greatest(least({value} * {NARROWED!r}D, {GREATEST_FLOAT!r}D) - {LEAST_FLOAT!r}D, 0D) AS FLOAT)"
