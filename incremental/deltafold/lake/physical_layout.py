"""Control the physical layout of a Delta table: partitions, compaction, vacuum, shallow clones.

A compaction is one commit that changes no row (`dataChange` is false, so that the change feeds of other tools see
nothing) and keeps the marks of epochs.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from delta import tables
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.local_path import is_uri
from deltafold.algebra.program import BUCKET
from deltafold.algebra.sqltext import quoted
from deltafold.lake.delta_table import DeltaTable
from deltafold.lake.log.commit_log import first_removal
from deltafold.lake.log.file_lists import partition_files
from deltafold.lake.protocol import HOUR, MARGIN_HOURS, PartitionFiles, VersionedTable
from deltafold.lake.remote.objects import usage
from deltafold.spark import catalyst
from deltafold.spark.catalyst import JavaError


class Storage(DeltaTable):
    """One Delta table, with the operations on its files."""

    def partitions(self, small_bytes: int) -> tuple[PartitionFiles, ...]:
        """Return the partitions of the latest version; one for an unpartitioned table. small_bytes: see Tuning."""
        return partition_files(self.spark, self._latest(), small_bytes)

    def sort(self, buckets: Sequence[str], keys: Sequence[str], files: int, metadata: str) -> None:
        """Rewrite some buckets of a state sorted by its lineage key: each as one file, or all as about `files`."""
        version = self.version()
        assert version is not None
        condition = f"{BUCKET} IN ({', '.join(buckets)})"
        rows = arrange(self.at(version).where(condition), len(buckets), keys, files)
        options = {"dataChange": "false", "replaceWhere": condition, "userMetadata": metadata}
        rows.write.format("delta").mode("overwrite").options(**options).save(self.path)

    def restore(self, version: int) -> None:
        """Make the rows of an earlier version the latest ones, by Delta's RESTORE."""
        tables.DeltaTable.forPath(self.spark, self.path).restoreToVersion(version)

    def compact(self, condition: str) -> None:
        """Run Delta's OPTIMIZE on the partitions that fulfil a condition; `true` for all."""
        # in SQL, since Delta's own builder does not quote a backtick in the path; it takes no WHERE without partitions
        where = "" if condition == "true" else f" WHERE {condition}"
        cast(Any, self.spark).sql(f"OPTIMIZE delta.{quoted(self.path)}{where}").collect()

    def remove_older(self, hours: float) -> None:
        """Vacuum: remove the files that no version of the last `hours` uses, rounded up to whole hours."""
        # in a session of its own, so that no other write gets these settings
        spark = catalyst.isolate_session(self.spark)
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        spark.conf.set("spark.databricks.delta.vacuum.logging.enabled", "false")  # its commits would look like changes
        tables.DeltaTable.forPath(spark, self.path).vacuum(math.ceil(hours))  # Delta rounds 0.4 hours to none

    def clone(self, origin: VersionedTable, version: int) -> None:
        """Make this table a shallow clone of a version of another: its files are read where they are."""
        cast(Any, self.spark).sql(
            f"CREATE TABLE delta.{quoted(self.path)} SHALLOW CLONE delta.{quoted(origin.path)} VERSION AS OF {version}"
        ).collect()

    def needed_hours(self, version: int) -> float | None:
        """Return how many hours a vacuum must retain to keep all files of a version; None if no vacuum may run.

        0 if no later version has removed any. A vacuum compares the time when a file was removed, which Delta forgets
        after a while (`deletedFileRetentionDuration`); then it would remove the file as one that no version uses.
        """
        latest = self.version()
        if latest is None or version >= latest:
            return 0.0
        try:
            removed = first_removal(self.spark, self.log, version + 1, latest)
        except JavaError:
            return None
        if removed is None:
            return 0.0
        hours = (time.time() - removed) / HOUR + MARGIN_HOURS
        return hours if hours < self._tombstone_hours else None

    def usage(self) -> tuple[int, int]:
        """Return the files and bytes that are stored, those of old versions included, Delta's log excluded."""
        if is_uri(self.path):
            (files, size), log = usage(self.path), usage(f"{self.path}/_delta_log")
            return files - log[0], size - log[1]
        sizes = [
            (Path(folder) / name).stat().st_size
            for folder, _, names in os.walk(self.path)
            for name in names
            if "_delta_log" not in Path(folder).parts and not name.endswith(".crc")
        ]
        return len(sizes), sum(sizes)

    @property
    def partition(self) -> str | None:
        """The column that the table is partitioned by."""
        columns = catalyst.sequence(self._latest().metadata().partitionColumns())
        return str(columns[0]) if columns else None

    @property
    def _tombstone_hours(self) -> float:
        """Return the hours for which Delta's log records when a file was removed."""
        delta = catalyst.sql(self.spark).delta
        millis = delta.DeltaLog.tombstoneRetentionMillis(self._latest().metadata())
        return float(millis) / 1000 / HOUR - MARGIN_HOURS


def arrange(rows: DataFrame, buckets: int, keys: Sequence[str], files: int = 1) -> DataFrame:
    """Repartition rows for writing a state: one task and file per bucket, sorted by lineage key.

    files: if there are more of them than buckets, as many tasks and about as many files, each with its own range of
    keys; Spark reads a sample of the rows to find the ranges.
    """
    columns = [BUCKET, *keys] if buckets > 1 else list(keys)
    if keys and files > buckets:
        return sort_partitions(rows.repartitionByRange(files, *map(quoted, columns)), columns)
    return sort_partitions(repartition_by_bucket(rows, buckets), columns)


def repartition_by_bucket(rows: DataFrame, buckets: int) -> DataFrame:
    """Repartition rows so that each bucket is one task's.

    Before Spark 4.1 it hashes the bucket, so that a task may get several and another one none: of 2 buckets both.
    """
    if buckets == 1:
        return rows.repartition(1)
    if not hasattr(rows, "repartitionById"):
        return rows.repartition(buckets, BUCKET)
    return rows.repartitionById(buckets, F.col(BUCKET))


def sort_partitions(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Sort the rows of each partition by columns, if there are any."""
    return rows.sortWithinPartitions(*(F.col(quoted(name)) for name in columns)) if columns else rows
