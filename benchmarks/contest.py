"""Time named actions side by side: seconds, jobs and records read, as a table and JSON."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from incremental.algebra.results.report import Report
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


class Contest:
    """Collects laps; every contestant is measured by the same means."""

    def __init__(self, spark: SparkSession | None) -> None:
        self._spark = spark
        self.laps: list[Lap] = []

    def lap(self, setting: str, step: str, who: str, action: Callable[[], object], commits: int) -> Lap:
        """Run and time one action on this process's Spark."""
        assert self._spark is not None
        measure = Measure(self._spark)
        start = time.monotonic()
        with measure.all(f"{who} {step}"):
            result = action()
        seconds = time.monotonic() - start
        # a refresh counts its own jobs, by the same means
        cost = result if isinstance(result, Report) else measure.cost
        return self.add(Lap(setting, step, who, seconds, cost.jobs, commits, cost.rows_read, cost.rows_written))

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
            "setting", "step", "who", "median s", "laps", "jobs", "commits", "rows read", "rows written", title=title
        )
        steps = {(p.setting, p.step.split("-")[0], p.who): p for p in self.laps}
        for (setting, step, who), last in steps.items():
            laps = self.seconds(setting, who, step)
            costs = (last.jobs, last.commits, last.rows_read, last.rows_written)
            table.add_row(setting, step, who, f"{statistics.median(laps):.2f}", str(len(laps)), *map(str, costs))
        summary = Table("ratio", "measured", "target", title="ratios of medians within this run")
        for name, value, target in ratios:
            summary.add_row(name, f"{value:.2f}", target)
        console = Console(width=140)
        console.print(table, summary)
        file.parent.mkdir(parents=True, exist_ok=True)
        content = {"title": title, "laps": [asdict(lap) for lap in self.laps], "ratios": [list(r) for r in ratios]}
        file.write_text(json.dumps(content, indent=1))
        console.print(f"written: {file}")
