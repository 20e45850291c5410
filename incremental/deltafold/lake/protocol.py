"""Define the interface of a lake that the other packages use: versioned tables at paths, whatever stores them.

| class | is | implemented by |
| --- | --- | --- |
| Lake | creates tables for a session | `DeltaLake` (delta_table.py), `MemoryLake` (tests/lake/memory) |
| VersionedTable | a table as a source: versions, files, rows | every table; `Snapshot` reads one version |
| Table | a table of our own: writes, and the layout of its files | `DeltaTable` (delta_table.py), `MemoryTable` |

Every write of an epoch carries its `Mark`, so that writing a table twice in one epoch has no effect.

A table of any lake is a folder, and is moved, copied or removed with it. tests/lake/test_contract.py runs the
same operations on both implementations and compares the results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltafold.algebra.errors import LostSourceError
from deltafold.algebra.plain_options import PlainOptions
from deltafold.algebra.tuning import Tuning
from deltafold.lake.files import Commit, File, Identity
from deltafold.lake.key_interval import KeyInterval

HOUR = 3600.0
MARGIN_HOURS = 1.0  # for differing clocks, and for commits that began before an earlier one ended


@dataclass(frozen=True)
class Clause:
    """One clause of a MERGE: `delete`, `update` or `insert`, its condition, and the values of columns."""

    action: str
    when: str | None
    values: Mapping[str, str | Column | Any]


@dataclass(frozen=True, kw_only=True)
class PartitionFiles:
    """The files of one partition: their number, how many are small, their rows, and how many of these are deleted."""

    value: str | None
    files: int = 0
    small: int = 0
    rows: int = 0
    deleted: int = 0

    def is_fragmented(self, tuning: Tuning) -> bool:
        """Return whether it is fragmented enough for a compaction to pay off."""
        return self.small >= tuning.small_files or self.deleted > tuning.deleted_share * self.rows


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """The metadata of a version of a table, beside its schema.

    id: of the table: another one after it was dropped and recreated, and after CREATE OR REPLACE TABLE;
    partition_columns: those whose values are in the log and not in the files;
    is_mapped: columns may have other names in the files than in the schema (Delta's column mapping);
    records_feed: commits after this version record their changed rows (Delta's change data feed).
    """

    id: str
    partition_columns: tuple[str, ...] = ()
    is_mapped: bool = False
    records_feed: bool = False


def unreadable_version(path: str, version: int) -> LostSourceError:
    """Return the error for a version that does not exist, or no longer exists."""
    return LostSourceError(
        f"Delta table {path}: version {version} can no longer be read "
        "(its log was cleaned up, or the table was replaced). Rebuild the views that read it."
    )


class VersionedTable(Protocol):
    """A table as its readers see it: versions, each a set of files."""

    @property
    def spark(self) -> SparkSession:
        """The session in which it is read."""
        ...

    @property
    def path(self) -> str:
        """Its path as it was given."""
        ...

    @property
    def label(self) -> str:
        """Its name in messages."""
        ...

    @property
    def place(self) -> str:
        """Its location, the same however its path is written."""
        ...

    def version(self) -> int | None:
        """Return the latest version, None if there is no table."""
        ...

    def metadata(self, version: int | None = None) -> Metadata:
        """Return the metadata of a version or of the latest."""
        ...

    def commit_id(self, version: int) -> str:
        """Return the id of the commit that made a version; empty if it is not known."""
        ...

    def schema(self, version: int | None = None) -> StructType:
        """Return the schema of a version or of the latest."""
        ...

    def size(self, version: int | None = None) -> tuple[int, int]:
        """Return the files and bytes of a version, or of the latest."""
        ...

    def files(self, version: int) -> dict[Identity, File]:
        """Return the data files of a version by identity."""
        ...

    def compare(self, before: int, after: int) -> tuple[list[File], list[File]]:
        """Return the files that only version `before` has, and those that only version `after` has."""
        ...

    def rows(self, version: int) -> int | None:
        """Return the number of rows of a version from the log alone; None if it is not recorded for every file."""
        ...

    def commits(self, before: int, after: int, most: int | None = None) -> list[Commit] | None:
        """Return the files added and removed by each commit after `before` up to `after`.

        None if the log is not sufficient, or if more than `most` commits would have to be read.
        """
        ...

    def feed(self, before: int, after: int) -> DataFrame:
        """Return the changed rows that the commits after `before` up to `after` recorded.

        `_change_type` is insert, delete, update_preimage or update_postimage.
        """
        ...

    def present(self, files: Sequence[File]) -> bool:
        """Return whether files can still be read: a vacuum may have removed what a compaction replaced."""
        ...

    def find_missing(self, version: int) -> str | None:
        """Return the path of a file of a version that no longer exists; None if all do.

        Raises SourceError for a version that the log does not have.
        """
        ...

    def rows_of(self, version: int, files: Sequence[File]) -> DataFrame:
        """Return the rows of some files, by the schema of a version."""
        ...

    def rows_between(self, version: int, before: Sequence[File], after: Sequence[File]) -> DataFrame:
        """Return the rows by which the deletion vectors of the same files differ, with a column `_change_type`."""
        ...

    def at(self, version: int) -> DataFrame:
        """Return the table as of a version; raises SourceError where it can no longer be read."""
        ...

    def scan(self, version: int) -> DataFrame:
        """Return the same rows as any other reader sees them; answers are verified against these."""
        ...


class Table(VersionedTable, Protocol):
    """A table that Deltafold writes. Every method that writes makes at most one commit.

    append, overwrite, merge and touch return whether the commit was direct: no Spark jobs except those that find and
    write rows.
    """

    def epoch(self, application: str) -> int | None:
        """Return the last epoch that an application wrote, None if it wrote none."""
        ...

    def append(self, frame: DataFrame, mark: Mark, partition: str | None, *, name_mapping: bool = False) -> bool:
        """Add rows, creating the table if there is none; skipped where the mark's epoch has been written."""
        ...

    def overwrite(self, frame: DataFrame, mark: Mark, partition: str | None) -> bool:
        """Replace all rows; skipped where the mark's epoch has been written."""
        ...

    def replace_where(
        self, frame: DataFrame, condition: str, metadata: str, partition: str | None, *, reshape: bool = False
    ) -> int:
        """Replace the rows that fulfil a condition with those of the frame; returns the rows written.

        Creates the table if there is none; the condition `true` replaces all rows, and with `reshape` the columns and
        how it is partitioned.
        """
        ...

    def publish(self, rows: DataFrame, options: PlainOptions, metadata: str) -> None:
        """Make rows all that the table has, and their columns its schema, in one commit; creates it if there is none.

        It has no partitions and no deletion vectors, and a name mapping only where a column's name needs one.
        """
        ...

    def reader_features(self) -> tuple[str, ...]:
        """Return the features of Delta that a reader of the latest version has to support, in order."""
        ...

    def in_partitions(self, version: int, condition: str) -> DataFrame:
        """Return the rows of the partitions that fulfil a condition, without a Spark job that finds their files."""
        ...

    def replace_partitions(self, frame: DataFrame, condition: str, mark: Mark, partition: str) -> bool:
        """Replace the rows of the partitions that fulfil a condition; skipped where the mark's epoch has been written.

        Returns False, with nothing written, where that would take more than writing and committing the frame.
        """
        ...

    def merge(
        self,
        source: DataFrame,
        condition: str,
        clauses: Sequence[Clause],
        mark: Mark,
        partitions: str | None = None,
        matched: int | None = None,
        interval: KeyInterval | None = None,
    ) -> bool:
        """Merge `source` (alias u) into the table (alias t); skipped where the mark's epoch has been written.

        partitions: says that the source has few rows, and that all rows that match are in the partitions that fulfil
        this condition; then the commit is direct if the table's log allows it. matched: the number of the table's rows
        that must match; with another one, or if the commit cannot be direct, nothing is written. interval: of a column
        in the rows of a source that was computed and measured already.
        """
        ...

    def touch(self, mark: Mark) -> bool:
        """Make a commit without rows, which only carries the mark."""
        ...

    def partitions(self, small_bytes: int) -> tuple[PartitionFiles, ...]:
        """Return the partitions of the latest version; one for an unpartitioned table. small_bytes: see Tuning."""
        ...

    def sort(self, buckets: Sequence[str], keys: Sequence[str], files: int, metadata: str) -> None:
        """Rewrite some buckets of a state sorted by its lineage key: each as one file, or all as about `files`."""
        ...

    def restore(self, version: int) -> None:
        """Make the rows of an earlier version the latest ones; its files must still be there. Marks stay."""
        ...

    def compact(self, condition: str) -> None:
        """Rewrite the files of each partition that fulfils a condition as one; `true` for all."""
        ...

    def clone(self, origin: VersionedTable, version: int) -> None:
        """Make this table a shallow clone of a version of another: its files are read where they are."""
        ...

    def needed_hours(self, version: int) -> float | None:
        """Return how many hours a vacuum must retain to keep all files of a version; None if it must not run at all."""
        ...

    def remove_older(self, hours: float) -> None:
        """Remove the files that no version of the last `hours` uses, rounded up to whole hours."""
        ...

    def usage(self) -> tuple[int, int]:
        """Return the files and bytes that are stored, those of old versions included."""
        ...


class Lake(Protocol):
    """Creates the objects through which tables are read and written."""

    def table(self, spark: SparkSession, path: str) -> Table:
        """Return the table at a path, which may not exist yet."""
        ...


@dataclass(frozen=True)
class Mark:
    """The mark of a write: its table and generation (`application`), its epoch, and the commit metadata.

    Delta records the first two as `txnAppId` and `txnVersion`, and skips a write whose pair is already recorded.
    """

    application: str
    epoch: int
    metadata: str

    @property
    def settings(self) -> dict[str, str]:
        """Return the session settings with which a MERGE carries the mark."""
        return {
            "spark.databricks.delta.write.txnAppId": self.application,
            "spark.databricks.delta.write.txnVersion": str(self.epoch),
            "spark.databricks.delta.commitInfo.userMetadata": self.metadata,
            # the source of our merges is checkpointed, so Delta need not copy it
            "spark.databricks.delta.merge.materializeSource": "none",
        }
