"""TPC-H with its refresh functions: after RF1 and RF2, each query refreshed and recomputed.

RF1 adds new orders with their line items, RF2 deletes old ones with theirs; each a thousandth of the orders, whose keys
follow each other, as those of TPC-H's own generator do. A last round at a larger scale has the change of scale 1.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.contest import Contest
from benchmarks.group_by import session
from benchmarks.tpc import ORDERS, benchmark, generate
from deltafold.api import Delta, Policy, View, Warehouse
from deltafold.spark.cache import cache_folder

ROWS_OF_A_FILE = 500_000
KEYS = 6_000_000  # the greatest key of an order at scale factor 1
ROUNDS = 2  # of refresh functions; the first of several warms everybody up


def run(scales: list[float], numbers: list[int], policy: Policy, rounds: int = ROUNDS, *, verify: bool = True) -> None:
    """All scale factors, then the geometric means."""
    spark = session()
    contest = Contest(spark, cache_folder("benchmarks", "tpch"))
    ratios: list[tuple[str, float, str]] = []
    for scale in scales:
        views = one_scale(contest, spark, scale, numbers, policy, rounds)
        for view in views if verify else ():
            verification = view.verify()
            if not verification.ok:
                raise SystemExit(verification.sentence)
        changed = [n for n in numbers if any(lap.jobs for lap in contest.of(f"SF {scale:g} Q{n}", "refresh", "round"))]
        quotients = {n: quotient(contest, scale, n) for n in changed}  # the others read no table that changes
        if scale > scales[0]:
            ratios += [growth(contest, scale, scales[0], n) for n in changed]
        ratios += [(f"SF {scale:g} Q{n}: recompute / refresh", q, "at least 0.95") for n, q in quotients.items()]
        mean = statistics.geometric_mean(quotients.values())
        target = "at least 5" if scale >= 10 else "at least 2.5"
        ratios += [(f"SF {scale:g}: geometric mean", mean, target), *choices(contest, scale, changed)]
    spark.stop()
    contest.show(f"TPC-H, RF1 and RF2, policy {policy}", ratios, cache_folder("benchmarks") / "tpch.json")


def quotient(contest: Contest, scale: float, number: int) -> float:
    setting = f"SF {scale:g} Q{number}"
    return contest.median(setting, "recompute", "round") / contest.median(setting, "refresh", "round")


def growth(contest: Contest, scale: float, least: float, number: int) -> tuple[str, float, str]:
    """Return how much longer a refresh by the same change takes, in more data."""
    name = f"SF {scale:g} Q{number}: refresh by a change of SF {least:g} / refresh there"
    before = contest.median(f"SF {least:g} Q{number}", "refresh", "round")
    return name, contest.median(f"SF {scale:g} Q{number}", "refresh", "same") / before, "at most 1.2"


def choices(contest: Contest, scale: float, numbers: list[int]) -> list[tuple[str, float, str]]:
    """Return how often a refresh was no slower than a recompute, and what all slower ones lost, as shares.

    What a refresh that recomputed would have taken otherwise is not known.
    """
    medians = [
        [contest.median(f"SF {scale:g} Q{n}", who, "round") for who in ("refresh", "recompute")] for n in numbers
    ]
    right = sum(refresh <= 1.05 * recompute for refresh, recompute in medians) / len(medians)
    lost = sum(max(0, refresh - recompute) for refresh, recompute in medians) / sum(map(min, medians))
    return [(f"SF {scale:g}: not slower", right, "at least 0.95"), (f"SF {scale:g}: lost", lost, "at most 0.05")]


def one_scale(
    contest: Contest, spark: SparkSession, scale: float, numbers: list[int], policy: Policy, rounds: int
) -> list[View]:
    """Load every view, then some rounds of refresh functions."""
    folder = cache_folder("benchmarks", "tpch", f"{scale:g}")
    names = prepare(spark, folder, scale, rounds)
    warehouse = Warehouse(spark, folder / "warehouse")
    for name in names:
        warehouse.source(name, Delta(str(folder / "run" / name)))
    queries = benchmark("tpch").queries
    views = {n: warehouse.view(f"q{n}", queries[n], policy=policy) for n in numbers}
    for number, view in views.items():
        contest.lap(f"SF {scale:g} Q{number}", "load", "refresh", view.refresh)
    for i in range(rounds):
        refresh_functions(spark, folder, scale, i)
        for number, view in views.items():
            setting = f"SF {scale:g} Q{number}"
            step = f"round-{i}" if i or rounds == 1 else "warm-up"
            tables = {name: spark.read.format("delta").load(str(folder / "run" / name)) for name in names}
            contest.lap(setting, step, "recompute", lambda v=view, t=tables: recompute(v, t, folder))
            contest.lap(setting, step, "refresh", view.refresh)
    refresh_functions(spark, folder, scale, rounds, KEYS // 1000)
    for number, view in views.items():
        contest.lap(f"SF {scale:g} Q{number}", "same", "refresh", view.refresh)
    return list(views.values())


def recompute(view: View, tables: dict[str, DataFrame], folder: Path) -> None:
    """The query by plain Spark, written as a table."""
    for name, frame in tables.items():
        frame.createOrReplaceTempView(name)
    answer = view.warehouse.spark.sql(str(view.query))
    answer = answer.toDF(*(f"c{i}" for i in range(len(answer.columns))))  # some names are not for Delta
    answer.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(
        str(folder / "run" / "recomputed" / view.name)
    )


def prepare(spark: SparkSession, folder: Path, scale: float, rounds: int) -> list[str]:
    """Generate the tables once; link them for this run; keep a thousandth of the orders back for each RF1."""
    made = folder / "generated"
    if not (made / "done").exists():
        for name, parquet in generate("tpch", scale, folder / "parquet").items():
            writer = spark.read.parquet(str(parquet)).write.format("delta").mode("overwrite")
            writer = writer.option("delta.enableDeletionVectors", "true").option("maxRecordsPerFile", ROWS_OF_A_FILE)
            writer.save(str(made / name))
        shutil.rmtree(folder / "parquet")
        (made / "done").touch()
    names = sorted(path.name for path in made.iterdir() if path.is_dir())
    shutil.rmtree(folder / "run", ignore_errors=True)
    shutil.rmtree(folder / "warehouse", ignore_errors=True)
    shutil.copytree(made, folder / "run")
    for name, key in ORDERS.items():
        spark.sql(f"delete from delta.`{folder / 'run' / name}` where {between(key, scale, 0, rounds + 1)}")
    return names


def between(key: str, scale: float, first: int, number: int = 1, most: int | None = None) -> str:
    """Some thousandths of the orders, by their keys; those that are kept back for RF1 are the first. most: of keys."""
    least, greatest = (int(KEYS * scale * i / 1000) for i in (first, first + number))
    return f"{key} > {least} and {key} <= {greatest if most is None else min(greatest, least + most)}"


def refresh_functions(spark: SparkSession, folder: Path, scale: float, i: int, most: int | None = None) -> None:
    """RF1 and RF2 of one round; most: the greatest difference of their keys."""
    for name, key in ORDERS.items():
        kept_back = f"select * from delta.`{folder / 'generated' / name}` where {between(key, scale, i, 1, most)}"
        spark.sql(f"insert into delta.`{folder / 'run' / name}` {kept_back}")
        spark.sql(f"delete from delta.`{folder / 'run' / name}` where {between(key, scale, 500 + i, 1, most)}")
