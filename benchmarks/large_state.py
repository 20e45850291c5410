"""A state of many groups: `select k, avg(v) group by k` over as many keys as rows, and increments of few random keys.

Every increment adds rows to 40,000 keys, which are everywhere in the state, so no file can be skipped. Side by side: a
full recompute, a hand-written Delta MERGE of the same increment into a table of the same columns, and a refresh; warm.
"""

from __future__ import annotations

import os
import shutil

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.contest import Contest
from benchmarks.group_by import session
from deltafold.api import Delta, Warehouse
from deltafold.spark.cache import cache_folder

QUERY = "select k, avg(v) mean from pairs group by k"
SIZES = [1_000_000, 10_000_000]
TOUCHED = 40_000
ROUNDS = 5
OTHERS = ("recompute", "bare merge")


def run(sizes: list[int], rounds: int = ROUNDS) -> None:
    """All sizes, then the ratios."""
    spark = session()
    contest = Contest(spark, cache_folder("benchmarks", "large_state"))
    for keys in sizes:
        one_size(contest, spark, keys, rounds)
    spark.stop()
    ratios = [
        (f"{keys:,} keys: {who} / refresh, warm", quotient(contest, keys, who), "at least 1")
        for keys in sizes
        for who in OTHERS
    ]
    contest.show("select k, avg(v) group by k", ratios, cache_folder("benchmarks") / "large_state.json")


def quotient(contest: Contest, keys: int, who: str) -> float:
    setting = f"{keys:,} keys"
    return contest.median(setting, who, "increment") / contest.median(setting, "refresh", "increment")


def one_size(contest: Contest, spark: SparkSession, keys: int, rounds: int) -> None:
    """First load, then some increments, every contestant after each; the first warms everybody up."""
    folder = cache_folder("benchmarks", "large_state", str(keys))
    source, bare, generated = (str(folder / name) for name in ("run/pairs", "run/bare", "generated"))
    shutil.rmtree(folder / "run", ignore_errors=True)
    if not (folder / "generated" / "_delta_log").exists():
        spark.range(keys).selectExpr("id k", "CAST(rand(1) * 1000000 AS INT) v").write.format("delta").save(generated)
    shutil.copytree(generated, source, copy_function=os.link)
    warehouse = Warehouse(spark, folder / "run" / "warehouse")
    warehouse.source("pairs", Delta(source))
    view = warehouse.view("means", QUERY)
    setting = f"{keys:,} keys"

    def recompute() -> None:
        answer = spark.read.format("delta").load(source).groupBy("k").agg(F.avg("v").alias("mean"))
        answer.write.format("delta").mode("overwrite").save(str(folder / "run" / "recomputed"))

    contest.lap(setting, "load", "refresh", view.refresh)
    load_bare(spark, source, bare)
    for i in range(rounds):
        rows = increment(spark, keys, i)
        rows.write.format("delta").mode("append").save(source)
        step = f"increment-{i}" if i else "warm-up"
        contest.lap(setting, step, "recompute", recompute)
        contest.lap(setting, step, "bare merge", lambda rows=rows: bare_merge(spark, bare, rows))
        contest.lap(setting, step, "refresh", view.refresh)
    verification = view.verify()
    if not verification.ok:
        raise SystemExit(verification.sentence)


def increment(spark: SparkSession, keys: int, number: int) -> DataFrame:
    """One more row for some random keys."""
    columns = (f"CAST(rand({100 + number}) * {keys} AS BIGINT) k", "CAST(id AS INT) v")
    return spark.range(TOUCHED).selectExpr(*columns).coalesce(1)


def partial_sums(rows: DataFrame) -> DataFrame:
    """What the hand-written pipeline keeps per key."""
    return rows.groupBy("k").agg(F.sum("v").alias("s"), F.count("v").alias("n"))


def load_bare(spark: SparkSession, source: str, bare: str) -> None:
    writer = partial_sums(spark.read.format("delta").load(source)).write.format("delta")
    writer.option("delta.enableDeletionVectors", "true").save(bare)


def bare_merge(spark: SparkSession, bare: str, rows: DataFrame) -> None:
    merge = DeltaTable.forPath(spark, bare).alias("t").merge(partial_sums(rows).alias("u"), "t.k = u.k")
    merge.whenMatchedUpdate(set={"s": "t.s + u.s", "n": "t.n + u.n"}).whenNotMatchedInsertAll().execute()
