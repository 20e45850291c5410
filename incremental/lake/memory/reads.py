"""A table in memory as those see it who read it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from incremental.algebra.errors import SourceError
from incremental.lake.files import Commit, File, Identity
from incremental.lake.memory.log import MemoryLog, Version
from incremental.lake.memory.rows import frame, less
from incremental.lake.protocol import VersionedTable, unreadable


class MemoryReads:
    """The versions, files and rows of one table."""

    def __init__(self, spark: SparkSession, path: str, log: MemoryLog) -> None:
        self.spark, self.path, self.log = spark, path, log

    @property
    def folder(self) -> Path:
        """Where the table lives."""
        return Path(self.path.removeprefix("file:"))

    @property
    def label(self) -> str:
        """What messages call the table."""
        return self.path

    @property
    def place(self) -> str:
        """The folder, the same however it is written."""
        return os.path.realpath(self.folder)

    @property
    def origin(self) -> VersionedTable:
        """This table."""
        return self

    @property
    def rewritten(self) -> bool:
        """Only a view's answer is."""
        return False

    @property
    def mapped(self) -> bool:
        """Whether any column name is allowed; the files have the same ones all the same."""
        return self.latest.form.mapped

    @property
    def latest(self) -> Version:
        """The last version; raises SourceError where there is no table."""
        head = self.log.head(self.folder)
        if head is None:
            raise unreadable(self.path, -1)
        return head

    def version(self) -> int | None:
        """The latest version, None when there is no table."""
        head = self.log.head(self.folder)
        return None if head is None else head.number

    def identity(self) -> str:
        """The id that the table got when it was created."""
        return self.latest.table

    def made_by(self, version: int) -> str:
        """The id of the commit that made a version; empty where there is no such version."""
        return next((each.commit for each in self.latest.back() if each.number == version), "")

    def schema(self, version: int | None = None) -> StructType:
        """The schema of a version or of the latest."""
        return (self.latest if version is None else self._at(version)).form.schema

    def partitioned_by(self, version: int) -> list[str]:
        """The one column by which the files of a version are partitioned, if there is one."""
        column = self._at(version).form.partition
        return [] if column is None else [column]

    def epoch(self, application: str) -> int | None:
        """The last epoch an application wrote, None when it never did."""
        return self.latest.epochs.get(application)

    def size(self) -> tuple[int, int]:
        """Files and bytes of the latest version."""
        files = self.latest.files.values()
        return len(files), sum(file.bytes for file in files)

    def files(self, version: int) -> dict[Identity, File]:
        """The files of a version by identity."""
        return dict(self._at(version).files)

    def commits(self, before: int, after: int) -> list[Commit] | None:
        """What each commit added and removed; None where the table was partitioned anew."""
        versions = [version for version in self.latest.back() if before <= version.number <= after]
        if len({version.form.partition for version in versions}) > 1 or len(versions) != after - before + 1:
            return None
        return [version.done for version in reversed(versions) if version.number > before]

    def present(self, files: Sequence[File]) -> bool:
        """Whether no file was vacuumed."""
        return not any(file.identity[0] in self.log.vacuumed for file in files)

    def is_readable(self, version: int) -> bool:
        """Whether a version is there with all of its files."""
        try:
            return self.present(list(self.files(version).values()))
        except SourceError:
            return False

    def rows_of(self, version: int, files: Sequence[File]) -> DataFrame:
        """The rows of some files, by the schema of a version."""
        self._check(files)
        return frame(self.spark, self._at(version).rows_of(files))

    def rows_between(self, version: int, before: Sequence[File], after: Sequence[File]) -> DataFrame:
        """The rows by which the deletion vectors of the same files differ, in `_change_type` delete or insert."""
        self._check([*before, *after])
        old, new = (self._at(version).rows_of(files) for files in (before, after))
        sides = ((less(old, new), "delete"), (less(new, old), "insert"))
        deleted, inserted = (
            frame(self.spark, rows).selectExpr("*", f"'{change}' AS _change_type") for rows, change in sides
        )
        return deleted.unionAll(inserted)

    def at(self, version: int) -> DataFrame:
        """The table as of a version."""
        found = self._at(version)
        self._check(list(found.files.values()))
        return frame(self.spark, found.relation)

    def scanned(self, version: int) -> DataFrame:
        """The same as rows that Spark does not compute with before it runs, as it may with constants."""
        return self.at(version).localCheckpoint(eager=False)

    def _at(self, version: int) -> Version:
        latest = self.log.head(self.folder)
        found = next((each for each in latest.back() if each.number == version), None) if latest else None
        if found is None:
            raise unreadable(self.path, version)
        return found

    def _check(self, files: Sequence[File]) -> None:
        for file in files:
            if file.identity[0] in self.log.vacuumed:
                raise AnalysisException(f"[FAILED_READ_FILE.FILE_NOT_EXIST] {self.path}/{file.identity[0]} is gone")
