"""How a Delta table lies on the disk. In: a table. Out: its files; compaction, vacuum, clones.

Beside lake.py and feed.py the only file that knows Delta. Every write is one commit that changes no row (`dataChange`
is false, so that change feeds of other tools see nothing) and keeps the marks of epochs, or removes what nobody needs.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from delta.tables import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from incremental.algebra.errors import SourceError
from incremental.algebra.program import BUCKET
from incremental.algebra.sqltext import quoted
from incremental.lake.durable import settle
from incremental.lake.files import actions_of
from incremental.lake.table import Table
from incremental.spark import catalyst
from incremental.spark.catalyst import J, JavaError

HOUR = 3600.0
MARGIN_HOURS = 1.0  # clocks, and commits that began before an earlier one ended
SMALL_FILE = 32 << 20
MANY_FILES = 4  # small files of one partition that are worth being rewritten as one
MANY_DELETED = 0.1  # of a partition's rows


@dataclass(frozen=True)
class PartitionFiles:
    """The files of one partition: how many, how many are small, their rows, and how many of these are deleted."""

    value: str | None
    files: int = 0
    small: int = 0
    rows: int = 0
    deleted: int = 0

    @property
    def worn(self) -> bool:
        """Whether it is worth being rewritten."""
        return self.small >= MANY_FILES or self.deleted > MANY_DELETED * self.rows


class Storage(Table):
    """The files of one Delta table in a local folder."""

    def partitions(self) -> tuple[PartitionFiles, ...]:
        """The partitions of the latest version; of a table without any, one."""
        found: dict[str | None, PartitionFiles] = {}
        for action in actions_of(self._latest()):
            values = catalyst.sequence(action.partitionValues().values().toSeq())
            value = None if not values or values[0] is None else str(values[0])
            part, vector = found.get(value, PartitionFiles(value)), action.deletionVector()
            rows, deleted = catalyst.option(action.numPhysicalRecords()), 0 if vector is None else vector.cardinality()
            found[value] = PartitionFiles(
                value,
                part.files + 1,
                part.small + (int(action.size()) < SMALL_FILE),
                part.rows + int(rows or 0),
                part.deleted + int(deleted),
            )
        return tuple(found.values())

    def sort(self, buckets: Sequence[str], keys: Sequence[str], metadata: str) -> None:
        """Rewrite some buckets of a state, each as one file sorted by its lineage key."""
        version = self.version()
        assert version is not None
        condition = f"{BUCKET} IN ({', '.join(buckets)})"
        rows = arranged(self.at(version).where(condition), len(buckets), keys)
        options = {"dataChange": "false", "replaceWhere": condition, "userMetadata": metadata}
        rows.write.format("delta").mode("overwrite").options(**options).save(self.path)

    def compact(self, condition: str) -> None:
        """Delta's OPTIMIZE of the partitions that fulfil a condition; `true` for all."""
        # in SQL, since Delta's own builder does not quote a backtick in the path; it takes no WHERE without partitions
        where = "" if condition == "true" else f" WHERE {condition}"
        cast(Any, self.spark).sql(f"OPTIMIZE delta.{quoted(self.path)}{where}").collect()

    def remove_older(self, hours: float) -> None:
        """Remove the files that no version of the last hours has, a begun hour counting as a whole one."""
        # in a session of its own: these settings are for nobody else
        spark = catalyst.isolated(self.spark)
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        spark.conf.set("spark.databricks.delta.vacuum.logging.enabled", "false")  # its commits would look like changes
        DeltaTable.forPath(spark, self.path).vacuum(math.ceil(hours))  # Delta rounds 0.4 hours to none

    def clone(self, origin: Table, version: int) -> None:
        """Make this table a shallow clone of a version of another: its files are read where they are."""
        cast(Any, self.spark).sql(
            f"CREATE TABLE delta.{quoted(self.path)} SHALLOW CLONE delta.{quoted(origin.path)} VERSION AS OF {version}"
        ).collect()

    def remove(self) -> None:
        """Remove all that lies here, with the logs; what a crash left of it goes the next time."""
        shutil.rmtree(self.path, ignore_errors=True)

    def appear(self, folder: Path) -> None:
        """Let all that lies here be seen under another name, at once."""
        Path(self.path).rename(folder)
        settle(folder.parent)

    def needed_hours(self, version: int) -> float | None:
        """How many hours a vacuum must retain so that all files of a version stay; None: it must not run at all.

        0 where no later version has removed any. Delta goes by the time when a file was removed, and forgets it after
        a while; after that it would take the file for one that never was part of the table.
        """
        latest = self.version()
        if latest is None or version >= latest:
            return 0.0
        try:
            changes = self.log.getChanges(version + 1, latest, catalyst.none(self.spark), True)
            while changes.hasNext():
                actions = catalyst.sequence(changes.next()._2())
                times = [removed_at(action) for action in actions if catalyst.kind(action) == "RemoveFile"]
                if times:
                    hours = (time.time() - min(times)) / HOUR + MARGIN_HOURS
                    return hours if hours < self._tombstone_hours else None
        except JavaError:
            return None
        return 0.0

    def whole(self, version: int) -> bool:
        """Whether a version can still be read: the log tells its files, and all of them are there."""
        try:
            return self.present(list(self.files(version).values()))
        except SourceError:
            return False

    def usage(self) -> tuple[int, int]:
        """Files and bytes on the disk, those of old versions too, Delta's log not counted."""
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
        """How long Delta knows when a file was removed."""
        delta = catalyst.sql(self.spark).delta
        millis = delta.DeltaLog.tombstoneRetentionMillis(self._latest().metadata())
        return float(millis) / 1000 / HOUR - MARGIN_HOURS


def removed_at(action: J) -> float:
    """When Delta removed a file, in seconds; long ago where its writer did not tell."""
    millis = catalyst.option(action.deletionTimestamp())
    return 0.0 if millis is None else float(millis) / 1000


def arranged(rows: DataFrame, buckets: int, keys: Sequence[str]) -> DataFrame:
    """Rows as a state is written: one file a bucket, sorted by lineage key in it."""
    columns = [BUCKET, *keys] if buckets > 1 else list(keys)
    whole = rows.repartition(buckets, BUCKET) if buckets > 1 else rows.repartition(1)
    return whole.sortWithinPartitions(*(F.col(quoted(name)) for name in columns)) if columns else whole
