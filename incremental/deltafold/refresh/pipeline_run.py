"""Refresh the datasets of a pipeline together: all to one version of each source, each after those that it reads.

The version of each source is looked up once, at the start; that of a table which a dataset of the run writes (a
streaming table), after that. A dataset that reads another one pins the epoch that this run left it at, so a source that
changes during the run is not seen before the next one. A dataset that fails is reported; what reads it is skipped, all
others are refreshed. Each dataset is an ordinary refresh with a journal and a lock of its own, so a run that was
stopped anywhere is finished by the next one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from threading import RLock

from pyspark.sql import SparkSession

from deltafold.algebra.errors import LostSparkError, QueryError
from deltafold.algebra.results.pipeline_report import FAILED, KEPT, REFRESHED, SKIPPED, DatasetResult, PipelineReport
from deltafold.algebra.results.report import NOTHING_TO_DO, Report
from deltafold.lake.protocol import VersionedTable
from deltafold.lake.remote.remote_path import Place
from deltafold.refresh.shared_changes import SharedChange
from deltafold.refresh.sources.upstream import Done, Progress
from deltafold.spark.threads import spark_threads
from deltafold.telemetry import now


@dataclass(frozen=True)
class RunState:
    """What the datasets of a run share: the version of each source, the datasets refreshed so far, and changes.

    targets, changes: by the location of the table.
    """

    targets: dict[str, int]
    changes: Mapping[str, SharedChange] = field(default_factory=dict[str, SharedChange])
    done: Done = field(default_factory=Done)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A view of a pipeline, or a table that is written otherwise.

    reads: the folders of the datasets that it reads; refresh: to the versions of a run, returns a number of rows if it
    is no view; tables: its base tables, at any depth, by their location; columns: likewise, those of the tables that it
    reads itself; writes: the tables that others read as base tables; origin: where it is declared; fault: why it cannot
    be refreshed, such as a cycle that it is in.
    """

    name: str
    folder: Place
    reads: tuple[Place, ...]
    refresh: Callable[[RunState, Progress | None], Report | int]
    tables: Mapping[str, VersionedTable] = field(default_factory=dict[str, VersionedTable])
    columns: Mapping[str, Collection[str]] = field(default_factory=dict[str, Collection[str]])
    writes: Mapping[str, VersionedTable] = field(default_factory=dict[str, VersionedTable])
    origin: str = ""
    fault: Exception | None = None


def refresh_datasets(
    datasets: Sequence[Dataset],
    progress: Progress | None,
    spark: SparkSession,
    threads: int,
    explain: Callable[[Exception], str] = str,
) -> PipelineReport:
    """Refresh all datasets; raises LostSparkError if Spark ends, and nothing else that a dataset raises.

    threads: the number of datasets that are refreshed at the same time; progress is called by one thread at a time;
    explain: returns the message of an exception for the report.
    """
    start = time.monotonic()
    ordered = {dataset.folder: dataset for dataset in order_datasets(datasets)}
    tables = {place: table for dataset in datasets for place, table in dataset.tables.items()}
    written = {place for dataset in datasets for place in dataset.writes}
    latest = look_up_versions({place: table for place, table in tables.items() if place not in written})
    results = dict[Place, DatasetResult]()
    step = progress and call_singly(progress)
    waiting = TopologicalSorter({folder: dataset.reads for folder, dataset in ordered.items()})
    waiting.prepare()
    running = dict[Future[DatasetResult], Place]()
    with ExitStack() as cached, spark_threads(spark, threads) as begin:
        state = RunState(latest, changes=share_changes(datasets, cached))
        while waiting.is_active():
            for folder in waiting.get_ready():
                running[begin(partial(_refresh, ordered[folder], results, state, step, explain))] = folder
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                folder = running.pop(future)
                results[folder] = future.result()
                waiting.done(folder)
    return PipelineReport(
        datasets=tuple(results[folder] for folder in ordered),
        versions=dict(state.targets),
        shared={place: change.uses for place, change in state.changes.items() if change.uses > change.reads},
        seconds=time.monotonic() - start,
        finished=now(),
    )


def share_changes(datasets: Sequence[Dataset], cached: ExitStack) -> dict[str, SharedChange]:
    """Return the changes of the tables that several datasets read, which are read once, by the tables' location."""
    readers = Counter(place for dataset in datasets for place in dataset.columns)
    return {
        place: SharedChange(
            tuple(sorted({name for dataset in datasets for name in dataset.columns.get(place, ())})), cached
        )
        for place, number in readers.items()
        if number > 1
    }


def call_singly(progress: Progress) -> Progress:
    """Return a function that calls another one in one thread at a time."""
    turn = RLock()

    def step(sentence: str) -> None:
        with turn:
            progress(sentence)

    return step


def look_up_versions(tables: Mapping[str, VersionedTable]) -> dict[str, int]:
    """Return the latest version of each source by the location of its table; absent without a table."""
    latest = dict[str, int]()
    for place, table in tables.items():
        with suppress(Exception):  # raised again for the datasets that read it
            if (version := table.version()) is not None:
                latest[place] = version
    return latest


def order_datasets(datasets: Sequence[Dataset]) -> tuple[Dataset, ...]:
    """Return the datasets in an order in which each is after those that it reads; those in a cycle fail in the run."""
    by_folder = {dataset.folder: dataset for dataset in datasets}
    while True:
        try:
            order = TopologicalSorter({folder: each.reads for folder, each in by_folder.items()}).static_order()
            return tuple(by_folder[folder] for folder in order)
        except CycleError as error:
            cycle: Sequence[Place] = error.args[1]
            names = " → ".join(by_folder[folder].name for folder in reversed(cycle))
            fault = QueryError(f"views {names}: they read each other in a cycle. Give one of them another name.")
            for folder in cycle:
                by_folder[folder] = replace(by_folder[folder], reads=(), fault=fault)


def _refresh(
    dataset: Dataset,
    results: Mapping[Place, DatasetResult],
    state: RunState,
    progress: Progress | None,
    explain: Callable[[Exception], str],
) -> DatasetResult:
    """Refresh a dataset; results: of those that it reads, at least."""
    read = [results[folder] for folder in dataset.reads]
    failed = {name for result in read if not result.ok for name in (result.because or (result.name,))}
    reads = tuple(result.name for result in read)
    result = DatasetResult(name=dataset.name, origin=dataset.origin, outcome=SKIPPED, reads=reads)
    start = time.monotonic()
    if failed:
        result = replace(result, because=tuple(sorted(failed)))
    else:
        try:
            if dataset.fault is not None:
                raise dataset.fault
            done = dataset.refresh(state, progress and (lambda step: progress(f"{dataset.name}: {step}")))
            for place, version in look_up_versions(dataset.writes).items():
                state.targets[place] = version
            seconds = time.monotonic() - start
            if isinstance(done, Report):
                outcome = KEPT if done.kept else REFRESHED if done.has_effect else NOTHING_TO_DO
                result = replace(result, outcome=outcome, report=done, seconds=seconds)
            else:
                outcome = REFRESHED if done else NOTHING_TO_DO
                result = replace(result, outcome=outcome, rows=done, seconds=seconds)
        except LostSparkError:
            raise
        except Exception as error:
            seconds = time.monotonic() - start
            cause, kind = explain(error), type(error).__name__
            result = replace(result, outcome=FAILED, error=cause, error_type=kind, seconds=seconds)
    if progress is not None:
        progress(result.sentence)
    return result
