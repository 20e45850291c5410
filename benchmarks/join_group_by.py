"""The second experiment of MRQL (section 13): `select x.A, avg(y.D) from S1 x, S2 y where x.B = y.C group by x.A`.

At the paper's size (100 K pairs in each source, keys 0..10,000) and at 100 times that (with 100 times the keys of the
join, else the recompute alone would join ten thousand million pairs). Each increment changes both sources by 0.1 %:
insertions, and deletions of earlier rows. Side by side: a full recompute with Spark, and a refresh; warm.
"""

from __future__ import annotations

import shutil

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.contest import Contest
from benchmarks.group_by import session
from deltafold.api import Delta, Warehouse
from deltafold.spark.cache import cache_folder

QUERY = "select x.a, avg(y.d) mean from s1 x join s2 y on x.b = y.c group by x.a"
PAPER_ROWS = 100_000
PAPER_KEYS = 10_001
SIZES = [PAPER_ROWS, 100 * PAPER_ROWS]
INCREMENTS = 5
COLUMNS = {"s1": ("a", "b"), "s2": ("d", "c")}


def run(sizes: list[int]) -> None:
    """All sizes, then the ratio that the project aims at."""
    spark = session()
    contest = Contest(spark, cache_folder("benchmarks", "join_group_by"))
    for rows in sizes:
        one_size(contest, spark, rows)
    ratios = [
        (f"{rows:,}: recompute / refresh, warm", quotient(contest, f"{rows:,}"), "at least 5 for a 0.1 % change")
        for rows in sizes
    ]
    spark.stop()
    contest.show("select x.a, avg(y.d) … group by x.a", ratios, cache_folder("benchmarks") / "join_group_by.json")


def quotient(contest: Contest, setting: str) -> float:
    return contest.median(setting, "recompute", "increment") / contest.median(setting, "refresh", "increment")


def one_size(contest: Contest, spark: SparkSession, rows: int) -> None:
    """First load, then increments of both sources."""
    folder = cache_folder("benchmarks", "join_group_by", str(rows))
    shutil.rmtree(folder, ignore_errors=True)
    keys = PAPER_KEYS * max(1, rows // PAPER_ROWS)
    for name in COLUMNS:
        append(spark, str(folder / name), name, rows, keys, seed=1)
    warehouse = Warehouse(spark, folder / "warehouse")
    for name in COLUMNS:
        warehouse.source(name, Delta(str(folder / name)))
    view = warehouse.view("means", QUERY)
    setting = f"{rows:,}"

    def recompute() -> None:
        tables = {name: spark.read.format("delta").load(str(folder / name)) for name in COLUMNS}
        joined = tables["s1"].join(tables["s2"], F.expr("b = c")).groupBy("a").agg(F.avg("d").alias("mean"))
        joined.write.format("delta").mode("overwrite").save(str(folder / "recomputed"))

    contest.lap(setting, "load", "refresh", view.refresh)
    for i in range(INCREMENTS + 1):
        for name, (_, key) in COLUMNS.items():
            append(spark, str(folder / name), name, rows // 2000, keys, seed=100 + i)
            spark.sql(f"delete from delta.`{folder / name}` where {key} % 4001 = {i}")  # a few rows in each file
        step = f"increment-{i}" if i else "warm-up"
        contest.lap(setting, step, "recompute", recompute)
        contest.lap(setting, step, "refresh", view.refresh)
    verification = view.verify()
    if not verification.ok:
        raise SystemExit(verification.sentence)


def append(spark: SparkSession, path: str, name: str, rows: int, keys: int, seed: int) -> None:
    """Random pairs."""
    shown, key = COLUMNS[name]
    columns = (f"CAST(rand({seed}) * {PAPER_KEYS} AS INT) {shown}", f"CAST(rand({seed + 7}) * {keys} AS INT) {key}")
    pairs = spark.range(rows).selectExpr(*columns)
    pairs = pairs if rows > PAPER_ROWS else pairs.coalesce(1)
    writer = pairs.write.format("delta").mode("append").option("delta.enableDeletionVectors", "true")
    writer.save(path)
