"""Time named actions side by side: seconds, CPU, jobs, calls and records, as a table and JSON."""

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

from incremental.algebra.results.report import Report
from incremental.spark import catalyst
from incremental.spark.job_stats import Measure


@dataclass(frozen=True)
class Lap:
    """One timed action: who, in which setting, and what it cost."""

    setting: str
    step: str
    who: str
    seconds: float
    jobs: int
    commits: int
    rows_read: int
    rows_written: int
    cpu_seconds: float = 0.0  # of Spark's Java
    calls: int = 0  # through Py4J


@contextmanager
def counted_calls() -> Generator[list[int]]:
    """Count the calls into Java within the block; the one item is their number."""
    send, found = JavaClient.send_command, [0]

    def counting(*args: Any, **kwargs: Any) -> Any:
        found[0] += 1
        return send(*args, **kwargs)

    JavaClient.send_command = counting
    try:
        yield found
    finally:
        JavaClient.send_command = send


def cpu_seconds(spark: SparkSession) -> float:
    """Return the CPU time that Spark's Java has taken so far."""
    used = catalyst.jvm(spark).java.lang.ProcessHandle.current().info().totalCpuDuration()
    return float(used.get().toMillis()) / 1000


class Contest:
    """Collects laps; every contestant is measured by the same means."""

    def __init__(self, spark: SparkSession | None) -> None:
        self._spark = spark
        self.laps: list[Lap] = []

    def lap(self, setting: str, step: str, who: str, action: Callable[[], object], commits: int) -> Lap:
        """Run and time one action on this process's Spark."""
        assert self._spark is not None
        measure, cpu = Measure(self._spark), cpu_seconds(self._spark)
        start = time.monotonic()
        with counted_calls() as calls, measure.all(f"{who} {step}"):
            result = action()
        seconds, cpu = time.monotonic() - start, cpu_seconds(self._spark) - cpu
        # a refresh counts its own jobs, by the same means
        cost = result if isinstance(result, Report) else measure.cost
        counts = cost.jobs, commits, cost.rows_read, cost.rows_written
        return self.add(Lap(setting, step, who, seconds, *counts, cpu, calls[0]))

    def add(self, lap: Lap) -> Lap:
        """Keep a lap that was measured elsewhere, and say so."""
        self.laps.append(lap)
        Console().print(f"{lap.setting:>12} {lap.step:<10} {lap.who:<12} {lap.seconds:8.2f} s  {lap.jobs:3d} jobs")
        return lap

    def seconds(self, setting: str, who: str, step: str = "") -> list[float]:
        """All laps of one contestant whose step begins so."""
        return [p.seconds for p in self.laps if (p.setting, p.who) == (setting, who) and p.step.startswith(step)]

    def median(self, setting: str, who: str, step: str = "") -> float:
        """The median of these laps, in seconds."""
        return statistics.median(self.seconds(setting, who, step))

    def show(self, title: str, ratios: Sequence[tuple[str, float, str]], file: Path) -> None:
        """Print medians and ratios (name, value, target) and write everything as JSON."""
        table = Table(
            "setting", "step", "who", "median s", "p90 s", "laps", "CPU s", "calls", "jobs", "commits", "rows read",
            "rows written", title=title,
        )  # fmt: skip
        steps = {(p.setting, p.step.split("-")[0], p.who): p for p in self.laps}
        for (setting, step, who), last in steps.items():
            laps = self.seconds(setting, who, step)
            costs = (last.calls, last.jobs, last.commits, last.rows_read, last.rows_written)
            median, p90 = statistics.median(laps), sorted(laps)[int(0.9 * (len(laps) - 1) + 0.5)]
            times = f"{median:.2f}", f"{p90:.2f}", str(len(laps)), f"{last.cpu_seconds:.2f}"
            table.add_row(setting, step, who, *times, *map(str, costs))
        summary = Table("ratio", "measured", "target", title="ratios of medians within this run")
        for name, value, target in ratios:
            summary.add_row(name, f"{value:.2f}", target)
        console = Console(width=160)
        console.print(table, summary)
        file.parent.mkdir(parents=True, exist_ok=True)
        content = {"title": title, "laps": [asdict(lap) for lap in self.laps], "ratios": [list(r) for r in ratios]}
        file.write_text(json.dumps(content, indent=1))
        console.print(f"written: {file}")
