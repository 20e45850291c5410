"""The first experiment of MRQL (section 13): `select x, avg(y) group by x` over random pairs, and increments of it.

At the paper's size (1 M rows, nine increments of 10 to 40 K, 10,001 keys), and at 10 and 100 M rows. Side by side:
a full recompute with Spark, a hand-written Delta MERGE of the same increment, and a refresh; warm and cold.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.contest import Contest, Lap
from deltafold.api import Delta, View, Warehouse
from deltafold.spark.cache import cache_folder
from deltafold.spark.session import start

QUERY = "select x, avg(y) mean from pairs group by x"
KEYS = 10_001
INCREMENTS = tuple(range(10_000, 41_000, 3_750))  # nine of them
RECOMPUTED = (1, 5, 9)  # increments after which the full recompute is timed as well
MEMORY = "6g"


def pairs(spark: SparkSession, rows: int, seed: int) -> DataFrame:
    """Random pairs with keys 0..10,000."""
    columns = (f"CAST(rand({seed}) * {KEYS} AS INT) x", f"CAST(rand({seed + 1}) * 1000000 AS INT) y")
    return spark.range(rows).selectExpr(*columns)


def partial_sums(rows: DataFrame) -> DataFrame:
    """What the hand-written pipeline keeps per key."""
    return rows.groupBy("x").agg(F.sum("y").alias("s"), F.count("y").alias("n"))


class Arena:
    """One size: a cached source, a copy of it to append to, and what each contestant keeps."""

    def __init__(self, spark: SparkSession, rows: int) -> None:
        self.spark = spark
        self.rows = rows
        self.folder = cache_folder("benchmarks", "group_by", str(rows))
        self.cached = self.folder / "generated"
        self.source = self.folder / "run" / "pairs"

    def prepare(self) -> None:
        """Generate the source once; copy it by links; generate the increments."""
        if not (self.cached / "_delta_log").exists():
            pairs(self.spark, self.rows, 1).write.format("delta").mode("overwrite").save(str(self.cached))
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        shutil.copytree(self.cached, self.source, copy_function=os.link)
        for i, rows in enumerate(INCREMENTS, 1):
            pairs(self.spark, rows, 100 * i).coalesce(1).write.parquet(str(self.increment(i)))

    def increment(self, i: int) -> Path:
        return self.folder / "run" / f"increment-{i}"

    def view(self) -> View:
        warehouse = Warehouse(self.spark, self.folder / "run" / "warehouse")
        warehouse.source("pairs", Delta(str(self.source)))
        return warehouse.view("means", QUERY)

    def recompute(self) -> None:
        answer = self.spark.read.format("delta").load(str(self.source)).groupBy("x").agg(F.avg("y").alias("mean"))
        answer.write.format("delta").mode("overwrite").save(str(self.folder / "run" / "recomputed"))

    def bare_load(self) -> None:
        sums = partial_sums(self.spark.read.format("delta").load(str(self.source)))
        writer = sums.repartition(1).write.format("delta").option("delta.enableDeletionVectors", "true")
        writer.save(str(self.folder / "run" / "bare"))

    def bare_merge(self, i: int) -> None:
        change = partial_sums(self.spark.read.parquet(str(self.increment(i))))
        table = DeltaTable.forPath(self.spark, str(self.folder / "run" / "bare"))
        merge = table.alias("t").merge(change.alias("u"), "t.x = u.x")
        merge = merge.whenMatchedUpdate(set={"s": "t.s + u.s", "n": "t.n + u.n"}).whenNotMatchedInsertAll()
        merge.execute()

    def append(self, i: int) -> None:
        self.spark.read.parquet(str(self.increment(i))).write.format("delta").mode("append").save(str(self.source))


# Spark does not count bytes that Parquet's own threads read; on a local disk they are no quicker
VECTORED = "spark.hadoop.parquet.hadoop.vectored.io.enabled"


def session() -> SparkSession:
    """The same Spark for every contestant."""
    return start("benchmarks", memory=MEMORY, settings={VECTORED: "false"})


def run(sizes: list[int]) -> None:
    """All sizes, then the ratios that the project aims at."""
    spark = session()
    contest = Contest(spark, cache_folder("benchmarks", "group_by"))
    for rows in sizes:
        one_size(contest, Arena(spark, rows))
    spark.stop()
    for rows in sizes:
        for who in ("recompute", "bare merge", "refresh"):
            contest.add(cold(rows, who))
    contest.show("select x, avg(y) group by x", ratios(contest, sizes), cache_folder("benchmarks") / "group_by.json")


def one_size(contest: Contest, arena: Arena) -> None:
    """First load, then nine increments, every contestant after each."""
    arena.prepare()
    setting = f"{arena.rows:,}"
    view = arena.view()
    contest.lap(setting, "load", "bare merge", arena.bare_load)
    contest.lap(setting, "load", "refresh", view.refresh)
    for i in range(1, len(INCREMENTS) + 1):
        arena.append(i)
        # the first increment warms everybody up: it is not counted
        step = f"increment-{i}" if i > 1 else "warm-up"
        if i in RECOMPUTED:
            contest.lap(setting, step, "recompute", arena.recompute)
        contest.lap(setting, step, "bare merge", lambda i=i: arena.bare_merge(i))
        contest.lap(setting, step, "refresh", view.refresh)
    verification = view.verify()
    if not verification.ok:
        raise SystemExit(verification.sentence)


def cold(rows: int, who: str) -> Lap:
    """A process of its own, from its start to its end, for one increment."""
    begin = time.monotonic()
    subprocess.run([sys.executable, "-m", "benchmarks.group_by", str(rows), who], check=True)
    seconds = time.monotonic() - begin
    return Lap(setting=f"{rows:,}", step="cold", who=who, seconds=seconds)


def cold_action(rows: int, who: str) -> None:
    """What a cold process does: the last increment once more."""
    arena = Arena(session(), rows)
    match who:
        case "recompute":
            arena.recompute()
        case "bare merge":
            arena.bare_merge(len(INCREMENTS))
        case _:
            arena.append(len(INCREMENTS))
            arena.view().refresh()


def ratios(contest: Contest, sizes: list[int]) -> list[tuple[str, float, str]]:
    """The targets: refresh against bare MERGE and against recompute, and the largest size against the one before."""
    measured: list[tuple[str, float, str]] = []
    for rows in sizes:
        setting = f"{rows:,}"
        ours = contest.median(setting, "refresh", "increment")
        bare = contest.median(setting, "bare merge", "increment")
        full = contest.median(setting, "recompute", "increment")
        measured.append((f"{setting}: refresh / bare merge, warm", ours / bare, "at most 0.35"))
        measured.append((f"{setting}: recompute / refresh, warm", full / ours, "at least 5 at 100,000,000"))
        cold_ours, cold_bare = (contest.median(setting, who, "cold") for who in ("refresh", "bare merge"))
        measured.append((f"{setting}: refresh / bare merge, cold", cold_ours / cold_bare, ""))
    for small, large in pairwise(sizes):
        ours = [contest.median(f"{rows:,}", "refresh", "increment") for rows in (large, small)]
        measured.append((f"refresh at {large:,} / at {small:,}", ours[0] / ours[1], "at most 1.5"))
    return measured


if __name__ == "__main__":
    cold_action(int(sys.argv[1]), sys.argv[2])
