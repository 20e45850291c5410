"""Write to a Delta table through Delta's own transaction, without the Spark jobs of its writer.

Delta's writer replays the whole log in Spark jobs to find the marks of a table and the files that an overwrite
removes. For a small table, the checksum beside each commit lists both; if it does not, the caller uses Delta's writer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache

from pyspark.sql import DataFrame, SparkSession

from incremental.lake.commit_tag import Mark
from incremental.lake.delta_log import open_log
from incremental.lake.files import known_files, partition_columns
from incremental.lake.protocol import VersionedTable
from incremental.spark import catalyst
from incremental.spark.catalyst import J

WRITE_SETTINGS = 4  # the settings of a write that `_description` fills: mode, partitions, predicate, metadata


def write_directly(
    table: VersionedTable, frame: DataFrame | None, mark: Mark, partition: str | None = None, overwrites: bool = False
) -> bool:
    """Append the rows of a frame to a table, or replace all rows; returns False if the log's checksum is insufficient.

    frame: planned in its own session; None for a commit of the mark alone. partition: the expected partition column.
    """
    session = table.spark if frame is None else frame.sparkSession
    commit = DirectCommit.begin(session, table.path, open_log(session, table.path, table.label), mark)
    if commit is None or not (frame is None or commit.fits(frame, partition)):
        return False
    removed = commit.files() if overwrites else None
    if overwrites and removed is None:
        return False
    if not commit.done:
        commit.finish([] if frame is None else commit.write_files(frame), removed)
    return True


@dataclass(frozen=True)
class DirectCommit:
    """A transaction in progress; done: the table has the mark already, so nothing is written."""

    spark: SparkSession
    path: str
    transaction: J
    mark: Mark
    done: bool

    @staticmethod
    def begin(spark: SparkSession, path: str, log: J, mark: Mark) -> DirectCommit | None:
        """Begin at the latest version; None if there is no table, or its checksum does not list the marks."""
        none = catalyst.none(spark)
        transaction = log.startTransaction(none, none)
        checksum = catalyst.option(transaction.snapshot().checksumOpt())
        marks = None if checksum is None else catalyst.option(checksum.setTransactions())
        if marks is None:
            return None
        epochs = [int(each.version()) for each in catalyst.sequence(marks) if str(each.appId()) == mark.application]
        return DirectCommit(spark, path, transaction, mark, any(epoch >= mark.epoch for epoch in epochs))

    def fits(self, frame: DataFrame, partition: str | None) -> bool:
        """Return whether a frame has exactly the columns and partitions of the table, so that no schema changes."""
        snapshot, schema = self.transaction.snapshot(), catalyst.dataset(frame).schema()
        if partition_columns(snapshot.metadata()) != ([] if partition is None else [partition]):
            return False
        return str(snapshot.schema().catalogString()) == str(schema.catalogString())

    def files(self) -> list[J] | None:
        """Return the files of the table; None if the checksum does not list all of them."""
        snapshot = self.transaction.snapshot()
        found = known_files(snapshot)
        if found is None:
            return None
        listed = catalyst.sequence(found)
        whole = int(snapshot.checksumOpt().get().tableSizeBytes())
        return listed if sum(int(file.size()) for file in listed) == whole else None

    def write_files(self, frame: DataFrame) -> list[J]:
        """Write the rows of a frame as data files, which no reader sees before the commit."""
        return catalyst.sequence(self.transaction.writeFiles(catalyst.dataset(frame)))

    def finish(self, added: list[J], removed: list[J] | None) -> None:
        """Commit files and mark in one version; removed: the files that an overwrite replaces."""
        spark, mark = self.spark, self.mark
        self.transaction.readTxn().append(mark.application)  # conflicts with a concurrent commit of the same mark
        if removed is not None:
            self.transaction.readWholeTable()
        now = catalyst.some(spark, int(time.time() * 1000))
        actions = [catalyst.sql(spark).delta.actions.SetTransaction(mark.application, mark.epoch, now)]
        actions += added + [file.remove() for file in removed or ()]
        mode = "Append" if removed is None else "Overwrite"
        self.transaction.commit(catalyst.vector(spark, actions), _description(spark, mode, mark.metadata))


def _description(spark: SparkSession, mode: str, metadata: str) -> J:
    """Describe a write for the table's history, as Delta's writer would."""
    delta, none = catalyst.sql(spark).delta, catalyst.none(spark)
    save_mode = getattr(catalyst.sql(spark).SaveMode, mode)
    rest = [none] * (_settings_of_write(catalyst.jvm(spark)) - WRITE_SETTINGS)
    return getattr(delta, "DeltaOperations$Write")(save_mode, none, none, catalyst.some(spark, metadata), *rest)


@lru_cache(maxsize=2)
def _settings_of_write(java: catalyst.Package) -> int:
    """Return the number of settings that this release of Delta records of a write."""
    described = java.java.lang.Class.forName("org.apache.spark.sql.delta.DeltaOperations$Write")
    return len(described.getConstructors()[0].getParameterTypes())
