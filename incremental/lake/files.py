"""Describe data files and commits by Delta's actions, with path and deletion vector as a file's identity."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from incremental.spark import catalyst
from incremental.spark.catalyst import J

Identity = tuple[str, str]
UNMAPPED = set(" ,;{}()\n\t=")  # characters that Parquet and Delta allow in a column name only with a name mapping


@dataclass(frozen=True)
class File:
    """A data file of a version: identity (path and deletion vector), rows if known, bytes, and Delta's own action."""

    identity: Identity
    rows: int | None
    bytes: int
    action: J


def data_file(action: J) -> File:
    """Describe the file of an AddFile action."""
    vector = catalyst.option(action.getDeletionVectorUniqueId())
    rows = catalyst.option(action.numLogicalRecords())
    return File(
        (str(action.path()), str(vector or "")), None if rows is None else int(rows), int(action.size()), action
    )


def as_added(spark: SparkSession, removed: J) -> J:
    """Convert the RemoveFile action of a commit to an AddFile, to read the file's rows."""
    none = catalyst.none(spark)
    actions = catalyst.sql(spark).delta.actions
    known = catalyst.option(removed.numPhysicalRecords())
    stats = None if known is None else f'{{"numRecords":{known},"tightBounds":false}}'
    return actions.AddFile(
        removed.path(), removed.partitionValues(), removed.size().get(), 0, True, stats, None,
        removed.deletionVector(), none, none, none, none, none,
    )  # fmt: skip


def selects(spark: SparkSession, changed: J) -> bool:
    """Return whether the deletion vectors by which Delta reads changed rows contain any row."""
    (relation,) = catalyst.relations_read(changed.queryExecution().analyzed())
    nothing = catalyst.vector(spark, [])
    files = relation.relation().location().matchingFiles(nothing, nothing)
    return any(int(file.deletionVector().cardinality()) for file in catalyst.sequence(files))


@dataclass(frozen=True)
class Commit:
    """The files that a commit added and removed; compacts: it changed no row."""

    added: list[File]
    removed: list[File]
    compacts: bool = False


def rows_in(files: Sequence[File]) -> float:
    """Return the number of rows of some files; NaN, which equals nothing, if a writer did not record it."""
    return math.fsum(math.nan if file.rows is None else file.rows for file in files)


def commit_of(spark: SparkSession, actions: Sequence[J], partitions: Callable[[], list[str]]) -> Commit | None:
    """Return the files that a commit added and removed, from its actions; partitions: looks up the partition columns.

    None if the actions are not sufficient (file metadata was left out, or only metadata of existing files changed), or
    if the partitioning changed: a file is read by the partitions of its time.
    """
    if any(columns != partitions() for columns in partitionings(actions)):
        return None
    added = [data_file(action) for action in actions if catalyst.kind(action) == "AddFile"]
    removed = [action for action in actions if catalyst.kind(action) == "RemoveFile"]
    if any(action.partitionValues() is None or not action.size().isDefined() for action in removed):
        return None
    gone = [data_file(as_added(spark, action)) for action in removed]
    same = not any(action.dataChange() for action in (*removed, *(file.action for file in added)))
    if same and added and not gone:
        return None
    return Commit(added, gone, same and rows_in(added) == rows_in(gone))


def files_exist(spark: SparkSession, log: J, files: Sequence[File]) -> bool:
    """Return whether files of a table, and their deletion vectors, still exist."""
    operations = catalyst.module(catalyst.sql(spark).delta.util, "DeltaFileOperations")
    root = log.dataPath()
    system = root.getFileSystem(log.newDeltaHadoopConf())
    paths = [operations.absolutePath(root.toString(), file.identity[0]) for file in files]
    vectors = [vector for file in files if (vector := file.action.deletionVector()) is not None]
    paths += [vector.absolutePath(root) for vector in vectors if vector.isOnDisk()]
    return all(system.exists(path) for path in paths)


def partition_columns(metadata: J) -> list[str]:
    """Return the partition columns of a Metadata action, whose values are in the log and not in the files."""
    return [str(name) for name in catalyst.sequence(metadata.partitionColumns())]


def partitionings(actions: Sequence[J]) -> Iterator[list[str]]:
    """Yield the partition columns of each Metadata action among a commit's actions."""
    return (partition_columns(action) for action in actions if catalyst.kind(action) == "Metadata")


def actions_of(snapshot: J) -> Sequence[J]:
    """Return the AddFile actions of a version."""
    files = known_files(snapshot)
    return list(snapshot.allFiles().collectAsList()) if files is None else catalyst.sequence(files)


def known_files(snapshot: J) -> J | None:
    """Return the AddFiles in a version's checksum, which small tables have; None if listing them takes Spark jobs."""
    known = catalyst.option(snapshot.checksumOpt())
    files = None if known is None else catalyst.option(known.allFiles())
    return None if known is None or files is None or files.size() != known.numFiles() else files


def needs_mapping(columns: Sequence[str]) -> bool:
    """Return whether some column name needs Delta's name mapping, which gives columns other names in the files."""
    return any(UNMAPPED & set(name) for name in columns)


def id_of(action: J) -> str:
    """Return the id of a commit, which its first action contains; empty where it does not."""
    known = catalyst.option(action.txnId()) if catalyst.kind(action) == "CommitInfo" else None
    return "" if known is None else str(known)
