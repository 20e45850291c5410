"""Look for the files of a Delta table, which a vacuum may have removed.

A few are looked for one by one; many by a listing of the table's folders in Spark tasks, of which only a missing file
reaches the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from deltafold.lake.files import File
from deltafold.lake.log.actions import to_java
from deltafold.lake.log.file_lists import files_of, known_files, rows_of_actions
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

SINGLE_LOOKUPS = 1000  # files looked for one by one: a millisecond each in a local folder, ten in an object store
SOMEWHERE = r"^(/|[A-Za-z][A-Za-z0-9+.-]*:)"  # a path that is not relative to its table, as in a shallow clone


def version_exists(spark: SparkSession, log: J, snapshot: J) -> bool:
    """Return whether all files of a version still exist."""
    if known_files(snapshot) is not None:
        return files_exist(spark, log, files_of(spark, snapshot))
    return all_listed(spark, log, rows_of_actions(spark, snapshot))


def files_exist(spark: SparkSession, log: J, files: Sequence[File]) -> bool:
    """Return whether some files of a table, and their deletion vectors, still exist."""
    if len(files) > SINGLE_LOOKUPS:
        actions = catalyst.module(catalyst.sql(spark).delta.implicits, "package")
        rows = actions.RichAddFileSeq(to_java(spark, [file.action for file in files])).toDF(catalyst.session(spark))
        return all_listed(spark, log, DataFrame(rows, spark))
    operations = catalyst.module(catalyst.sql(spark).delta.util, "DeltaFileOperations")
    root = log.dataPath()
    system, base = root.getFileSystem(log.newDeltaHadoopConf()), str(root.toString())
    paths = [operations.absolutePath(base, file.identity[0]) for file in files]
    marked = to_java(spark, [file.action for file in files if file.identity[1]])
    vectors = [action.deletionVector() for action in catalyst.sequence(marked)]
    paths += [vector.absolutePath(root) for vector in vectors if vector.isOnDisk()]
    return all(system.exists(path) for path in paths)


def all_listed(spark: SparkSession, log: J, actions: DataFrame) -> bool:
    """Return whether listings of the folders contain all files of AddFiles, and their deletion vectors."""
    root = log.dataPath()
    descriptors = catalyst.module(catalyst.sql(spark).delta.actions, "DeletionVectorDescriptor")
    on_disk = actions.where("deletionVector.storageType <> 'i'")
    vector = descriptors.urlEncodedPath(cast(Any, F.col("deletionVector"))._jc, root)
    needed = actions.select(absolute(F.col("path"), str(root)).alias("path")).union(
        on_disk.select(absolute(ClassicColumn(vector), str(root)))
    )
    beyond = needed.where(~F.col("path").startswith(f"{root}/"))
    folders = beyond.select(F.regexp_replace("path", "/[^/]*$", "").alias("folder")).distinct().collect()
    found = list_paths(spark, log, [str(root), *(str(row[0]) for row in folders)])
    return needed.join(found, "path", "left_anti").isEmpty()


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
    found = operations.recursiveListDirs(
        catalyst.session(spark),
        catalyst.vector(spark, folders),
        cast(Any, spark.sparkContext)._jsc.broadcast(settings),
        names.incl("_delta_log"),
        names,
        catalyst.none(spark),
        True,
    )
    return DataFrame(found.toDF(), spark).where("NOT isDir").select("path")
