"""Wrap a table to expose a part of it, such as the answer within a view's table, or some files of a source."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltafold.lake.files import Commit, File, Identity
from deltafold.lake.protocol import VersionedTable


class TableView:
    """A wrapper of a table: delegates everything that a subclass does not override."""

    def __init__(self, table: VersionedTable) -> None:
        self.table = table

    @property
    def spark(self) -> SparkSession:
        """The session in which it is read."""
        return self.table.spark

    @property
    def path(self) -> str:
        """Its path as it was given."""
        return self.table.path

    @property
    def label(self) -> str:
        """Its name in messages."""
        return self.table.label

    @property
    def place(self) -> str:
        """Its location, the same however its path is written."""
        return self.table.place

    @property
    def origin(self) -> VersionedTable:
        """The table that has the version before an epoch."""
        return self

    @property
    def rewritten(self) -> bool:
        """Whether its commits usually rewrite many unchanged rows."""
        return self.table.rewritten

    def is_mapped(self, version: int | None = None) -> bool:
        """Return whether columns may have other names in the files than in the schema."""
        return self.table.is_mapped(version)

    def version(self) -> int | None:
        """Return the latest version, None if there is no table."""
        return self.table.version()

    def identity(self, version: int | None = None) -> str:
        """Return the id of the table, at a version or now."""
        return self.table.identity(version)

    def commit_id(self, version: int) -> str:
        """Return the id of the commit that made a version; empty if it is not known."""
        return self.table.commit_id(version)

    def schema(self, version: int | None = None) -> StructType:
        """Return the schema of a version or of the latest."""
        return self.table.schema(version)

    def partitioned_by(self, version: int) -> list[str]:
        """Return the columns by which the files of a version are partitioned."""
        return self.table.partitioned_by(version)

    def size(self, version: int | None = None) -> tuple[int, int]:
        """Return the files and bytes of a version, or of the latest."""
        return self.table.size(version)

    def files(self, version: int) -> dict[Identity, File]:
        """Return the data files of a version by identity."""
        return self.table.files(version)

    def compare(self, before: int, after: int) -> tuple[list[File], list[File]]:
        """Return the files that only one of two versions has."""
        return self.table.compare(before, after)

    def rows(self, version: int) -> int | None:
        """Return the number of rows of a version, None if it is not known."""
        return self.table.rows(version)

    def commits(self, before: int, after: int, most: int | None = None) -> list[Commit] | None:
        """Return the files added and removed by each commit between two versions."""
        return self.table.commits(before, after, most)

    def records_feed(self, version: int) -> bool:
        """Return whether a version has the change data feed on."""
        return self.table.records_feed(version)

    def feed(self, before: int, after: int) -> DataFrame:
        """Return the changed rows that the commits between two versions recorded."""
        return self.table.feed(before, after)

    def present(self, files: Sequence[File]) -> bool:
        """Return whether files can still be read."""
        return self.table.present(files)

    def is_readable(self, version: int) -> bool:
        """Return whether a version can still be read."""
        return self.table.is_readable(version)

    def find_missing(self, version: int) -> str | None:
        """Return the path of a file of a version that no longer exists; None if all do."""
        return self.table.find_missing(version)

    def rows_of(self, version: int, files: Sequence[File]) -> DataFrame:
        """Return the rows of some files, by the schema of a version."""
        return self.table.rows_of(version, files)

    def rows_between(self, version: int, before: Sequence[File], after: Sequence[File]) -> DataFrame:
        """Return the rows by which the deletion vectors of the same files differ."""
        return self.table.rows_between(version, before, after)

    def at(self, version: int) -> DataFrame:
        """Return the table as of a version."""
        return self.table.at(version)

    def scan(self, version: int) -> DataFrame:
        """Return the same rows as any other reader sees them."""
        return self.table.scan(version)
