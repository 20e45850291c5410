"""Read a table of another format as a source: whoever adds the format says what a version is (D-217).

Each version counts as one file, which all of its rows are in. So a change is exact whatever the format knows: the rows
of the version before are removed, those of the version after are added, and equal rows cancel. Where the format finds
the changed rows itself, these are read instead, as Delta's change data feed is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltafold.algebra.added import cause_of
from deltafold.algebra.errors import DeltafoldError, SourceError
from deltafold.algebra.sources import External
from deltafold.algebra.sqltext import quoted
from deltafold.lake.files import Commit, File, Identity
from deltafold.lake.protocol import Metadata

PREFIX = "version "  # of the identity of the file that a version counts as


class VersionedSource(Protocol):
    """A table of another format. Versions are numbers that grow, and the rows of one never change.

    Methods raise SourceError for a version that can no longer be read.
    """

    def version(self) -> int | None:
        """Return the latest version, None if there is no table."""
        ...

    def identity(self) -> str:
        """Return what changes if another table takes the place of this one."""
        ...

    def schema(self, version: int) -> StructType:
        """Return the columns of a version."""
        ...

    def scan(self, version: int) -> DataFrame:
        """Return the rows of a version."""
        ...

    def size(self, version: int) -> int:
        """Return the bytes that a scan of a version reads, as an estimate."""
        ...

    def diff(self, before: int, after: int) -> tuple[DataFrame, int] | None:
        """Return the rows that change from a version to a later one, and the bytes that are read for them.

        They have the columns of `after`, and `_change_type`, which is `insert` or `delete`. None: they are found from
        the rows of both versions.
        """
        ...


class ExternalTable:
    """A source of another format, as the engine reads tables; address: its name in messages and lineage."""

    def __init__(self, spark: SparkSession, address: str, source: VersionedSource) -> None:
        self.spark, self.path, self._source = spark, address, source

    @property
    def label(self) -> str:
        """Its name in messages."""
        return self.path

    @property
    def place(self) -> str:
        """Its location."""
        return self.path

    def version(self) -> int | None:
        """Return the latest version, None if there is no table."""
        return self._source.version()

    def metadata(self, version: int | None = None) -> Metadata:
        """Return the id of the table; a commit says itself whether it has a feed."""
        return Metadata(id=self._source.identity(), records_feed=True)

    def commit_id(self, version: int) -> str:
        """Return the empty text: the id of the table decides whether a pinned version is its own."""
        return ""

    def schema(self, version: int | None = None) -> StructType:
        """Return the schema of a version or of the latest."""
        latest = self.version() if version is None else version
        if latest is None:
            raise SourceError(f"table {self.path}: there is none. Create it first.")
        return self._source.schema(latest)

    def size(self, version: int | None = None) -> tuple[int, int]:
        """Return the files and bytes of a version, or of the latest."""
        latest = self.version() if version is None else version
        return (0, 0) if latest is None else (1, self._source.size(latest))

    def files(self, version: int) -> dict[Identity, File]:
        """Return the file that a version counts as."""
        file = self._file(version)
        return {file.identity: file}

    def compare(self, before: int, after: int) -> tuple[list[File], list[File]]:
        """Return the files of both versions, none if they are the same."""
        return ([], []) if before == after else ([self._file(before)], [self._file(after)])

    def rows(self, version: int) -> int | None:
        """Return None: the number of rows is not known without reading them."""
        return None

    def commits(self, before: int, after: int, most: int | None = None) -> list[Commit] | None:
        """Return the change as one commit with a feed, if the source finds the changed rows; else None.

        most: ignored, since versions of other formats may be numbered with gaps.
        """
        change = self._source.diff(before, after)
        if change is None:
            return None
        feed = File((f"changes from {before} to {after}", ""), None, change[1], None)
        return [Commit(added=[self._file(after)], removed=[self._file(before)], feed=(feed,))]

    def feed(self, before: int, after: int) -> DataFrame:
        """Return the changed rows that the source finds."""
        change = self._source.diff(before, after)
        assert change is not None, "commits have no feed without it"
        return change[0]

    def present(self, files: Sequence[File]) -> bool:
        """Return True: a source says of a version, not of files, whether it can be read."""
        return True

    def find_missing(self, version: int) -> str | None:
        """Return None, or raise SourceError for a version that can no longer be read."""
        self._source.schema(version)
        return None

    def rows_of(self, version: int, files: Sequence[File]) -> DataFrame:
        """Return the rows of the versions that some files stand for, by the schema of a version.

        Columns and fields of structs that another version lacks are NULL.
        """
        rows = self._source.scan(version).where("false")
        for file in files:
            scan = self._source.scan(int(file.identity[0].removeprefix(PREFIX)))
            rows = rows.unionByName(scan, allowMissingColumns=True)
        return rows.select(*map(quoted, self.schema(version).names))

    def rows_between(self, version: int, before: Sequence[File], after: Sequence[File]) -> DataFrame:
        """Raise NotImplementedError: versions have no deletion vectors, and no two have a file in common."""
        raise NotImplementedError

    def at(self, version: int) -> DataFrame:
        """Return the table as of a version."""
        return self._source.scan(version)

    def scan(self, version: int) -> DataFrame:
        """Return the same rows."""
        return self._source.scan(version)

    def _file(self, version: int) -> File:
        return File((f"{PREFIX}{version}", ""), None, self._source.size(version), None)


METHODS = ("version", "identity", "schema", "scan", "size", "diff")  # of a VersionedSource


def open_external(spark: SparkSession, name: str, external: External) -> ExternalTable:
    """Open a source of another format; raises SourceError where its package does not open a VersionedSource."""
    said = f"source {name} at {external.address}"
    try:
        source = external.open(spark)
    except DeltafoldError:
        raise
    except Exception as error:
        raise SourceError(
            f"{said}: its package cannot open it ({cause_of(error)}). Correct its address or options."
        ) from error
    lacking = [method for method in METHODS if not callable(getattr(source, method, None))]
    if lacking:
        kind = type(source).__name__
        raise SourceError(
            f"{said}: its package opens a {kind} without {', '.join(lacking)}. Correct or remove the package."
        )
    return ExternalTable(spark, external.address, source)
