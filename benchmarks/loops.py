"""Reachability over a random graph, one edge added or removed at a time: a refresh against the batch recursion.

100,000 edges over 25,000 nodes by default, kept by `fixpoint`; the batch is the same function, which runs by itself.
"""

from __future__ import annotations

import shutil
import statistics

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from benchmarks.contest import Contest
from benchmarks.group_by import session
from deltafold.api import Delta, Report, Warehouse, fixpoint
from deltafold.spark.cache import cache_folder

SIZES = [100_000]
DEGREE = 4  # edges of a node
CHANGES = 20  # half of them remove an edge
BATCHES = 3
WARM_UPS = 8  # changes before those that count, which take as long as the one run of the batch before those that do


def reachable(edges: DataFrame, starts: DataFrame) -> DataFrame:
    """Nodes that a path from a start leads to."""
    return fixpoint(starts.select("node"), lambda reached: reached.join(edges, reached.node == edges.src).select("dst"))


def run(sizes: list[int]) -> None:
    """All sizes, then what a refresh takes of a batch, and its rounds."""
    spark = session()
    contest = Contest(spark, cache_folder("benchmarks", "loops"))
    for edges in sizes:
        one_size(contest, spark, edges)
    ratios = [
        (f"{edges:,}: batch / refresh, {step} an edge", quotient(contest, f"{edges:,}", step), "at least 10")
        for edges in sizes
        for step in ("add", "remove")
    ]
    spark.stop()
    contest.show("reachability, one edge", ratios, cache_folder("benchmarks") / "loops.json")


def one_size(contest: Contest, spark: SparkSession, edges: int) -> None:
    """First load, then one edge at a time, then the batch."""
    folder = cache_folder("benchmarks", "loops", str(edges))
    setting = f"{edges:,}"
    shutil.rmtree(folder, ignore_errors=True)
    columns = (f"CAST(rand({seed}) * {edges // DEGREE} AS INT) {name}" for seed, name in ((1, "src"), (2, "dst")))
    graph = spark.range(edges).selectExpr(*columns).coalesce(1)
    graph.write.format("delta").option("delta.enableDeletionVectors", "true").save(str(folder / "edges"))
    spark.range(1).selectExpr("CAST(id AS INT) node").write.format("delta").save(str(folder / "starts"))
    warehouse = Warehouse(spark, folder / "warehouse")
    for name in ("edges", "starts"):
        warehouse.source(name, Delta(str(folder / name)))
    view = warehouse.view("reached", reachable)
    reports = list[Report]()
    contest.lap(setting, "load", "refresh", view.refresh)
    chosen = [tuple(row) for row in graph.orderBy(F.rand(7)).limit(WARM_UPS + CHANGES).collect()]
    for number, (src, dst) in enumerate(chosen):
        if number % 2:
            spark.sql(f"delete from delta.`{folder / 'edges'}` where src = {src} and dst = {dst}")
        else:
            spark.sql(f"insert into delta.`{folder / 'edges'}` values ({src}, {dst + 1})")
        step = f"{'remove' if number % 2 else 'add'}-{number}" if number >= WARM_UPS else "warm-up"
        contest.lap(setting, step, "refresh", lambda: reports.append(view.refresh()) or reports[-1])
    for number in range(1 + BATCHES):
        contest.lap(setting, f"batch-{number}" if number else "warm-up", "batch", lambda: view.batch().count())
    show_rounds(setting, reports)
    verification = view.verify()
    if not verification.ok:
        raise SystemExit(verification.sentence)


def quotient(contest: Contest, setting: str, step: str) -> float:
    return contest.median(setting, "batch", "batch") / contest.median(setting, "refresh", step)


def show_rounds(setting: str, reports: list[Report]) -> None:
    """Print what the refreshes did, beside what they cost."""
    rounds = [sum(len(rows) for phases in r.rounds.values() for rows in phases.values()) for r in reports]
    touched = [report.change_rows for report in reports]
    jobs = [report.jobs for report in reports]
    Console().print(
        f"{setting}: rounds median {statistics.median(rounds)}, most {max(rounds)}; candidates touched median "
        f"{statistics.median(touched)}, most {max(touched)}; jobs median {statistics.median(jobs)}, most {max(jobs)}"
    )
