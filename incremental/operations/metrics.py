"""Write a view's metrics as files for Prometheus' textfile collector.

With DELTAFOLD_METRICS=FOLDER two small files per view are kept there, each written and then renamed: no port listens,
and nothing is needed beside node_exporter's `--collector.textfile.directory=FOLDER`.

    deltafold-<view>-<digest of its folder>.view.prom       its state: after every operation, and a `status`
    deltafold-<view>-<digest of its folder>.refresh.prom    whether the last refresh or rollback succeeded

An age is `time() - deltafold_epoch_finished_timestamp_seconds`. The lag is measured when the file is written:
`deltafold status`, every few minutes, keeps it current if refreshes are rare.
"""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from incremental.algebra.errors import DeltafoldWarning
from incremental.algebra.local_path import local_path
from incremental.algebra.results.report import Report
from incremental.algebra.results.upkeep import Status
from incremental.lake.protocol import VersionedTable
from incremental.refresh.upstream import Inputs
from incremental.spark.cache import SetupError
from incremental.store.snapshot import status_of
from incremental.store.view_store import Store

VARIABLE = "DELTAFOLD_METRICS"
FAMILIES = {
    "epoch": "Number of the last finished epoch.",
    "generation": "Generation of the last finished epoch; a rebuild begins a new one.",
    "epoch_finished_timestamp_seconds": "When the last finished epoch ended.",
    "epoch_seconds": "How long the last finished epoch took.",
    "epoch_change_rows": "Rows of the change in the last finished epoch.",
    "epoch_groups": "Groups that the last finished epoch touched.",
    "epoch_rows_read": "Records that the last finished epoch read.",
    "epoch_rows_written": "Records that the last finished epoch wrote.",
    "epoch_jobs": "Spark jobs of the last finished epoch.",
    "epoch_commits": "Delta commits of the last finished epoch.",
    "epoch_verdict": "1 for the verdict of the last finished epoch.",
    "epoch_unfinished": "Whether an epoch was interrupted.",
    "source_lag_versions": "Versions that a source has gone on since the last finished epoch.",
    "source_lag_rows": "Rows that came to or left a source since then, where its log tells.",
    "table_files": "Files of a table's latest version.",
    "table_bytes": "Bytes of a table's latest version.",
    "table_fragmented_partitions": "Partitions of a table that the next upkeep would rewrite.",
    "refresh_success": "Whether the last refresh or rollback ended well.",
    "refresh_timestamp_seconds": "When the last refresh or rollback ended, well or not.",
    "refresh_seconds": "How long the last refresh or rollback took, well or not.",
}
GaugeSample = tuple[str, dict[str, str], float]  # family, labels, value


@dataclass(frozen=True)
class Metrics:
    """The files of one view."""

    folder: Path
    store: Store

    def base_versions(self, status: Status) -> None:
        """Write the gauges of the state of the view."""
        done = self.store.journal.arrived()
        report = None if done is None else done.report
        self._write("view", [*standing_of(status), *(() if report is None else epoch_of(report))])

    def attempted(self, succeeded: bool, seconds: float) -> None:
        """Write whether the last refresh succeeded."""
        ended = [("refresh_success", float(succeeded)), ("refresh_timestamp_seconds", time.time())]
        self._write("refresh", [(name, {}, value) for name, value in [*ended, ("refresh_seconds", seconds)]])

    def forget(self) -> None:
        """Remove the files."""
        for kind in ("view", "refresh"):
            self._file(kind).unlink(missing_ok=True)

    def _file(self, kind: str) -> Path:
        digest = hashlib.sha256(str(self.store.folder.resolve()).encode("utf-8", "replace")).hexdigest()[:8]
        return self.folder / f"deltafold-{self.store.view}-{digest}.{kind}.prom"

    def _write(self, kind: str, samples: Sequence[GaugeSample]) -> None:
        own = {"view": self.store.view, "warehouse": str(self.store.folder.resolve().parents[1])}
        try:
            gauges = registry([(name, own | labels, value) for name, labels, value in samples])
            write_to_textfile(str(self._file(kind)), gauges)
        except OSError as error:  # the work itself is done, or has failed for another reason
            warnings.warn(f"{self._file(kind)} was not written ({error.strerror})", DeltafoldWarning, stacklevel=2)


def metrics_of(store: Store) -> Metrics | None:
    """Return the metrics of a view if they are enabled; raises SetupError for a folder that is not writable."""
    configured = os.environ.get(VARIABLE)
    if not configured:
        return None
    folder = local_path(VARIABLE, configured, SetupError)
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise SetupError(f"{VARIABLE} names {folder}, which is not a writable folder. Create it, or name another.")
    return Metrics(folder, store)


def status_with_metrics(store: Store, base: Callable[[str], VersionedTable]) -> Status:
    """Where a view stands, which its metrics tell too; base: the table of a base source by the way to it."""
    status, metrics = status_of(store, base), metrics_of(store)
    if metrics is not None:
        metrics.base_versions(status)
    return status


@contextmanager
def update_metrics(store: Store, inputs: Inputs, attempt: bool = True) -> Generator[None]:
    """Keep the metrics of a view, and of the views below it, over some work; attempt: the work was to refresh it."""
    metrics, start, succeeded = metrics_of(store), time.monotonic(), False
    if metrics is None:
        yield
        return
    try:
        yield
        succeeded = True
    finally:
        if attempt:
            metrics.attempted(succeeded, time.monotonic() - start)
    measure_refresh(metrics, inputs)


def measure_refresh(metrics: Metrics, inputs: Inputs) -> None:
    """Write the state of a view and of all views below it."""
    for below in inputs.chain.values():
        replace(metrics, store=below.store).base_versions(status_of(below.store, below.inputs.bases.__getitem__))
    metrics.base_versions(status_of(metrics.store, inputs.bases.__getitem__))


def standing_of(status: Status) -> Iterator[GaugeSample]:
    """Yield the samples of a status."""
    yield "epoch_unfinished", {}, float(status.unfinished is not None)
    for source, lag in status.lag.items():
        yield "source_lag_versions", {"source": source}, lag.versions
        if lag.rows is not None:
            yield "source_lag_rows", {"source": source}, lag.rows
    for table, size in status.tables.items():
        yield "table_files", {"table": table}, size.files
        yield "table_bytes", {"table": table}, size.bytes
        yield "table_fragmented_partitions", {"table": table}, size.fragmented


def epoch_of(report: Report) -> Iterator[GaugeSample]:
    """Yield the samples of a report."""
    for name in ("epoch", "generation"):
        yield name, {}, getattr(report, name)
    for name in ("seconds", "change_rows", "groups", "rows_read", "rows_written", "jobs", "commits"):
        yield f"epoch_{name}", {}, getattr(report, name)
    yield "epoch_finished_timestamp_seconds", {}, datetime.fromisoformat(report.finished).timestamp()
    yield "epoch_verdict", {"verdict": report.verdict}, 1


def registry(samples: Sequence[GaugeSample]) -> CollectorRegistry:
    """Return samples as gauges, family by family; bytes of a label that are not UTF-8 become `?`."""
    found = CollectorRegistry()
    for family, description in FAMILIES.items():
        of_family = [(labels, value) for name, labels, value in samples if name == family]
        if of_family:
            gauge = Gauge(f"deltafold_{family}", description, list(of_family[0][0]), registry=found)
            for labels, value in of_family:
                gauge.labels(*(label.encode("utf-8", "replace").decode() for label in labels.values())).set(value)
    return found
