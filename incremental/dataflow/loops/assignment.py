"""Assign points to the nearest of the centers of several steps, and sum them by cluster.

The distances are those of `nearest` (language/loops/functions.py), in the same order of operations, and of equally near
centers the least is taken, so a point gets the center that the query gives it, bit by bit. The margin of a point is its
distance to the second nearest center minus that to the nearest, less what rounding may have added to either.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from incremental.algebra.loops import NUMBER, STEP
from incremental.algebra.program import ROWS, WEIGHT
from incremental.algebra.sqltext import quoted
from incremental.dataflow.loops.cluster_table import MARGIN, ClusterTable
from incremental.dataflow.lowering import Lowering
from incremental.dataflow.partial_aggregate import TOUCHED, measure, unit_weights

CENTERS, FAR, STRANGE = "__centers", "__far", "__strange"
RELATIVE, ABSOLUTE = 1e-9, 1e-150  # far above the rounding of a squared distance, and above the least one


@dataclass(frozen=True)
class Assignment:
    """The expressions of one loop; points have the coordinates as `__point_0`, … and the arguments of aggregates."""

    table: ClusterTable
    lowering: Lowering

    def list_centers(self, centers: DataFrame) -> DataFrame:
        """Return one row for each step with the list of its centers, the least first."""
        fields = [F.col(quoted(name)).alias(f"c{place}") for place, name in enumerate(self.table.row)]
        listed = F.sort_array(F.collect_list(F.struct(*fields, F.col(NUMBER.name).alias("n"))))
        return centers.groupBy(STEP.name).agg(listed.alias(CENTERS))

    def assign(self, points: DataFrame, centers: DataFrame) -> DataFrame:
        """Return each point once for each step, with the number of its nearest center and its margin."""
        places = [self.table.loop.columns.index(column) for _, column in self.table.clusters.coordinates]
        squares = (f"((__point_{i} - c.c{place}) * (__point_{i} - c.c{place}))" for i, place in enumerate(places))
        total = next(squares)
        for square in squares:
            total = f"({total} + {square})"
        both = points.crossJoin(F.broadcast(self.list_centers(centers)))
        measured = both.withColumn(FAR, F.expr(f"transform({CENTERS}, c -> {total})"))
        number = f"{CENTERS}[CAST(array_position({FAR}, array_min({FAR})) AS INT) - 1].n"
        ranked = measured.select("*", F.expr(number).alias(NUMBER.name), F.sort_array(FAR).alias("__ranked"))
        second = "sqrt(__ranked[1])"
        margin = f"{second} - sqrt(__ranked[0]) - {second} * {RELATIVE!r}D - {ABSOLUTE!r}D".replace("e-", "E-")
        margin = f"if(size({FAR}) = 1, CAST('Infinity' AS DOUBLE), coalesce(nanvl({margin}, 0D), 0D))"
        return ranked.withColumn(MARGIN, F.expr(margin)).drop(CENTERS, FAR, "__ranked")

    def sum_points(self, points: DataFrame) -> DataFrame:
        """Return for each step and cluster the sums of its points, their least margin, and how many are strange.

        Strange is a point without a number in a coordinate, which `nearest` leaves out before.
        """
        layout, weighted = self.table.layout, WEIGHT in points.columns
        if weighted and any(slot.accumulator.unit_weights for slot in layout.state.slots):
            points = unit_weights(points)
        weight = quoted(WEIGHT) if weighted else "1L"
        numbers = range(len(self.table.clusters.coordinates))
        strange = " OR ".join(f"__point_{i} IS NULL OR isnan(__point_{i})" for i in numbers)
        return points.groupBy(STEP.name, NUMBER.name).agg(
            F.expr(f"CAST(coalesce(sum({weight}), 0) AS BIGINT)").alias(ROWS),
            F.count(F.lit(1)).alias(TOUCHED),
            F.count_if(F.expr(strange)).alias(STRANGE),
            F.min(MARGIN).alias(MARGIN),
            *(measure(*part[:2], weight, self.lowering, points).alias(part[2]) for part in layout.parts),
            *(measure(*part[:2], weight, self.lowering, points).alias(part[2]) for part in layout.watched),
        )
