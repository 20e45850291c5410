"""List and count the files of a Delta table's versions.

The checksum beside a commit lists the files of a small table. The file lists of all others stay in Spark: only what
was asked for is collected, so that the driver's memory does not grow with the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.lake.files import Action, File, data_file, physical_rows
from deltafold.lake.log.actions import from_java, java_list
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
    known = catalyst.option(snapshot.checksumOpt())
    files = None if known is None else catalyst.option(known.allFiles())
    return None if known is None or files is None or files.size() != known.numFiles() else files


def files_of(spark: SparkSession, snapshot: J) -> list[File]:
    """Return all files of a version."""
    known = known_files(snapshot)
    listed = snapshot.allFiles().collectAsList() if known is None else java_list(spark, known)
    return [data_file(action) for action in from_java(spark, listed)]


def row_count(spark: SparkSession, snapshot: J) -> int | None:
    """Return the number of rows of a version; None if a writer did not record that of a file."""
    known = known_files(snapshot)
    if known is not None:
        rows = [data_file(action).rows for action in from_java(spark, java_list(spark, known))]
        return None if None in rows else sum(each or 0 for each in rows)
    totals = (
        "count(*) AS files",
        f"count({ROWS_OF_FILE}) AS counted",
        f"coalesce(sum({ROWS_OF_FILE} - {DELETED}), 0) AS total",
    )
    found = rows_of_actions(spark, snapshot).selectExpr(*totals).collect()[0]
    return int(found["total"]) if found["files"] == found["counted"] else None


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
    """Return a version as one of a table that cannot have deletion vectors, to read files of it that have none.

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
    found = as_add_files(spark, catalyst.dataset(actions)).collectAsList()
    return [data_file(action) for action in from_java(spark, found)]


def partition_files(spark: SparkSession, snapshot: J, small_bytes: int) -> tuple[PartitionFiles, ...]:
    """Return the files of a version by its first partition column; one entry for an unpartitioned table."""
    known = known_files(snapshot)
    if known is not None:
        return count_by_partition(from_java(spark, java_list(spark, known)), small_bytes)
    value = F.expr("get(map_values(partitionValues), 0)").alias("value")
    found = rows_of_actions(spark, snapshot).groupBy(value)
    totals = "count(*)", f"count_if(size < {small_bytes})", f"coalesce(sum({ROWS_OF_FILE}), 0)", f"sum({DELETED})"
    rows = found.agg(*map(F.expr, totals)).collect()
    return tuple(PartitionFiles(row[0], row[1], row[2], row[3], row[4]) for row in rows)


def partition_columns(metadata: J) -> list[str]:
    """Return the partition columns of a Metadata action, whose values are in the log and not in the files."""
    return [str(name) for name in catalyst.sequence(metadata.partitionColumns())]


def count_by_partition(actions: Iterable[Action], small_bytes: int) -> tuple[PartitionFiles, ...]:
    """Return the files of `add` actions by the first partition column."""
    found: dict[str | None, PartitionFiles] = {}
    for action in actions:
        value = next(iter(action["partitionValues"].values()), None)
        part, vector = found.get(value, PartitionFiles(value)), action.get("deletionVector")
        found[value] = PartitionFiles(
            value,
            part.files + 1,
            part.small + (int(action["size"]) < small_bytes),
            part.rows + (physical_rows(action) or 0),
            part.deleted + (0 if vector is None else int(vector["cardinality"])),
        )
    return tuple(found.values())
