"""Write to a Delta table through Delta's own transaction, without the Spark jobs of its writer (D-070).

Delta's writer replays the whole log in Spark jobs to find the marks of a table and the files that an overwrite
removes. For a small table, the checksum beside each commit lists both; if it does not, the caller uses Delta's writer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache

from pyspark.sql import DataFrame, SparkSession

from deltafold.lake.log.delta_log import class_named, open_log
from deltafold.lake.log.file_lists import (
    MOST_FILES,
    SINGLE_CALLS,
    as_add_files,
    known_files,
    local_rows,
    partition_columns,
    rows_of_actions,
)
from deltafold.lake.protocol import Mark, VersionedTable
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

WRITE_SETTINGS = 4  # the settings of a write that `_description` fills: mode, partitions, predicate, metadata
ALL = "true"  # the condition of all rows


def write_directly(
    table: VersionedTable,
    frame: DataFrame | None,
    mark: Mark | str,
    partition: str | None = None,
    replaced: str | None = None,
) -> int | None:
    """Add the rows of a frame to a table, and remove those that they replace, in one commit.

    frame: its session plans the write; None for a commit of the mark alone. mark: the commit's mark, or its metadata if
    it may be made twice. partition: the column that the caller takes for the table's partition. replaced: the condition
    of the partitions whose rows are removed; None removes none.

    Returns the number of rows written. Returns None, with nothing written, if the log does not contain enough for a
    direct commit.
    """
    session = table.spark if frame is None else frame.sparkSession
    commit = DirectCommit.begin(session, table.path, open_log(session, table.path, table.label), mark)
    if commit is None or not (frame is None or commit.fits(frame, partition)):
        return None
    if replaced is not None and replaced != ALL and partition is None:
        return None  # the files of other rows would go too
    removed = None if replaced is None else commit.files(replaced)
    if replaced is not None and removed is None:
        return None
    if commit.done:
        return 0
    added = [] if frame is None else commit.write_files(frame)
    if not commit.belong(added, replaced):
        return None  # Delta's writer refuses them
    commit.finish([*added, *(file.remove() for file in removed or ())], overwrites=removed is not None)
    rows = [catalyst.option(file.numLogicalRecords()) for file in added]
    if frame is not None and None in rows:
        return frame.count()  # the session collects no statistics of files
    return sum(int(each) for each in rows if each is not None)


@dataclass(frozen=True, kw_only=True)
class DirectCommit:
    """A transaction in progress; done: the table has the mark already, so nothing is written."""

    spark: SparkSession
    path: str
    transaction: J
    mark: Mark | str
    done: bool

    @staticmethod
    def begin(spark: SparkSession, path: str, log: J, mark: Mark | str) -> DirectCommit | None:
        """Begin at the latest version; None where there is no table, or its checksum does not list the marks."""
        none = catalyst.none(spark)
        transaction = log.startTransaction(none, none)
        checksum = catalyst.option(transaction.snapshot().checksumOpt())
        if checksum is None:
            return None
        if isinstance(mark, str):
            return DirectCommit(spark=spark, path=path, transaction=transaction, mark=mark, done=False)
        marks = catalyst.option(checksum.setTransactions())
        if marks is None:
            return None
        epochs = [int(each.version()) for each in catalyst.sequence(marks) if str(each.appId()) == mark.application]
        return DirectCommit(
            spark=spark,
            path=path,
            transaction=transaction,
            mark=mark,
            done=any(epoch >= mark.epoch for epoch in epochs),
        )

    def fits(self, frame: DataFrame, partition: str | None) -> bool:
        """Return whether a frame has exactly the columns and partitions of the table, so that no schema changes."""
        snapshot, schema = self.transaction.snapshot(), catalyst.dataset(frame).schema()
        if partition_columns(snapshot.metadata()) != ([] if partition is None else [partition]):
            return False
        return str(snapshot.schema().catalogString()) == str(schema.catalogString())

    def files(self, condition: str) -> list[J] | None:
        """Return the files of the partitions that fulfil a condition; None if the checksum does not list all files."""
        snapshot = self.transaction.snapshot()
        listed_files = known_files(snapshot)
        if listed_files is None:
            return None
        if self._bytes_in(listed_files) != int(snapshot.checksumOpt().get().tableSizeBytes()):
            return None
        return catalyst.sequence(listed_files) if condition == ALL else self._in_partitions(listed_files, condition)

    def files_to_merge(self, condition: str) -> J | None:
        """Return Scala's sequence of the files of the partitions that fulfil a condition, to be merged into.

        If the checksum does not list all files, a Spark job finds these. Returns None if the table has no deletion
        vectors, if there are more than MOST_FILES, or if a file's writer did not count its rows.
        """
        snapshot = self.transaction.snapshot()
        support = catalyst.module(catalyst.sql(self.spark).delta.commands, "DeletionVectorUtils")
        if not support.deletionVectorsWritable(snapshot.protocol(), snapshot.metadata()):
            return None
        listed_files = known_files(snapshot)
        rows = rows_of_actions(self.spark, snapshot) if listed_files is None else local_rows(self.spark, listed_files)
        replaced = self._of_partitions(rows, condition).limit(MOST_FILES + 1).collectAsList()
        if replaced.size() > MOST_FILES or any(not file.numPhysicalRecords().isDefined() for file in replaced):
            return None
        return catalyst.jvm(self.spark).scala.jdk.javaapi.CollectionConverters.asScala(replaced).toVector()

    def belong(self, added: list[J], condition: str | None) -> bool:
        """Return whether all written files are in the partitions that are replaced."""
        if condition is None or condition == ALL or not added:
            return True
        return len(self._in_partitions(catalyst.vector(self.spark, added), condition)) == len(added)

    def _bytes_in(self, files: J) -> int:
        if files.size() <= SINGLE_CALLS:
            return sum(int(file.size()) for file in catalyst.sequence(files))
        return sum(int(row[0]) for row in local_rows(self.spark, files).select("size").collect())

    def _in_partitions(self, files: J, condition: str) -> list[J]:
        """Return the files whose partition values fulfil a condition, which Spark evaluates without a job."""
        return list(self._of_partitions(local_rows(self.spark, files), condition).collectAsList())

    def _of_partitions(self, files: DataFrame, condition: str) -> J:
        """Return Scala's Dataset of the AddFiles in rows whose partition values fulfil a condition."""
        delta, snapshot = catalyst.sql(self.spark).delta, self.transaction.snapshot()
        log, parsed = catalyst.module(delta, "DeltaLog"), catalyst.parse_expression(self.spark, condition)
        rest = [getattr(log, f"filterFileList$default${i}")() for i in (4, 5)]
        tests = catalyst.vector(self.spark, [parsed])
        schema = snapshot.metadata().partitionSchema()
        rows = log.filterFileList(schema, catalyst.dataset(files), tests, *rest)
        return as_add_files(self.spark, rows)

    def write_files(self, frame: DataFrame) -> list[J]:
        """Write the rows of a frame as data files, which no reader sees before the commit."""
        return catalyst.sequence(self.transaction.writeFiles(catalyst.dataset(frame)))

    def finish(self, actions: list[J], *, overwrites: bool) -> None:
        """Commit added and removed files and the mark in one version; overwrites: rows that were read are removed."""
        spark, mark = self.spark, self.mark
        if overwrites:
            self.transaction.readWholeTable()
        if isinstance(mark, Mark):
            self.transaction.readTxn().append(mark.application)  # a commit that meets another of this mark is refused
            now = catalyst.some(spark, int(time.time() * 1000))
            actions = [catalyst.sql(spark).delta.actions.SetTransaction(mark.application, mark.epoch, now), *actions]
        mode, metadata = "Overwrite" if overwrites else "Append", mark.metadata if isinstance(mark, Mark) else mark
        self.transaction.commit(catalyst.vector(spark, actions), _description(spark, mode, metadata))


def _description(spark: SparkSession, mode: str, metadata: str) -> J:
    """Describe a write for the table's history, as Delta's writer would."""
    delta, none = catalyst.sql(spark).delta, catalyst.none(spark)
    save_mode = getattr(catalyst.sql(spark).SaveMode, mode)
    rest = [none] * (_settings_of_write(catalyst.jvm(spark)) - WRITE_SETTINGS)
    return getattr(delta, "DeltaOperations$Write")(save_mode, none, none, catalyst.some(spark, metadata), *rest)


@lru_cache(maxsize=2)
def _settings_of_write(java: catalyst.Package) -> int:
    """Return the number of settings that this release of Delta records of a write."""
    described = class_named(java, "org.apache.spark.sql.delta.DeltaOperations$Write")
    return len(described.getConstructors()[0].getParameterTypes())
