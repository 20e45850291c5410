"""Read a table in memory: its versions, files and rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltafold.algebra.errors import SourceError
from deltafold.lake.files import Commit, File, Identity
from deltafold.lake.memory.log import MemoryLog, Version
from deltafold.lake.memory.rows import frame_of_rows, subtract
from deltafold.lake.protocol import VersionedTable, unreadable_version


class MemoryReads:
    """One table in memory, as its readers see it."""

    def __init__(self, spark: SparkSession, path: str, log: MemoryLog) -> None:
        self.spark, self.path, self.log = spark, path, log

    @property
    def folder(self) -> Path:
        """The folder of the table."""
        return Path(self.path.removeprefix("file:"))

    @property
    def label(self) -> str:
        """The name of the table in messages."""
        return self.path

    @property
    def place(self) -> str:
        """The location of the table, the same however its path is written."""
        return os.path.realpath(self.folder)

    @property
    def origin(self) -> VersionedTable:
        """The table that has the version before an epoch: this one."""
        return self

    @property
    def rewritten(self) -> bool:
        """Whether its commits usually rewrite many unchanged rows; only those of a view's answer do."""
        return False

    def is_mapped(self, version: int | None = None) -> bool:
        """Return whether any column name is allowed; the files have the same names in any case."""
        return self._version(version).form.mapped

    @property
    def latest(self) -> Version:
        """The last version; raises SourceError where there is no table."""
        head = self.log.head(self.folder)
        if head is None:
            raise unreadable_version(self.path, -1)
        return head

    def version(self) -> int | None:
        """Return the latest version, None if there is no table."""
        head = self.log.head(self.folder)
        return None if head is None else head.number

    def identity(self, version: int | None = None) -> str:
        """Return the id that the table got when it was created."""
        return self._version(version).table

    def commit_id(self, version: int) -> str:
        """Return the id of the commit that made a version; empty if there is no such version."""
        return next((each.commit for each in self.latest.back() if each.number == version), "")

    def schema(self, version: int | None = None) -> StructType:
        """Return the schema of a version or of the latest."""
        return self._version(version).form.schema

    def partitioned_by(self, version: int) -> list[str]:
        """Return the partition columns of a version: one or none."""
        column = self._recorded_version(version).form.partition
        return [] if column is None else [column]

    def epoch(self, application: str) -> int | None:
        """Return the last epoch that an application wrote, None if it wrote none."""
        return self.latest.epochs.get(application)

    def size(self, version: int | None = None) -> tuple[int, int]:
        """Return the files and bytes of a version, or of the latest."""
        files = self._version(version).files.values()
        return len(files), sum(file.bytes for file in files)

    def files(self, version: int) -> dict[Identity, File]:
        """Return the data files of a version by identity."""
        return dict(self._recorded_version(version).files)

    def compare(self, before: int, after: int) -> tuple[list[File], list[File]]:
        """Return the files that only version `before` has, and those that only version `after` has."""
        old, new = self.files(before), self.files(after)
        return [old[each] for each in old if each not in new], [new[each] for each in new if each not in old]

    def rows(self, version: int) -> int | None:
        """Return the number of rows of a version."""
        return sum(file.rows or 0 for file in self.files(version).values())

    def commits(self, before: int, after: int) -> list[Commit] | None:
        """Return the files added and removed by each commit; None if the partition column changed in between."""
        versions = [version for version in self.latest.back() if before <= version.number <= after]
        if len({version.form.partition for version in versions}) > 1 or len(versions) != after - before + 1:
            return None
        return [version.done for version in reversed(versions) if version.number > before]

    def records_feed(self, version: int) -> bool:
        """Return False: tables in memory have no change data feed."""
        return False

    def feed(self, before: int, after: int) -> DataFrame:
        """Raise NotImplementedError: there is none to read."""
        raise NotImplementedError

    def present(self, files: Sequence[File]) -> bool:
        """Return whether none of the files was vacuumed."""
        return not any(file.identity[0] in self.log.vacuumed for file in files)

    def is_readable(self, version: int) -> bool:
        """Return whether a version exists with all of its files."""
        try:
            return self.present(list(self.files(version).values()))
        except SourceError:
            return False

    def rows_of(self, version: int, files: Sequence[File]) -> DataFrame:
        """Return the rows of some files, by the schema of a version."""
        self._check(files)
        return frame_of_rows(self.spark, self._recorded_version(version).rows_of(files))

    def rows_between(self, version: int, before: Sequence[File], after: Sequence[File]) -> DataFrame:
        """Return the rows by which the deletion vectors of the same files differ, with a column `_change_type`."""
        self._check([*before, *after])
        old, new = (self._recorded_version(version).rows_of(files) for files in (before, after))
        sides = ((subtract(old, new), "delete"), (subtract(new, old), "insert"))
        deleted, inserted = (
            frame_of_rows(self.spark, rows).selectExpr("*", f"'{change}' AS _change_type") for rows, change in sides
        )
        return deleted.unionAll(inserted)

    def at(self, version: int) -> DataFrame:
        """Return the table as of a version."""
        found = self._recorded_version(version)
        self._check(list(found.files.values()))
        return frame_of_rows(self.spark, found.relation)

    def scan(self, version: int) -> DataFrame:
        """Return the same rows, checkpointed: Spark folds expressions over a LocalRelation while it optimises."""
        return self.at(version).coalesce(1).localCheckpoint(eager=False)

    def _version(self, version: int | None) -> Version:
        return self.latest if version is None else self._recorded_version(version)

    def _recorded_version(self, version: int) -> Version:
        latest = self.log.head(self.folder)
        found = next((each for each in latest.back() if each.number == version), None) if latest else None
        if found is None:
            raise unreadable_version(self.path, version)
        return found

    def _check(self, files: Sequence[File]) -> None:
        for file in files:
            if file.identity[0] in self.log.vacuumed:
                raise AnalysisException(f"[FAILED_READ_FILE.FILE_NOT_EXIST] {self.path}/{file.identity[0]} is gone")
