"""Time named actions side by side: seconds, CPU, jobs, calls, records and bytes, as a table and JSON."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from py4j.clientserver import JavaClient  # pyright: ignore[reportMissingTypeStubs]
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from deltafold.algebra.results.pipeline_report import PipelineReport
from deltafold.algebra.results.report import Report
from deltafold.spark import catalyst
from deltafold.spark.job_stats import Measure


@dataclass(frozen=True, kw_only=True)
class Lap:
    """One timed action: who, in which setting, and what it cost; None is what was not measured."""

    setting: str
    step: str
    who: str
    seconds: float
    jobs: int | None = None
    commits: int | None = None  # of Delta tables
    rows_read: int | None = None
    rows_written: int | None = None
    cpu_seconds: float | None = None  # of Spark's Java
    calls: int | None = None  # through Py4J
    bytes_read: int | None = None
    compilations: int | None = None  # of code that Spark generates


@contextmanager
def count_calls() -> Generator[list[int]]:
    """Count the calls into Java within the block; the one item is their number."""
    send = JavaClient.send_command
    calls = [0]

    def counting(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        return send(*args, **kwargs)

    JavaClient.send_command = counting
    try:
        yield calls
    finally:
        JavaClient.send_command = send


def cpu_seconds(spark: SparkSession) -> float:
    """Return the CPU time that Spark's Java has taken so far."""
    used = catalyst.jvm(spark).java.lang.ProcessHandle.current().info().totalCpuDuration()
    return float(used.get().toMillis()) / 1000


def bytes_read(spark: SparkSession) -> int:
    """Return the bytes of files that all tasks so far have read."""
    context = catalyst.context(spark)
    context.listenerBus().waitUntilEmpty()
    return int(context.statusStore().executorSummary("driver").totalInputBytes())


def compilations(spark: SparkSession) -> int:
    """Return how often Spark has compiled generated code so far."""
    metrics = catalyst.module(catalyst.jvm(spark).org.apache.spark.metrics.source, "CodegenMetrics")
    return int(metrics.METRIC_COMPILATION_TIME().getCount())


Commit = tuple[Path, int]
"""The file of a commit, and when it was written in nanoseconds, as a table can be made anew."""


def list_commits(folder: Path) -> set[Commit]:
    """Return the commits of all Delta tables below a folder on this machine."""
    return {(file, file.stat().st_mtime_ns) for file in folder.rglob(f"_delta_log/{'[0-9]' * 20}.json")}


class Contest:
    """Collects laps; every contestant is measured by the same means. folder: has the tables that they write."""

    def __init__(self, spark: SparkSession | None, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self.laps: list[Lap] = []

    def lap(self, setting: str, step: str, who: str, action: Callable[[], object]) -> Lap:
        """Run and time one action on this process's Spark."""
        assert self._spark is not None
        commits_before = list_commits(self._folder)
        measure = Measure(self._spark)
        cpu_before = cpu_seconds(self._spark)
        read_before = bytes_read(self._spark)
        compiled_before = compilations(self._spark)
        start = time.monotonic()
        with count_calls() as calls, measure.all(f"{who} {step}"):
            result = action()
        seconds = time.monotonic() - start
        # a refresh counts its own jobs, by the same means
        cost = result if isinstance(result, Report | PipelineReport) else measure.cost
        lap = Lap(
            setting=setting,
            step=step,
            who=who,
            seconds=seconds,
            jobs=cost.jobs,
            commits=len(list_commits(self._folder) - commits_before),
            rows_read=cost.rows_read,
            rows_written=cost.rows_written,
            cpu_seconds=cpu_seconds(self._spark) - cpu_before,
            calls=calls[0],
            bytes_read=bytes_read(self._spark) - read_before,
            compilations=compilations(self._spark) - compiled_before,
        )
        return self.add(lap)

    def add(self, lap: Lap) -> Lap:
        """Keep a lap that was measured elsewhere, and say so."""
        self.laps.append(lap)
        jobs = "" if lap.jobs is None else f"{lap.jobs:3d} jobs"
        Console().print(f"{lap.setting:>12} {lap.step:<10} {lap.who:<12} {lap.seconds:8.2f} s  {jobs}")
        return lap

    def of(self, setting: str, who: str, step: str = "") -> list[Lap]:
        """All laps of one contestant whose step begins so."""
        return [p for p in self.laps if (p.setting, p.who) == (setting, who) and p.step.startswith(step)]

    def median(self, setting: str, who: str, step: str = "") -> float:
        """The median of these laps, in seconds."""
        return statistics.median(lap.seconds for lap in self.of(setting, who, step))

    def show(self, title: str, ratios: Sequence[tuple[str, float, str]], file: Path) -> None:
        """Print medians and ratios (name, value, target) and write everything as JSON."""
        names = "setting", "step", "who", "median s", "p90 s", "laps", "CPU s", "compiled", "calls", "jobs"
        more = "commits", "rows read", "bytes read", "rows written"
        table = Table(*names, *more, title=f"{title}: medians, and p90 of the seconds")
        for setting, step, who in dict.fromkeys((p.setting, p.step.split("-")[0], p.who) for p in self.laps):
            table.add_row(setting, step, who, *summary(self.of(setting, who, step)))
        targets = Table("ratio", "measured", "target", title="ratios of medians within this run")
        for name, value, target in ratios:
            targets.add_row(name, f"{value:.2f}", target)
        console = Console(width=180)
        console.print(table, targets)
        file.parent.mkdir(parents=True, exist_ok=True)
        content = {"title": title, "laps": [asdict(lap) for lap in self.laps], "ratios": [list(r) for r in ratios]}
        fresh = file.with_suffix(".part")  # renamed when complete: the demo reads the file
        fresh.write_text(json.dumps(content, indent=1))
        fresh.replace(file)
        console.print(f"written: {file}")


def summary(laps: Sequence[Lap]) -> list[str]:
    """The cells of a table's row: median and p90 of the seconds, number of laps, medians of the other costs."""
    seconds = sorted(lap.seconds for lap in laps)
    times = f"{statistics.median(seconds):.2f}", f"{seconds[int(0.9 * (len(laps) - 1) + 0.5)]:.2f}", str(len(laps))
    counts = ("compilations", "calls", "jobs", "commits", "rows_read", "bytes_read", "rows_written")
    return [*times, median_cost(laps, "cpu_seconds", 2), *(median_cost(laps, name, 0) for name in counts)]


def median_cost(laps: Sequence[Lap], name: str, digits: int) -> str:
    """The median of a cost, a dash where it was not measured."""
    costs = [cost for lap in laps if (cost := getattr(lap, name)) is not None]
    return f"{statistics.median(costs):.{digits}f}" if costs else "–"
