"""List, count, compare and look for the files of a Delta table's versions.

The checksum beside a commit lists the files of a small table. The file lists of all others stay in Spark: only what
was asked for is collected, so that the driver's memory does not grow with the table.

| two versions that | are compared by |
| --- | --- |
| list their files in checksums (small tables) | these lists |
| have few commits in between (MOST_COMMITS) | what these add and remove, if the sizes in the checksums confirm it |
| any others | an anti-join in Spark over (path, deletion vector) |

A vacuum may have removed files. A few are looked for one by one; many by a listing of the table's folders in Spark
tasks, of which only a missing file reaches the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from deltafold.lake.files import MOST_COMMITS, Action, File, data_file, net_change, physical_rows
from deltafold.lake.log.actions import from_java, java_list, to_java
from deltafold.lake.log.commit_log import commits_between
from deltafold.lake.log.delta_log import class_named
from deltafold.lake.protocol import PartitionFiles
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

ROWS_OF_FILE = "CAST(get_json_object(stats, '$.numRecords') AS BIGINT)"
DELETED = "coalesce(deletionVector.cardinality, 0)"
MOST_FILES = 1000  # that the driver holds for one scan or one commit
SINGLE_CALLS = 16  # the files of more are looked at in one call, which takes as long
SETTINGS_OF_METADATA = 6  # the place of the settings of a table in Delta's Metadata


def known_files(snapshot: J) -> J | None:
    """Return the AddFiles in a version's checksum, which small tables have; None if listing them takes Spark jobs."""
    checksum = catalyst.option(snapshot.checksumOpt())
    files = None if checksum is None else catalyst.option(checksum.allFiles())
    return None if checksum is None or files is None or files.size() != checksum.numFiles() else files


def files_of(spark: SparkSession, snapshot: J) -> list[File]:
    """Return all files of a version."""
    listed_files = known_files(snapshot)
    listed = snapshot.allFiles().collectAsList() if listed_files is None else java_list(spark, listed_files)
    return [data_file(action) for action in from_java(spark, listed)]


def row_count(spark: SparkSession, snapshot: J) -> int | None:
    """Return the number of rows of a version; None if a writer did not record that of a file."""
    listed_files = known_files(snapshot)
    if listed_files is not None:
        rows = [data_file(action).rows for action in from_java(spark, java_list(spark, listed_files))]
        return None if None in rows else sum(rows_of_file or 0 for rows_of_file in rows)
    totals = (
        "count(*) AS files",
        f"count({ROWS_OF_FILE}) AS counted",
        f"coalesce(sum({ROWS_OF_FILE} - {DELETED}), 0) AS total",
    )
    counts = rows_of_actions(spark, snapshot).selectExpr(*totals).collect()[0]
    return int(counts["total"]) if counts["files"] == counts["counted"] else None


def rows_of_actions(spark: SparkSession, snapshot: J) -> DataFrame:
    """Return the AddFiles of a version as rows."""
    return DataFrame(snapshot.allFiles().toDF(), spark)


def local_rows(spark: SparkSession, files: J) -> DataFrame:
    """Return AddFiles as rows that the driver has, so that no Spark job reads them."""
    rich = catalyst.module(catalyst.sql(spark).delta.implicits, "package").RichAddFileSeq(files)
    return DataFrame(rich.toDF(catalyst.session(spark)), spark)


def as_add_files(spark: SparkSession, actions: J) -> J:
    """Return Scala's Dataset of AddFiles in rows, given as Scala's DataFrame."""
    return getattr(actions, "as")(catalyst.module(catalyst.sql(spark).delta.implicits, "package").addFileEncoder())


def rows_of_files(spark: SparkSession, log: J, snapshot: J, files: J) -> DataFrame:
    """Return the rows of some AddFiles of a version, deletion vectors applied."""
    defaults = [getattr(log, f"createDataFrame$default${i}")() for i in (3, 4)]
    return DataFrame(log.createDataFrame(snapshot, files, *defaults), spark)


def without_vectors(spark: SparkSession, log: J, snapshot: J) -> J:
    """Return a version as one of a table that cannot have deletion vectors, to read files of it that have none (D-149).

    Delta's planner then does not list the files of a scan once more to find that out, which takes some 20 ms, and 50 in
    a new process. Returned is the version itself if this release of Delta describes versions otherwise.
    """
    delta = catalyst.sql(spark).delta
    vectors = catalyst.module(delta.commands, "DeletionVectorUtils")
    readable = vectors.deletionVectorsReadable(snapshot.protocol(), snapshot.metadata())
    if not readable or not _describes_protocol(catalyst.jvm(spark)):
        return snapshot
    without = snapshot.protocol().removeFeature(catalyst.module(delta, "DeletionVectorsTableFeature"))
    none, metadata = catalyst.none(spark), _without_setting(snapshot.metadata())
    return delta.DummySnapshot(snapshot.logPath(), log, metadata, none, catalyst.some(spark, without))


