"""Steps that are like k-means and are evaluated from the start, each for a reason that explain has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.api import iterate, nearest
from tests.loops.test_explained import compiled


def grouped(points: DataFrame, centers: DataFrame, *keys: str) -> Any:
    return nearest(points, centers, on=("x", "y")).groupBy("center", *keys)


def averages(of: Any) -> DataFrame:
    return of.agg(F.avg("x").alias("x"), F.avg("y").alias("y")).select("x", "y")


def by_hand(points: DataFrame, centers: DataFrame, field: str) -> DataFrame:
    """The expressions of `nearest`, in one column."""
    listed = centers.agg(F.collect_set(F.struct("x", "y")).alias("all"))

    def ranked(center: Column) -> Column:
        difference = (F.col("x") - center["x"]).cast("double")
        return F.struct((difference * difference).alias("far"), center.alias(field))

    found = F.array_min(F.transform("all", ranked))[field]
    return averages(points.crossJoin(listed).withColumn("center", found).where("center is not null").groupBy("center"))


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


@pytest.mark.parametrize(("field", "recognised"), [("center", True), ("closest", False)])
def test_nearest_by_hand(spark: SparkSession, field: str, recognised: bool) -> None:
    """Protects from views of release 0.1.0 that look for tables which it did not write."""

    def query(points: DataFrame, seeds: DataFrame) -> DataFrame:
        return iterate(seeds.select("x", "y"), lambda centers: by_hand(points, centers, field), times=2)

    (loop,) = compiled(spark, query).loops
    assert (loop.clusters is not None) == recognised


@pytest.mark.parametrize("name", ["number", "cluster id", "x-1", "pair"])
def test_a_column_that_is_no_coordinate(spark: SparkSession, name: str) -> None:
    """Protects from the same: of centers with a struct, or with such a name, release 0.1.0 recognised none."""

    def number(value: Column) -> Column:
        return (F.struct(value.alias("n")) if name == "pair" else value).alias(name)

    def step(points: DataFrame, centers: DataFrame) -> DataFrame:
        sums = (F.avg("x").alias("x"), F.avg("y").alias("y"), F.count("*").alias("n"))
        return grouped(points, centers).agg(*sums).select("x", "y", number(F.col("n")))

    def query(points: DataFrame, seeds: DataFrame) -> DataFrame:
        start = seeds.select("x", "y", number(F.lit(0).cast("bigint")))
        return iterate(start, lambda centers: step(points, centers), times=2)

    (loop,) = compiled(spark, query).loops
    assert (loop.clusters is not None) == (name == "number")
