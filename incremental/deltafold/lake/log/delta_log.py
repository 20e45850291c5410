"""Open Delta's log of a table and read its versions; within a refresh a log is listed and a version read once."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.algebra.local_path import is_uri
from deltafold.lake.remote.objects import refuse_store
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J, JavaError
from deltafold.spark.java_errors import as_storage_error, causes, conditions, first_line, is_caused_by, storage_errors

MOST_VERSIONS = 64  # that a refresh keeps; each chunk of a change reads others


@dataclass(frozen=True)
class _Snapshots:
    """The tables whose logs were listed, by path, and the snapshots of earlier versions by path, table id and version.

    A version never changes, but another table may have been made at the path since (D-054).
    """

    listed: set[str] = field(default_factory=set[str])
    earlier: dict[tuple[str, str, int], J] = field(default_factory=dict[tuple[str, str, int], J])


_cached: ContextVar[_Snapshots | None] = ContextVar("cached", default=None)


@contextmanager
def cached_snapshots() -> Generator[None]:
    """List each table's log once within the block, and read each earlier version once (D-072).

    Commits of this process are seen without listing the log again.
    """
    token = _cached.set(_Snapshots())
    try:
        yield
    finally:
        _cached.reset(token)


def latest_snapshot(spark: SparkSession, path: str, log: J) -> J:
    """Return the latest version of a table: as of now, or within `cached_snapshots` as of its first listing.

    Raises StorageError for a store at a URI that does not answer and for a folder that may not be read, and SourceError
    for a table that only its catalog or a later release of Delta can read.
    """
    cached = _cached.get()
    if cached is not None and path in cached.listed:
        return log.unsafeVolatileSnapshot()  # Delta's own, which each commit of this process replaces
    none = catalyst.none(spark)
    try:
        snapshot = log.update(False, none, none)
    except JavaError as error:
        if is_uri(path) and is_caused_by(error, "java.io.IOException"):
            raise refuse_store(path, error) from error
        if (explained := refuse_features(path, error) or as_storage_error(error, path, reads=True)) is None:
            raise
        raise explained from error
    if cached is not None:
        cached.listed.add(path)
    return snapshot


def snapshot_at(path: str, log: J, latest: J, version: int) -> J:
    """Return an earlier version of a table, of which `latest` is the latest one; raises Delta's JavaError."""
    cached = _cached.get()
    key = (path, str(latest.metadata().id()), version)
    if cached is not None and key in cached.earlier:
        return cached.earlier[key]
    snapshot = log.getSnapshotAt(version, *(getattr(log, f"getSnapshotAt$default${i}")() for i in (2, 3, 4)))
    if cached is not None:
        if len(cached.earlier) >= MOST_VERSIONS:
            cached.earlier.clear()
        cached.earlier[key] = snapshot
    return snapshot


def refuse_features(path: str, error: Exception) -> SourceError | None:
    """Return the error for a table that has features which forbid reading it by its log, None if that is not why."""
    names = " ".join(conditions(error))
    if "PATH_BASED_ACCESS_TO_CATALOG_MANAGED" in names:
        return SourceError(
            f"the Delta table at {path}: its catalog manages its commits, and its log may lack the latest ones. Copy "
            "its rows to a table without the feature catalogManaged, and declare that."
        )
    if "DELTA_UNSUPPORTED_FEATURES_FOR_READ" in names:
        return SourceError(
            f"the Delta table at {path}: {first_line(causes(error)[0]).rstrip('.')}. Drop these features of the table, "
            "or declare a copy of it."
        )
    return None


def open_log(spark: SparkSession, path: str, label: str, catalog_table: J | None = None) -> J:
    """Return Delta's log of the table at a path, cached by Delta; label: the table's name in errors.

    catalog_table: as a catalog gave it, with what its file system needs, such as credentials. Raises SourceError if
    its file system cannot be reached.
    """
    session = catalyst.activate(spark)
    try:
        if catalog_table is not None:
            return catalog_table.deltaLog()
        return catalyst.sql(spark).delta.DeltaLog.forTable(session, path)
    except JavaError as error:
        reason = first_line(causes(error)[-1])
        raise SourceError(
            f"the Delta table {label} cannot be opened: {reason}. Correct the address, or give Spark the jars and "
            "settings of its file system."
        ) from error


def refuse_hidden_log(path: str) -> None:
    """Raise StorageError for a local folder that may not be read, which Delta takes for one without a table."""
    if not is_uri(path):
        with suppress(FileNotFoundError, NotADirectoryError), storage_errors(path, reads=True):
            next(Path(path, "_delta_log").iterdir(), None)


def class_named(java: J, name: str) -> J:
    """Return a class of Delta by its full name; `Class.forName` does not see jars that Spark added after its start."""
    return java.org.apache.spark.util.Utils.classForName(name, True, False)
