"""Apply deletion vectors to files that are read as a whole, in a quarter less time than Delta's usual scan (D-122).

Delta finds the number of a row by Spark's column `_metadata.row_index`, an object per row, so that a file can be split
among tasks and parts of it skipped. For a file that one task reads from its first row, Delta has another reader, which
counts the rows; it is built here for scans of which nothing can be skipped anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.lake.log.actions import from_java, java_list
from deltafold.lake.log.file_lists import known_files
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

FILE_RELATION = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
USUAL_READER = "spark.databricks.delta.deletionVectors.useMetadataRowIndex"
MANY_BYTES = 8 * 1024 * 1024  # of files, below which the other reader saves less than it takes to build
KEPT = "0Y"  # what Delta's reader says of a row that is not deleted


def read_whole(spark: SparkSession, scan: J) -> J:
    """Return a plan of the same rows as Spark's scan of some files of a Delta table; the scan itself if nothing is
    gained.
    """
    if not catalyst.is_java_instance(scan.relation(), FILE_RELATION):
        return scan
    index = scan.relation().location()
    if catalyst.kind(index) != "TahoeBatchFileIndex" or is_read_whole(scan):
        return scan
    files, table = index.addFiles(), known_files(index.snapshot())
    if table is None or 2 * files.size() < table.size():  # where files are skipped, so are parts of the others
        return scan
    actions = list(from_java(spark, java_list(spark, files)))
    if not any(action.get("deletionVector") for action in actions):
        return scan
    return apply_vectors(spark, scan) if stay_whole(spark, [int(action["size"]) for action in actions]) else scan


def changed_rows(spark: SparkSession, changed: J, sizes: Sequence[int]) -> DataFrame:
    """Return what Delta's reader of changes gives as Scala's DataFrame, by the other reader where files allow it.

    sizes: the bytes of the files.
    """
    (scan,) = catalyst.relations_read(changed.queryExecution().analyzed())
    if not stay_whole(spark, sizes):
        return DataFrame(changed, spark)
    return catalyst.frame(spark, apply_vectors(spark, scan))


def rows_with_places(
    spark: SparkSession, stored: DataFrame, files: J, in_file: str, at_row: str, within: Column | None = None
) -> DataFrame:
    """Return the rows of some AddFiles with the path of their file and their number in it, in two more columns.

    within: the condition of the rows that are wanted, by which most parts of the files can be skipped.
    """
    path, number = F.col("_metadata.file_path").alias(in_file), F.col("_metadata.row_index").alias(at_row)
    if within is not None:
        return stored.where(within).select("*", path, number)
    if not stay_whole(spark, [int(action["size"]) for action in from_java(spark, java_list(spark, files))]):
        return stored.select("*", path, number)
    plan = catalyst.analysed_plan(stored.select("*", path))
    (scan,) = catalyst.relations_read(plan)
    rows = apply_vectors(spark, scan, numbered=True)
    counted = catalyst.new_alias(spark, rows.output().last(), at_row)
    columns = catalyst.vector(spark, [*catalyst.sequence(plan.projectList()), counted])
    return catalyst.frame(spark, catalyst.catalyst(spark).plans.logical.Project(columns, rows))


def is_read_whole(scan: J) -> bool:
    """Return whether a scan gets its reader of deletion vectors from `apply_vectors`, and not from Delta."""
    return bool(scan.relation().fileFormat().hasTablePath())


def stay_whole(spark: SparkSession, sizes: Sequence[int]) -> bool:
    """Return whether files of these bytes are worth the other reader, and Spark would read each in one task."""
    if not sizes:
        return False
    total, session = sum(sizes), catalyst.session(spark)
    conf = session.sessionState().conf()
    tasks = int(catalyst.option(conf.filesMinPartitionNum()) or session.leafNodeDefaultParallelism())
    opening = int(conf.filesOpenCostInBytes())
    share = (total + opening * len(sizes)) // tasks
    return total >= MANY_BYTES and max(sizes) <= min(int(conf.filesMaxPartitionBytes()), max(opening, share))


def apply_vectors(spark: SparkSession, scan: J, *, numbered: bool = False) -> J:
    """Return the rows of a scan that are not deleted; numbered: with their numbers in the file as the last column."""
    formats = catalyst.module(catalyst.sql(spark).delta, "DeltaParquetFileFormat")
    deleted, number = formats.IS_ROW_DELETED_STRUCT_FIELD(), formats.ROW_INDEX_STRUCT_FIELD()
    fields = [deleted, number] if numbered else [deleted]
    added = [
        catalyst.attribute(spark, field.name(), field.dataType(), catalyst.new_id(spark), nullable=True)
        for field in fields
    ]
    output = catalyst.sequence(scan.output())
    columns = catalyst.vector(spark, [*output, *added])
    marked = with_relation(scan, _with_fields(spark, scan.relation(), fields), columns)
    kept = catalyst.catalyst(spark).expressions.EqualTo(added[0], catalyst.parse_expression(spark, KEPT))
    logical = catalyst.catalyst(spark).plans.logical
    return logical.Project(catalyst.vector(spark, [*output, *added[1:]]), logical.Filter(kept, marked))


def with_relation(scan: J, relation: J, output: J) -> J:
    """Return a LogicalRelation that reads another relation and returns these attributes."""
    return scan.copy(relation, output, scan.catalogTable(), scan.isStreaming(), getattr(scan, "copy$default$5")())


def _with_fields(spark: SparkSession, relation: J, fields: Sequence[J]) -> J:
    """Return a relation of Delta's other reader, which adds these fields to what it reads."""
    session = catalyst.isolate_session(spark)
    session.conf.set(USUAL_READER, "false")
    catalyst.activate(session)  # where the reader looks for this setting
    try:
        reader = relation.fileFormat().copyWithDVInfo(relation.location().path().toString(), False)
    finally:
        catalyst.activate(spark)
    schema = relation.dataSchema()
    for field in fields:
        schema = schema.add(field)
    made = catalyst.sql(spark).execution.datasources.HadoopFsRelation
    return made(
        relation.location(),
        relation.partitionSchema(),
        schema,
        relation.bucketSpec(),
        reader,
        relation.options(),
        relation.sparkSession(),
    )
