"""k-means over points in four squares, as points arrive: a refresh against the batch query (Fegaras, section 9).

1,000,000 points by default, ten steps, nine increments of 10,000 to 40,000 points; the batch is the same function.
"""

from __future__ import annotations

import shutil

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from benchmarks.contest import Contest
from benchmarks.group_by import session
from incremental.api import Delta, Report, Warehouse, iterate, nearest
from incremental.spark.cache import cache_folder

SIZES = [1_000_000]
STEPS, INCREMENTS, BATCHES = 10, 9, 2
FAR = [(0.0, 0.0), (0.0, 10.0), (10.0, 0.0), (10.0, 10.0)]


def clusters(points: DataFrame, seeds: DataFrame) -> DataFrame:
    """The centers after ten steps."""

    def step(centers: DataFrame) -> DataFrame:
        near = nearest(points, centers, on=("x", "y"))
        return near.groupBy("center").agg(F.avg("x").alias("x"), F.avg("y").alias("y")).select("x", "y")

    return iterate(seeds, step, times=STEPS)


def in_squares(spark: SparkSession, number: int, seed: int) -> DataFrame:
    """Uniform points in the four squares."""
    drawn = spark.range(number).select(*(F.rand(seed * 4 + i).alias(name) for i, name in enumerate("abcd")))
    return drawn.selectExpr("if(a < 0.5, 2, 6) + 2 * b AS x", "if(c < 0.5, 2, 6) + 2 * d AS y").coalesce(2)


def run(sizes: list[int]) -> None:
    """All sizes, then what a refresh takes of a batch, and the old points that it read."""
    spark = session()
    contest = Contest(spark)
    for points in sizes:
        one_size(contest, spark, points)
    ratios = [(f"{n:,}: batch / refresh", quotient(contest, f"{n:,}"), "at least 10") for n in sizes]
    spark.stop()
    contest.show("k-means in four squares", ratios, cache_folder("benchmarks") / "clusters.json")


def one_size(contest: Contest, spark: SparkSession, points: int) -> None:
    """First load, then the increments, then the batch."""
    folder, setting = cache_folder("benchmarks", "clusters", str(points)), f"{points:,}"
    shutil.rmtree(folder, ignore_errors=True)
    in_squares(spark, points, 1).write.format("delta").save(str(folder / "points"))
    spark.createDataFrame(FAR, "x double, y double").write.format("delta").save(str(folder / "seeds"))
    warehouse = Warehouse(spark, folder / "warehouse")
    for name in ("points", "seeds"):
        warehouse.source(name, Delta(str(folder / name)))
    view, reports = warehouse.view("clusters", clusters), list[Report]()
    contest.lap(setting, "load", "refresh", view.refresh, 2)
    for number in range(INCREMENTS + 1):
        few = in_squares(spark, points // 100 * (1 + number % 4), 10 + number)
        few.write.format("delta").mode("append").save(str(folder / "points"))
        step = f"insert-{number}" if number else "warm-up"
        contest.lap(setting, step, "refresh", lambda: reports.append(view.refresh()) or reports[-1], 2)
    for number in range(BATCHES):
        contest.lap(setting, f"batch-{number}", "batch", lambda: view.batch().count(), 0)
    again = sum(sum(report.rounds["loop_1"].get("points", [])) for report in reports)
    paths = sorted({report.paths["loop_1"] for report in reports})
    Console().print(f"{setting}: old points read again {again:,} in all, tables {', '.join(paths)}")
    verification = view.verify()
    if not verification.ok:
        raise SystemExit(verification.sentence)


def quotient(contest: Contest, setting: str) -> float:
    return contest.median(setting, "batch") / contest.median(setting, "refresh", "insert")
