"""Measure the cost of a refresh: Spark jobs, records read and written, and seconds of each phase."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from pyspark.sql import SparkSession

from deltafold.spark import catalyst
from deltafold.spark.catalyst import JavaError

# The origin of jobs, for which Spark otherwise reads Java's stack at each plan node, where no line of Python is.
CALL_SITE = ("callSite.short", "callSite.long")


@dataclass
class Cost:
    """Totals of one refresh; seconds are elapsed time."""

    jobs: int = 0
    rows_read: int = 0
    rows_written: int = 0
    phases: dict[str, float] = field(default_factory=dict[str, float])
    seconds: float = 0.0


class Measure:
    """Counts the Spark work inside `with measure.all()`, by Spark's own job groups and stage metrics."""

    def __init__(self, spark: SparkSession, progress: Callable[[str], None] | None = None) -> None:
        self._spark = spark
        self._progress = progress
        self.cost = Cost()

    @contextmanager
    def all(self, title: str) -> Generator[Cost]:
        """Count all jobs within the block; the totals are complete after it."""
        context = self._spark.sparkContext
        group = f"deltafold-{uuid.uuid4()}"
        start = time.monotonic()
        context.setJobGroup(group, title)
        sites = {name: context.getLocalProperty(name) for name in CALL_SITE}
        for name in CALL_SITE:
            context.setLocalProperty(name, title)
        try:
            yield self.cost
        finally:
            catalyst.context(self._spark).clearJobGroup()
            for name, site in sites.items():
                context.setLocalProperty(name, cast(Any, site))  # None removes it
            self._count(group)
            self.cost.seconds = time.monotonic() - start

    @contextmanager
    def phase(self, name: str) -> Generator[None]:
        """Time one phase; its seconds are added under its name."""
        if self._progress is not None:
            self._progress(name)
        start = time.monotonic()
        try:
            yield
        finally:
            self.cost.phases[name] = self.cost.phases.get(name, 0.0) + time.monotonic() - start

    def _count(self, group: str) -> None:
        context = catalyst.context(self._spark)
        context.listenerBus().waitUntilEmpty()
        store = context.statusStore()
        jobs = self._spark.sparkContext.statusTracker().getJobIdsForGroup(group)
        self.cost.jobs += len(jobs)
        for job in jobs:
            stages = str(store.job(job).stageIds().mkString(" "))
            for stage in stages.split():
                try:
                    attempt = store.lastStageAttempt(int(stage))
                except JavaError:
                    continue  # a skipped stage, whose output existed already, has no metrics
                self.cost.rows_read += int(attempt.inputRecords())
                self.cost.rows_written += int(attempt.outputRecords())
