"""k-means as points arrive: a refresh against the batch query, over points in four squares (Fegaras, section 9) and
over uniform points, of which some are near the border of two clusters in every step.

1,000,000 points by default, ten steps, nine increments of 1 to 4 per cent; the batch is the same function.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from benchmarks.contest import Contest
from benchmarks.group_by import session
from deltafold.api import Delta, Report, Warehouse, iterate, nearest
from deltafold.spark.cache import cache_folder

SIZES = [1_000_000]
STEPS = 10
INCREMENTS = 9
BATCHES = 2
CORNERS = [(0.0, 0.0), (0.0, 10.0), (10.0, 0.0), (10.0, 10.0)]
ANYWHERE = [(1.0, 2.0), (2.0, 8.0), (3.0, 5.0), (4.0, 1.0), (6.0, 9.0), (7.0, 4.0), (8.0, 7.0), (9.0, 1.0)]


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


def anywhere(spark: SparkSession, number: int, seed: int) -> DataFrame:
    """Uniform points in one square."""
    drawn = spark.range(number).select(F.rand(seed * 2).alias("a"), F.rand(seed * 2 + 1).alias("b"))
    return drawn.selectExpr("10 * a AS x", "10 * b AS y").coalesce(2)


@dataclass(frozen=True)
class Setting:
    """Where points are, and the centers of the start."""

    name: str
    points: Callable[[SparkSession, int, int], DataFrame]
    seeds: list[tuple[float, float]]


SETTINGS = [Setting("four squares", in_squares, CORNERS), Setting("uniform", anywhere, ANYWHERE)]


def run(sizes: list[int]) -> None:
    """All sizes, then what a refresh takes of a batch, and the old points that it read."""
    spark = session()
    contest = Contest(spark, cache_folder("benchmarks", "clusters"))
    for points in sizes:
        for setting in SETTINGS:
            one_size(contest, spark, setting, points)
    names = [f"{setting.name}, {points:,}" for points in sizes for setting in SETTINGS]
    ratios = [(f"{name}: batch / refresh", quotient(contest, name), "at least 10") for name in names]
    spark.stop()
    contest.show("k-means as points arrive", ratios, cache_folder("benchmarks") / "clusters.json")


def one_size(contest: Contest, spark: SparkSession, setting: Setting, points: int) -> None:
    """First load, then the increments, then the batch."""
    folder = cache_folder("benchmarks", "clusters", str(points))
    name = f"{setting.name}, {points:,}"
    shutil.rmtree(folder, ignore_errors=True)
    setting.points(spark, points, 1).write.format("delta").save(str(folder / "points"))
    spark.createDataFrame(setting.seeds, "x double, y double").write.format("delta").save(str(folder / "seeds"))
    warehouse = Warehouse(spark, folder / "warehouse")
    for source in ("points", "seeds"):
        warehouse.source(source, Delta(str(folder / source)))
    view = warehouse.view("clusters", clusters)
    reports = list[Report]()
    contest.lap(name, "load", "refresh", view.refresh)
    for number in range(INCREMENTS + 1):
        few = setting.points(spark, points // 100 * (1 + number % 4), 10 + number)
        few.write.format("delta").mode("append").save(str(folder / "points"))
        step = f"insert-{number}" if number else "warm-up"
        contest.lap(name, step, "refresh", lambda: reports.append(view.refresh()) or reports[-1])
    for number in range(BATCHES):
        contest.lap(name, f"batch-{number}", "batch", lambda: view.batch().count())
    for report in reports:
        Console().print(f"{name}: {described(report, points)}")
    verification = view.verify()
    if not verification.ok:
        raise SystemExit(verification.sentence)


def described(report: Report, points: int) -> str:
    """How a refresh kept the tables, and the old points that it read."""
    again = sum(report.rounds["loop_1"].get("points", []))
    share = again / STEPS / points
    paths = ", ".join(f"{table} {path}" for table, path in report.paths.items())
    return f"{report.seconds:.2f} s, {report.change_rows:,} rows, {again:,} in steps ({share:.2%}); {paths}"


def quotient(contest: Contest, setting: str) -> float:
    return contest.median(setting, "batch") / contest.median(setting, "refresh", "insert")
