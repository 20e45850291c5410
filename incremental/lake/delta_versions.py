"""Call the methods of Delta whose parameters differ between its releases.

| Delta | Spark | differs from 4.4 |
| --- | --- | --- |
| 4.4 | 4.2 | |
| 4.1 to 4.3 | 4.0, 4.1 | the fields of AddFile, which are given as JSON (log/actions.py); the settings of a write |
| 4.0 | 4.0 | also: `getChangeLogFiles` knows no catalog, `getSnapshotAt` no limit of time travel |
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from incremental.spark import catalyst
from incremental.spark.catalyst import J
from incremental.spark.java_errors import has_method


def commit_files_of(spark: SparkSession, log: J, first: int, last: int) -> J:
    """Return an iterator of the versions from `first` to `last` with the files of their commits."""
    if has_method(log, "getChangeLogFiles$default$3"):
        return log.getChangeLogFiles(first, last, catalyst.none(spark), True)
    return log.getChangeLogFiles(first, last, True)


def snapshot_at(log: J, version: int) -> J:
    """Return a version of a table; raises JavaError if it does not exist any more."""
    last = 4 if has_method(log, "getSnapshotAt$default$4") else 3
    return log.getSnapshotAt(version, *(getattr(log, f"getSnapshotAt$default${i}")() for i in range(2, last + 1)))
