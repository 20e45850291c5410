"""`select x, avg(y) group by x` on a standalone cluster of two workers: 10 million and 1,000 million rows.

Increments of 40,000 rows, a batch, and the first load again while a worker is killed; then load and batch on one
worker. A worker is a process of one core and 2 GB, so a machine with two cores shows what two of them gain.
"""

from __future__ import annotations

import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from deltafold.api import Delta, View, Warehouse
from deltafold.spark.cache import cache_folder
from deltafold.spark.session import start
from tests.crash.cluster.machines import Cluster, cluster

SIZES = [10_000_000, 1_000_000_000]
QUERY = "select x, avg(y) mean from pairs group by x"
KEYS = 10_001
CHANGED = 40_000
INCREMENTS = 6
ROWS_OF_A_FILE = 20_000_000
KILLED_AFTER = 0.5  # of the time that the same load took before

Seconds = dict[tuple[str, int, str], float]
"""Medians by the workers, the rows and what was done."""


def pairs(spark: SparkSession, rows: int, seed: int) -> DataFrame:
    """Random pairs in two narrow columns."""
    files = max(1, rows // ROWS_OF_A_FILE)
    columns = (f"CAST(rand({seed}) * {KEYS} AS INT) x", f"CAST(rand({seed + 1}) * 250 AS SMALLINT) y")
    return spark.range(0, rows, 1, files).selectExpr(*columns)


def run(sizes: list[int]) -> None:
    """All sizes on two workers, the largest one again on one worker, then the ratios."""
    folder = cache_folder("benchmarks", "workers")
    times = Seconds()
    with workers(folder, 2) as (machines, spark):
        for rows in sizes:
            view = opened(spark, folder, rows)
            times["two", rows, "load"] = seconds(view.refresh)
            times["two", rows, "refresh"] = increments(spark, folder, view, rows)
            times["two", rows, "batch"] = statistics.median(
                seconds(lambda v=view: v.batch().collect()) for _ in range(2)
            )
            check(view)
        view = opened(spark, folder, sizes[-1])
        killed = threading.Timer(times["two", sizes[-1], "load"] * KILLED_AFTER, machines.kill_a_worker)
        killed.start()
        times["one killed", sizes[-1], "load"] = seconds(view.refresh)
        killed.join()
        check(view)
    with workers(folder, 1) as (_, spark):
        view = opened(spark, folder, sizes[-1])
        times["one", sizes[-1], "load"] = seconds(view.refresh)
        times["one", sizes[-1], "batch"] = seconds(lambda: view.batch().collect())
    show(times, sizes)


@contextmanager
def workers(folder: Path, number: int) -> Generator[tuple[Cluster, SparkSession]]:
    """A cluster and a session on it, both ended with the block."""
    logs = folder / f"cluster-{number}"
    shutil.rmtree(logs, ignore_errors=True)
    with cluster(logs, number, memory="2G") as machines:
        settings = {"spark.executor.memory": "1600m", "spark.local.dir": str(logs)}
        spark = start("workers", master=machines.address, memory="2g", settings=settings)
        try:
            yield machines, spark
        finally:
            spark.stop()


def opened(spark: SparkSession, folder: Path, rows: int) -> View:
    """A new view of a source that is generated once and copied by links."""
    generated = folder / f"generated-{rows}"
    run_folder = folder / "run"
    if not (generated / "_delta_log").exists():
        pairs(spark, rows, 1).write.format("delta").save(str(generated))
    shutil.rmtree(run_folder, ignore_errors=True)
    shutil.copytree(generated, run_folder / "pairs", copy_function=os.link)
    warehouse = Warehouse(spark, run_folder / "warehouse")
    warehouse.source("pairs", Delta(str(run_folder / "pairs")))
    return warehouse.view("means", QUERY)


def increments(spark: SparkSession, folder: Path, view: View, rows: int) -> float:
    """The median of the refreshes after each increment; the first one is not counted."""
    taken: list[float] = []
    for number in range(INCREMENTS + 1):
        change = pairs(spark, CHANGED, 100 + number).coalesce(1)
        change.write.format("delta").mode("append").save(str(folder / "run" / "pairs"))
        taken.append(seconds(view.refresh))
        Console().print(f"{rows:>15,} {view.history()[-1].sentence}")
    return statistics.median(taken[1:])


def seconds(work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def check(view: View) -> None:
    """End the benchmark where the view is wrong."""
    verification = view.verify()
    if not verification.ok:
        raise SystemExit(verification.sentence)


def show(times: Seconds, sizes: list[int]) -> None:
    """Print all medians, and the ratios within this run."""
    table = Table("workers", "rows", "work", "seconds", title=QUERY)
    for (who, rows, work), taken in times.items():
        table.add_row(who, f"{rows:,}", work, f"{taken:.2f}")
    small = sizes[0]
    large = sizes[-1]
    ratios = Table("ratio", "measured", "target")
    for name, over, under, target in (
        ("refresh, largest / smallest", ("two", large, "refresh"), ("two", small, "refresh"), "at most 1.5"),
        ("batch / refresh", ("two", large, "batch"), ("two", large, "refresh"), ""),
        ("batch, one worker / two", ("one", large, "batch"), ("two", large, "batch"), ""),
        ("load, one worker / two", ("one", large, "load"), ("two", large, "load"), ""),
        ("load, one of two killed / two", ("one killed", large, "load"), ("two", large, "load"), ""),
    ):
        ratios.add_row(name, f"{times[over] / times[under]:.2f}", target)
    Console(width=120).print(table, ratios)
