"""Write a view's metrics as files for Prometheus' textfile collector.

With DELTAFOLD_METRICS=FOLDER two small files per view are written there, each replaced atomically. There is no port to
scrape; node_exporter needs `--collector.textfile.directory=FOLDER`.

    deltafold-<view>-<digest of its folder>.view.prom       its state: after every operation, and a `status`
    deltafold-<view>-<digest of its folder>.refresh.prom    whether the last refresh or rollback succeeded

The age is `time() - deltafold_epoch_finished_timestamp_seconds`. The lag is measured when the file is written:
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

from deltafold.algebra.errors import DeltafoldWarning
from deltafold.algebra.local_path import local_path
from deltafold.algebra.results.report import Report
from deltafold.algebra.results.upkeep import Status
from deltafold.lake.protocol import VersionedTable
from deltafold.refresh.sources.upstream import Inputs
from deltafold.spark.cache import SetupError
from deltafold.store.snapshot import status_of
from deltafold.store.view_store import Store

METRICS_VARIABLE = "DELTAFOLD_METRICS"
FAMILIES = {
    "epoch": "Number of the last finished epoch.",
    "generation": "Generation of the last finished epoch; a rebuild starts a new one.",
    "epoch_finished_timestamp_seconds": "Time when the last finished epoch ended.",
    "epoch_seconds": "Duration of the last finished epoch.",
    "epoch_change_rows": "Rows of the change in the last finished epoch.",
    "epoch_groups": "Groups touched by the last finished epoch.",
    "epoch_rows_read": "Records read by the last finished epoch.",
    "epoch_rows_written": "Records written by the last finished epoch.",
    "epoch_jobs": "Spark jobs of the last finished epoch.",
    "epoch_commits": "Delta commits of the last finished epoch.",
    "epoch_verdict": "1 for the verdict of the last finished epoch.",
    "losses": "Rebuilds so far because a source had lost what the last epoch read.",
    "epoch_unfinished": "1 if an epoch was interrupted.",
    "source_lag_versions": "Versions of a source since the last finished epoch.",
    "source_lag_rows": "Rows added to and removed from a source since then, if its log records them.",
    "table_files": "Files of a table's latest version.",
    "table_bytes": "Bytes of a table's latest version.",
    "table_fragmented_partitions": "Partitions of a table that the next upkeep would rewrite.",
    "refresh_success": "1 if the last refresh or rollback succeeded.",
    "refresh_timestamp_seconds": "Time when the last refresh or rollback ended or failed.",
    "refresh_seconds": "Duration of the last refresh or rollback, also if it failed.",
}
GaugeSample = tuple[str, dict[str, str], float]  # family, labels, value


@dataclass(frozen=True)
class Metrics:
    """The files of one view."""

    folder: Path
    store: Store

    def write_state(self, status: Status) -> None:
        """Write the gauges of a view's status and of its last finished epoch."""
        done = self.store.journal.last_complete()
        samples = list(_status_samples(status))
        if done is not None:
            samples += [("losses", {}, done.intent.losses), *_report_samples(done.report)]
        self._write("view", samples)

    def write_attempt(self, seconds: float, *, succeeded: bool) -> None:
        """Write success, end and duration of a refresh."""
        samples: list[GaugeSample] = [
            ("refresh_success", {}, float(succeeded)),
            ("refresh_timestamp_seconds", {}, time.time()),
            ("refresh_seconds", {}, seconds),
        ]
        self._write("refresh", samples)

    def forget(self) -> None:
        """Remove the files of the view."""
        for kind in ("view", "refresh"):
            self._file(kind).unlink(missing_ok=True)

    def _file(self, kind: str) -> Path:
        digest = hashlib.sha256(str(self.store.folder.resolve()).encode("utf-8", "replace")).hexdigest()[:8]
        return self.folder / f"deltafold-{self.store.view}-{digest}.{kind}.prom"

    def _write(self, kind: str, samples: Sequence[GaugeSample]) -> None:
        own = {"view": self.store.view, "warehouse": str(self.store.folder.resolve().parents[1])}
        try:
            gauges = gauges_of([(name, own | labels, value) for name, labels, value in samples])
            write_to_textfile(str(self._file(kind)), gauges)
        except OSError as error:  # a warning: metrics must not fail the work itself
            warnings.warn(f"metrics not written: {self._file(kind)}: {error.strerror}", DeltafoldWarning, stacklevel=2)


def metrics_of(store: Store) -> Metrics | None:
    """Return the metrics of a view, None if disabled; raises SetupError for a folder that is not writable."""
    configured = os.environ.get(METRICS_VARIABLE)
    if not configured:
        return None
    folder = local_path(METRICS_VARIABLE, configured, SetupError)
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise SetupError(f"{METRICS_VARIABLE}: {folder} is not a writable folder. Create it, or name another.")
    return Metrics(folder, store)


def status_with_metrics(store: Store, base: Callable[[str], VersionedTable]) -> Status:
    """Return the status of a view and write it as metrics; base: a base source's table, by its path through views."""
    status = status_of(store, base)
    if metrics := metrics_of(store):
        metrics.write_state(status)
    return status


@contextmanager
def update_metrics(store: Store, inputs: Inputs, *, attempt: bool = True) -> Generator[None]:
    """Write the metrics of a view and of those below it after the block; attempt: the block is a refresh."""
    metrics = metrics_of(store)
    if metrics is None:
        yield
        return
    start = time.monotonic()
    succeeded = False
    try:
        yield
        succeeded = True
    finally:
        if attempt:
            metrics.write_attempt(time.monotonic() - start, succeeded=succeeded)
    _write_states(metrics, inputs)


def _write_states(metrics: Metrics, inputs: Inputs) -> None:
    """Write the status of a view and of all views below it."""
    for below in inputs.chain.values():
        replace(metrics, store=below.store).write_state(status_of(below.store, below.inputs.bases.__getitem__))
    metrics.write_state(status_of(metrics.store, inputs.bases.__getitem__))


def _status_samples(status: Status) -> Iterator[GaugeSample]:
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


def _report_samples(report: Report) -> Iterator[GaugeSample]:
    """Yield the samples of a report."""
    for name in ("epoch", "generation"):
        yield name, {}, getattr(report, name)
    for name in ("seconds", "change_rows", "groups", "rows_read", "rows_written", "jobs", "commits"):
        yield f"epoch_{name}", {}, getattr(report, name)
    yield "epoch_finished_timestamp_seconds", {}, datetime.fromisoformat(report.finished).timestamp()
    yield "epoch_verdict", {"verdict": report.verdict}, 1


def gauges_of(samples: Sequence[GaugeSample]) -> CollectorRegistry:
    """Return samples as gauges by family; bytes of a label that are not UTF-8 become `?`."""
    registry = CollectorRegistry()
    for family, description in FAMILIES.items():
        of_family = [(labels, value) for name, labels, value in samples if name == family]
        if of_family:
            gauge = Gauge(f"deltafold_{family}", description, list(of_family[0][0]), registry=registry)
            for labels, value in of_family:
                gauge.labels(*(label.encode("utf-8", "replace").decode() for label in labels.values())).set(value)
    return registry