def _without_setting(metadata: J) -> J:
    """Return a Metadata action without the setting that makes deletion vectors, which needs their feature."""
    kept = metadata.configuration().removed("delta.enableDeletionVectors")
    if kept.size() == metadata.configuration().size():
        return metadata
    fields = [getattr(metadata, f"copy$default${i}")() for i in range(1, metadata.productArity() + 1)]
    fields[SETTINGS_OF_METADATA] = kept
    return metadata.copy(*fields)


def has_vectors(snapshot: J, files: J) -> bool:
    """Return whether any of all files of a version may have a deletion vector; files: as its checksum lists them."""
    if files.size() <= SINGLE_CALLS:
        return any(file.deletionVector() is not None for file in catalyst.sequence(files))
    counted = catalyst.option(snapshot.checksumOpt().get().numDeletionVectorsOpt())
    return counted is None or int(counted) > 0


@lru_cache(maxsize=2)
def _describes_protocol(java: catalyst.Package) -> bool:
    """Return whether this release describes a version by place, log, metadata, domains and protocol."""
    made = class_named(java, "org.apache.spark.sql.delta.DummySnapshot").getConstructors()
    types = [[str(each.getName()).rsplit(".", 1)[-1] for each in one.getParameterTypes()] for one in made]
    return ["Path", "DeltaLog", "Metadata", "Option", "Option"] in types


def collect_files(spark: SparkSession, actions: DataFrame) -> list[File]:
    """Return the files of AddFiles in rows."""
    added = as_add_files(spark, catalyst.dataset(actions)).collectAsList()
    return [data_file(action) for action in from_java(spark, added)]


def partition_files(spark: SparkSession, snapshot: J, small_bytes: int) -> tuple[PartitionFiles, ...]:
    """Return the files of a version by its first partition column; one entry for an unpartitioned table."""
    listed_files = known_files(snapshot)
    if listed_files is not None:
        return count_by_partition(from_java(spark, java_list(spark, listed_files)), small_bytes)
    value = F.expr("get(map_values(partitionValues), 0)").alias("value")
    by_partition = rows_of_actions(spark, snapshot).groupBy(value)
    totals = "count(*)", f"count_if(size < {small_bytes})", f"coalesce(sum({ROWS_OF_FILE}), 0)", f"sum({DELETED})"
    rows = by_partition.agg(*map(F.expr, totals)).collect()
    return tuple(PartitionFiles(value=row[0], files=row[1], small=row[2], rows=row[3], deleted=row[4]) for row in rows)


def partition_columns(metadata: J) -> list[str]:
    """Return the partition columns of a Metadata action, whose values are in the log and not in the files."""
    return [str(name) for name in catalyst.sequence(metadata.partitionColumns())]


def count_by_partition(actions: Iterable[Action], small_bytes: int) -> tuple[PartitionFiles, ...]:
    """Return the files of `add` actions by the first partition column."""
    by_value: dict[str | None, PartitionFiles] = {}
    for action in actions:
        value = next(iter(action["partitionValues"].values()), None)
        part, vector = by_value.get(value, PartitionFiles(value=value)), action.get("deletionVector")
        by_value[value] = PartitionFiles(
            value=value,
            files=part.files + 1,
            small=part.small + (int(action["size"]) < small_bytes),
            rows=part.rows + (physical_rows(action) or 0),
            deleted=part.deleted + (0 if vector is None else int(vector["cardinality"])),
        )
    return tuple(by_value.values())


Sides = tuple[list[File], list[File]]
"""The files that only the older version has, and those that only the newer one has."""


def differing_files(spark: SparkSession, log: J, old: J, new: J) -> Sides:
    """Return the files that only one of two versions has: of the old one, and of the new one (D-103)."""
    if known_files(old) is not None and known_files(new) is not None:
        before, after = ({file.identity: file for file in files_of(spark, snapshot)} for snapshot in (old, new))
        removed = [file for identity, file in before.items() if identity not in after]
        return removed, [file for identity, file in after.items() if identity not in before]
    return differing_by_commits(spark, log, old, new) or differing_by_join(spark, old, new)


