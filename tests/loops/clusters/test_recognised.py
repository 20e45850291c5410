"""Steps that are like k-means and are evaluated from the start, each for a reason that explain has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.api import iterate, nearest
from tests.loops.test_explained import compiled


def grouped(points: DataFrame, centers: DataFrame, *keys: str) -> Any:
    return nearest(points, centers, on=("x", "y")).groupBy("center", *keys)


def averages(of: Any) -> DataFrame:
    return of.agg(F.avg("x").alias("x"), F.avg("y").alias("y")).select("x", "y")


UNLIKE: dict[str, tuple[Callable[[DataFrame, DataFrame], DataFrame], str]] = {
    "another key": (lambda p, c: averages(grouped(p, c, "id")), "not a group-by"),
    "the center": (
        lambda p, c: grouped(p, c).agg(F.avg("x").alias("x")).select("x", F.col("center.y")),
        "from the last ones",
    ),
    "a minimum": (lambda p, c: grouped(p, c).agg(F.min("x").alias("x"), F.avg("y").alias("y")).select("x", "y"), "min"),
    "some centers": (lambda p, c: averages(grouped(p, c.where("x > 3"))), "some centers are left out"),
    "some points of a center": (
        lambda p, c: averages(nearest(p, c, on=("x", "y")).where("center.x > 3").groupBy("center")), "not a group-by",
    ),
    "distances": (
        lambda p, c: grouped(p, c).agg(F.avg(F.col("x") - F.col("center.x")).alias("x"), F.avg("y").alias("y"))
        .select("x", "y"), "uses the center",
    ),
    "no nearest": (lambda p, c: c.join(p, "x").groupBy("x").agg(F.avg(p["y"]).alias("y")), "not joined with the list"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNLIKE)
def test_what_is_not_recognised(spark: SparkSession, case: str) -> None:
    """Protects from references to a step that they do not describe; explain has the reason."""
    step, reason = UNLIKE[case]

    def query(points: DataFrame, seeds: DataFrame) -> DataFrame:
        return iterate(seeds.select("x", "y"), lambda centers: step(points, centers), times=2)

    (loop,) = compiled(spark, query).loops
    assert loop.clusters is None and reason in loop.replayed
