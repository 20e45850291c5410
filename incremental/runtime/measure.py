"""Runtime room: what a refresh cost. In: the Spark jobs of a group. Out: jobs, records read and written, seconds a phase."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from incremental import catalyst
from incremental.catalyst import J


@dataclass
class Cost:
    """Running totals of one refresh."""

    jobs: int = 0
    rows_read: int = 0
    rows_written: int = 0
    commits: int = 0
    phases: dict[str, float] = field(default_factory=dict[str, float])
    seconds: float = 0.0


class Measure:
    """Counts what runs inside `with measure.all()`, by Spark's own job group and stage metrics."""

    def __init__(self, spark: SparkSession, progress: Callable[[str], None] | None = None) -> None:
        self._spark, self._progress = spark, progress or (lambda _: None)
        self.cost = Cost()

    @contextmanager
    def all(self, title: str) -> Iterator[Cost]:
        """Everything between start and end counts; the totals are complete after the block."""
        context = self._spark.sparkContext
        group, start = f"deltafold-{uuid.uuid4()}", time.monotonic()
        context.setJobGroup(group, title)
        try:
            yield self.cost
        finally:
            context._jsc.clearJobGroup()  # type: ignore[attr-defined]
            self._count(group)
            self.cost.seconds = time.monotonic() - start

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """One phase; its seconds are added under its name."""
        self._progress(name)
        start = time.monotonic()
        try:
            yield
        finally:
            self.cost.phases[name] = self.cost.phases.get(name, 0.0) + time.monotonic() - start

    def _count(self, group: str) -> None:
        context = self._spark.sparkContext
        scala: J = context._jsc.sc()  # type: ignore[attr-defined]
        bus, store = scala.listenerBus(), scala.statusStore()
        bus.waitUntilEmpty()
        jobs = context.statusTracker().getJobIdsForGroup(group)
        self.cost.jobs += len(jobs)
        for job in jobs:
            stages = store.job(job).stageIds()
            for stage in catalyst.sequence(stages):
                try:
                    attempt = store.lastStageAttempt(stage)
                except Py4JJavaError:
                    continue  # a stage that Spark skipped, its output being there already, leaves no record
                self.cost.rows_read += int(attempt.inputRecords())
                self.cost.rows_written += int(attempt.outputRecords())