def differing_by_commits(spark: SparkSession, log: J, old: J, new: J) -> Sides | None:
    """Return the same from the commits in between; None if they do not account for the size of both versions."""
    if int(old.version()) > int(new.version()):
        sides = differing_by_commits(spark, log, new, old)
        return None if sides is None else (sides[1], sides[0])
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
    checksum = catalyst.option(snapshot.checksumOpt())
    return None if checksum is None else (int(checksum.numFiles()), int(checksum.tableSizeBytes()))


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


SINGLE_LOOKUPS = 1000  # files looked for one by one: a millisecond each in a local folder, ten in an object store
SOMEWHERE = r"^(/|[A-Za-z][A-Za-z0-9+.-]*:)"  # a path that is not relative to its table, as in a shallow clone


def find_missing_of(spark: SparkSession, log: J, snapshot: J) -> str | None:
    """Return the path of a file of a version that no longer exists; None if all do."""
    if known_files(snapshot) is not None:
        return find_missing(spark, log, files_of(spark, snapshot))
    return find_unlisted(spark, log, rows_of_actions(spark, snapshot))


def find_missing(spark: SparkSession, log: J, files: Sequence[File]) -> str | None:
    """Return the path of one of some files, or deletion vectors, that no longer exists; None if all do."""
    if len(files) > SINGLE_LOOKUPS:
        actions = catalyst.module(catalyst.sql(spark).delta.implicits, "package")
        rows = actions.RichAddFileSeq(to_java(spark, [file.action for file in files])).toDF(catalyst.session(spark))
        return find_unlisted(spark, log, DataFrame(rows, spark))
    operations = catalyst.module(catalyst.sql(spark).delta.util, "DeltaFileOperations")
    root = log.dataPath()
    system, base = root.getFileSystem(log.newDeltaHadoopConf()), str(root.toString())
    paths = [operations.absolutePath(base, file.identity[0]) for file in files]
    marked = to_java(spark, [file.action for file in files if file.identity[1]])
    vectors = [action.deletionVector() for action in catalyst.sequence(marked)]
    paths += [vector.absolutePath(root) for vector in vectors if vector.isOnDisk()]
    return next((str(path.toString()) for path in paths if not system.exists(path)), None)


def find_unlisted(spark: SparkSession, log: J, actions: DataFrame) -> str | None:
    """Return the path of a file of AddFiles, or of a deletion vector, that no listing of the folders contains."""
    root = log.dataPath()
    descriptors = catalyst.module(catalyst.sql(spark).delta.actions, "DeletionVectorDescriptor")
    on_disk = actions.where("deletionVector.storageType <> 'i'")
    vector = descriptors.urlEncodedPath(cast(Any, F.col("deletionVector"))._jc, root)
    needed = actions.select(absolute(F.col("path"), str(root)).alias("path")).union(
        on_disk.select(absolute(ClassicColumn(vector), str(root)))
    )
    beyond = needed.where(~F.col("path").startswith(f"{root}/"))
    folders = beyond.select(F.regexp_replace("path", "/[^/]*$", "").alias("folder")).distinct().collect()
    listed = list_paths(spark, log, [str(root), *(str(row[0]) for row in folders)])
    unlisted = needed.join(listed, "path", "left_anti").first()
    return None if unlisted is None else str(unlisted[0])


def absolute(path: Column, root: str) -> Column:
    """Return the path of a file as a listing gives it, from the URL-encoded one of an action."""
    decoded = F.url_decode(F.replace(path, F.lit("+"), F.lit("%2B")))  # a plus is not a space in a path
    return F.when(decoded.rlike(SOMEWHERE), decoded).otherwise(F.concat(F.lit(f"{root}/"), decoded))


def list_paths(spark: SparkSession, log: J, folders: Sequence[str]) -> DataFrame:
    """Return the paths of all files in some folders and the folders below, found by Spark's tasks."""
    java = catalyst.jvm(spark)
    settings = java.org.apache.spark.util.SerializableConfiguration(log.newDeltaHadoopConf())
    names = catalyst.module(java.scala.collection.immutable, "Set").empty()  # a set is the function of its members
    operations = catalyst.module(catalyst.sql(spark).delta.util, "DeltaFileOperations")
    listed = operations.recursiveListDirs(
        catalyst.session(spark),
        catalyst.vector(spark, folders),
        cast(Any, spark.sparkContext)._jsc.broadcast(settings),
        names.incl("_delta_log"),
        names,
        catalyst.none(spark),
        True,
    )
    return DataFrame(listed.toDF(), spark).where("NOT isDir").select("path")
