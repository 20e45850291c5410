"""Read a table of Apache Iceberg as a source, by the Iceberg that the Spark session has (D-237).

A version is an entry of the table's history, which has one whenever another snapshot becomes the current one, also by a
rollback. Its number is the time of that, so that numbers grow; entries are gone once their snapshots have expired. A
version has the columns of its snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sources import External, ForeignKey
from deltafold.algebra.sqltext import quoted, table_name_fault
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J
from deltafold.spark.java_errors import causes, first_line, java_chain

TABLE = "table"
MICROSECONDS = 1000  # of the milliseconds of a history
EMPTY = 0  # the version of a table to which nothing was written
MISSING = {"NoSuchTableException", "NoSuchNamespaceException"}  # of Spark's
REPLACE = "replace"  # the operation of a snapshot with the same rows in other files


def declare(options: Mapping[str, str]) -> External:
    """Return the source that pipeline.yaml declares, by `table: CATALOG.DATABASE.NAME`. Raises SourceError."""
    if set(options) != {TABLE}:
        raise SourceError(
            f"source format iceberg: its options are {', '.join(sorted(options)) or 'missing'}. Write the name of a "
            f"table in a catalog of Spark's, `{TABLE}: catalog.database.name`, and nothing else."
        )
    return Iceberg(options[TABLE])


class Iceberg(External):
    """A table of Apache Iceberg, in a catalog of the Spark session; its constraints are as of a Delta table."""

    def __init__(
        self,
        table: str,
        *,
        invariant: bool = False,
        primary_key: tuple[str, ...] = (),
        foreign_keys: tuple[ForeignKey, ...] = (),
    ) -> None:
        if fault := table_name_fault(table):
            raise SourceError(f"Iceberg: {fault}.")
        super().__init__(
            table,
            partial(IcebergTable, name=table),
            invariant=invariant,
            primary_key=primary_key,
            foreign_keys=foreign_keys,
        )


@dataclass(frozen=True)
class IcebergTable:
    """A table of Iceberg in a catalog of the session's, as `lake.external_table.VersionedSource` has it.

    name: as SQL writes it.
    """

    spark: SparkSession
    name: str

    def version(self) -> int | None:
        """Return the latest version, None if there is no table."""
        table = self._load()
        return None if table is None else max(self._history(table), default=EMPTY)

    def identity(self) -> str:
        """Return the id of the table, which another one of its name does not have."""
        return str(self._table().uuid())

    def schema(self, version: int) -> StructType:
        """Return the columns of a version."""
        return self.scan(version).schema

    def scan(self, version: int) -> DataFrame:
        """Return the rows of a version."""
        if version == EMPTY:
            return self.spark.table(self.name).where("false")
        return cast(Any, self.spark).sql(f"SELECT * FROM {self.name} VERSION AS OF {self._snapshot(version)}")

    def size(self, version: int) -> int:
        """Return the bytes of the files of a version."""
        if version == EMPTY:
            return 0
        table = self._table()
        return _total(table.snapshot(self._snapshot(version, table)), "total-files-size")

    def diff(self, before: int, after: int) -> tuple[DataFrame, int] | None:
        """Return the rows of the files that were added and removed, as far as Iceberg's changelog scan has them.

        None from before the first snapshot, between snapshots of different columns, where the earlier one is no
        ancestor, as after a rollback, and where a snapshot marks rows as deleted, which that scan refuses.
        """
        if before == EMPTY:
            return None
        table = self._table()
        first, last = (table.snapshot(self._snapshot(version, table)) for version in (before, after))
        if len({str(snapshot.schemaId()) for snapshot in (first, last)} | {str(table.schema().schemaId())}) > 1:
            return None
        changed, snapshot = 0, last
        while snapshot is not None and snapshot.snapshotId() != first.snapshotId():
            if _total(snapshot, "added-delete-files") or _total(snapshot, "removed-delete-files"):
                return None
            if str(snapshot.operation()) != REPLACE:
                changed += _total(snapshot, "added-files-size") + _total(snapshot, "removed-files-size")
            parent = snapshot.parentId()
            snapshot = None if parent is None else table.snapshot(parent)
        if snapshot is None or _total(snapshot, "total-delete-files"):
            return None
        options = {"start-snapshot-id": first.snapshotId(), "end-snapshot-id": last.snapshotId()}
        rows = self.spark.read.options(**options).table(f"{self.name}.changes")
        columns = map(quoted, self.schema(after).names)
        return rows.select(*columns, F.lower("_change_type").alias("_change_type")), changed

    def _load(self) -> J | None:
        """Return the table as it is now, None if there is none; a catalog of Iceberg's keeps tables for a while."""
        load = catalyst.jvm(self.spark).org.apache.iceberg.spark.Spark3Util.loadIcebergTable
        try:
            try:
                table = load(catalyst.session(self.spark), self.name)
                table.refresh()  # others write
            except Py4JError:  # also if another table has taken its place
                self.spark.catalog.refreshTable(self.name)
                table = load(catalyst.session(self.spark), self.name)
        except TypeError as error:  # Py4J takes a class that is not there for a package
            raise SourceError(
                f"table {self.name}: this Spark has no Iceberg. Add its runtime for this release of Spark to "
                "`spark.jars.packages`, and its catalog to the settings."
            ) from error
        except (Py4JError, PySparkException) as error:
            if MISSING.intersection(str(java.getClass().getSimpleName()) for java in java_chain(error)):
                return None
            cause = first_line(causes(error)[0]).rstrip(".")
            raise SourceError(
                f"table {self.name}: Iceberg cannot read it ({cause}). Correct its name or its catalog."
            ) from error
        return table

    def _table(self) -> J:
        table = self._load()
        if table is None:
            raise SourceError(f"table {self.name}: there is none. Create it first.")
        return table

    def _history(self, table: J) -> dict[int, int]:
        """Return the snapshot of each version; the numbers grow, also where the clocks of two writers differ."""
        versions, last = dict[int, int](), EMPTY
        for entry in table.history():
            last = max(last + 1, entry.timestampMillis() * MICROSECONDS)
            versions[last] = entry.snapshotId()
        return versions

    def _snapshot(self, version: int, table: J | None = None) -> int:
        versions = self._history(table or self._table())
        if version not in versions:
            raise SourceError(
                f"table {self.name}: version {version} can no longer be read, since its snapshot has expired. Rebuild "
                "the view, and keep snapshots for longer than the time between two refreshes."
            )
        return versions[version]


def _total(snapshot: J, key: str) -> int:
    """Return a number of a snapshot's summary, 0 where the writer did not count it."""
    return int(snapshot.summary().get(key) or 0)
