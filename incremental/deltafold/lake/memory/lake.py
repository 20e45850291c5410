"""Implement the lake in memory: its tables, and the layout of their files."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from deltafold.lake.files import File
from deltafold.lake.memory.log import MemoryLog
from deltafold.lake.memory.rows import frame_of_rows
from deltafold.lake.memory.writes import MemoryWrites
from deltafold.lake.physical_layout import arrange
from deltafold.lake.protocol import HOUR, MARGIN_HOURS, PartitionFiles, Table, VersionedTable


@dataclass(frozen=True, eq=False)
class MemoryLake:
    """Tables in memory; a file in each table's folder names its last commit."""

    log: MemoryLog = field(default_factory=MemoryLog)

    def table(self, spark: SparkSession, path: str) -> Table:
        """Return the table at a path, which may not exist yet."""
        return self.written_by_others(spark, path)

    def written_by_others(self, spark: SparkSession, path: str) -> MemoryTable:
        """Return the same table with the operations of other writers: write, delete, update, restore, add_column."""
        return MemoryTable(spark, path, self.log)


class MemoryTable(MemoryWrites):
    """One table in memory, with the operations on its files."""

    @property
    def partition(self) -> str | None:
        """The column that the table is partitioned by."""
        return self.latest.form.partition

    def partitions(self, small_bytes: int) -> tuple[PartitionFiles, ...]:
        """Return the partitions of the latest version; one for an unpartitioned table. small_bytes: see Tuning."""
        found: dict[str | None, PartitionFiles] = {}
        for file in self.latest.files.values():
            value, deleted = file.action.partition, file.action.deleted
            part, rows = found.get(value, PartitionFiles(value)), (file.rows or 0) + deleted
            small = part.small + (file.bytes < small_bytes)
            found[value] = PartitionFiles(value, part.files + 1, small, part.rows + rows, part.deleted + deleted)
        return tuple(found.values())

    def sort(self, buckets: Sequence[str], keys: Sequence[str], files: int, metadata: str) -> None:
        """Rewrite some buckets of a state sorted by its lineage key: each as one file, or all as about `files`."""
        removed = [file for file in self.latest.files.values() if file.action.partition in buckets]
        rows = frame_of_rows(self.spark, self.latest.rows_of(removed))
        self._commit(self._files(arrange(rows, len(buckets), keys, files), self.latest.form), removed, compacts=True)

    def compact(self, condition: str) -> None:
        """Rewrite the files of each partition that fulfils a condition as one; no commit if each has one already."""
        chosen = {file.identity for file, _ in self._by_file(self._positions(condition))}
        by_partition: dict[str | None, list[File]] = {}
        for identity, file in self.latest.files.items():
            if identity in chosen:
                by_partition.setdefault(file.action.partition, []).append(file)
        fragmented = [files for files in by_partition.values() if len(files) > 1 or files[0].action.deleted]
        form = self.latest.form
        added = [self._file(self.latest.rows_of(files), form, files[0].action.partition) for files in fragmented]
        if added:
            self._commit(added, [file for files in fragmented for file in files], compacts=True)

    def clone(self, origin: VersionedTable, version: int) -> None:
        """Make this table a shallow clone of a version of another of this lake."""
        assert isinstance(origin, MemoryTable) and origin.log is self.log
        then = origin._recorded_version(version)
        self._commit(list(then.files.values()), [], form=then.form)

    def needed_hours(self, version: int) -> float | None:
        """Return how many hours a vacuum must retain to keep all files of a version."""
        head = self.log.head(self.folder)
        later = [] if head is None else [v for v in head.back() if v.number > version and v.done.removed]
        return (time.time() - later[-1].ended) / HOUR + MARGIN_HOURS if later else 0.0

    def remove_older(self, hours: float) -> None:
        """Remove the files that no version of the last `hours` uses, rounded up to whole hours."""
        latest, before = self.latest, time.time() - math.ceil(hours) * HOUR
        removed = {file.identity[0] for v in latest.back() if v.ended <= before for file in v.done.removed}
        self.log.discard(removed - {path for path, _ in latest.files})

    def usage(self) -> tuple[int, int]:
        """Return the stored files and bytes, old versions included; the original owns the first files of a clone."""
        owners = dict[str, str]()
        for version in self.log.versions.values():
            for file in version.done.added:
                owners.setdefault(file.identity[0], version.table)
        known = {file.identity[0]: file.bytes for v in self.latest.back() for file in v.done.added}
        ours = {path: size for path, size in known.items() if owners.get(path) == self.latest.table}
        stored = {path: size for path, size in ours.items() if path not in self.log.vacuumed}
        return len(stored), sum(stored.values())
