"""Compare the files of two versions of a Delta table without collecting the files that both have.

| the versions | are compared by |
| --- | --- |
| list their files in checksums (small tables) | these lists |
| have few commits in between (MOST_COMMITS) | what these add and remove, if the sizes in the checksums confirm it |
| any others | an anti-join in Spark over (path, deletion vector) |
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.lake.files import MOST_COMMITS, File, net_change
from deltafold.lake.log.commit_log import commits_between
from deltafold.lake.log.file_lists import collect_files, files_of, known_files, partition_columns, rows_of_actions
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

Sides = tuple[list[File], list[File]]
"""The files that only the older version has, and those that only the newer one has."""


def differing_files(spark: SparkSession, log: J, old: J, new: J) -> Sides:
    """Return the files that only one of two versions has: of the old one, and of the new one."""
    if known_files(old) is not None and known_files(new) is not None:
        before, after = ({file.identity: file for file in files_of(spark, each)} for each in (old, new))
        removed = [file for identity, file in before.items() if identity not in after]
        return removed, [file for identity, file in after.items() if identity not in before]
    return differing_by_commits(spark, log, old, new) or differing_by_join(spark, old, new)


def differing_by_commits(spark: SparkSession, log: J, old: J, new: J) -> Sides | None:
    """Return the same from the commits in between; None if they do not account for the size of both versions."""
    if int(old.version()) > int(new.version()):
        found = differing_by_commits(spark, log, new, old)
        return None if found is None else (found[1], found[0])
    first, last = int(old.version()), int(new.version())
    sizes = recorded_size(old), recorded_size(new)
    if last - first > MOST_COMMITS or sizes[0] is None or sizes[1] is None:
        return None
    commits = commits_between(spark, log, first, last, lambda: partition_columns(old.metadata()))
    if commits is None:
        return None
    removed, added = (list(files.values()) for files in net_change(commits))
    grown = len(added) - len(removed), sum(file.bytes for file in added) - sum(file.bytes for file in removed)
    return (removed, added) if grown == (sizes[1][0] - sizes[0][0], sizes[1][1] - sizes[0][1]) else None


def recorded_size(snapshot: J) -> tuple[int, int] | None:
    """Return the number of files and their bytes from a version's checksum; None if it has none."""
    known = catalyst.option(snapshot.checksumOpt())
    return None if known is None else (int(known.numFiles()), int(known.tableSizeBytes()))


def differing_by_join(spark: SparkSession, old: J, new: J) -> Sides:
    """Return the same by a join of both file lists."""
    sides = rows_of_actions(spark, old), rows_of_actions(spark, new)
    return collect_files(spark, only_in(*sides)), collect_files(spark, only_in(*reversed(sides)))


def only_in(one: DataFrame, other: DataFrame) -> DataFrame:
    """Return the AddFiles of one version that another does not have."""
    keys = other.select(F.col("path").alias("__path"), vector_key().alias("__vector"))
    same = (F.col("path") == F.col("__path")) & (vector_key() == F.col("__vector"))
    return one.join(keys, same, "left_anti")


def vector_key() -> Column:
    """Return the identity of a file's deletion vector (see `vector_id`), empty if it has none."""
    return F.expr(
        "if(deletionVector IS NULL, '', concat(deletionVector.storageType, deletionVector.pathOrInlineDv, "
        "coalesce(concat('@', deletionVector.offset), '')))"
    )
