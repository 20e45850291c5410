"""Keep the rows of files in the driver's memory, as Spark's LocalRelation."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from deltafold.algebra.sqltext import quoted
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J
from deltafold.spark.checkpoint import internal_rows

ROW = "__row"  # the position of a row in its relation, from 0


def empty_relation(spark: SparkSession, schema: StructType) -> J:
    """Return a relation with the columns of a schema, all nullable, and no rows."""
    java = catalyst.module(catalyst.sql(spark).types, "DataType").fromJson(schema.json())
    utils = catalyst.module(catalyst.catalyst(spark).types, "DataTypeUtils")
    attributes = [attribute.withNullability(True) for attribute in catalyst.sequence(utils.toAttributes(java))]
    return relation(spark, catalyst.vector(spark, attributes), catalyst.vector(spark, []))


def relation(spark: SparkSession, output: J, rows: J) -> J:
    """Return a LocalRelation of Scala sequences of attributes and of rows."""
    return catalyst.catalyst(spark).plans.logical.LocalRelation(output, rows, False, catalyst.none(spark))


def with_rows(like: J, rows: J) -> J:
    """Return a relation with the same columns and other rows."""
    return like.copy(like.output(), rows, like.isStreaming(), like.stream())


def compute_rows(of: DataFrame, like: J) -> J:
    """Compute the rows of a frame; like: a relation with the same columns."""
    rows = internal_rows(of)
    sequence = catalyst.jvm(of.sparkSession).scala.collection.immutable.ArraySeq.unsafeWrapArray(rows)
    return with_rows(like, sequence)


def conform(rows: DataFrame, schema: StructType) -> DataFrame:
    """Cast a frame to the columns of a schema; NULL where the frame lacks one."""
    types = {field.name: field.dataType for field in rows.schema}
    if list(types.items()) == [(field.name, field.dataType) for field in schema]:
        return rows
    columns = [(F.col(quoted(field.name)) if field.name in types else F.lit(None), field) for field in schema]
    return rows.select(*(value.cast(field.dataType).alias(field.name) for value, field in columns))


def count(rows: J) -> int:
    """Return the number of rows of a relation."""
    return int(rows.data().size())


def concatenate(like: J, relations: Sequence[J]) -> J:
    """Concatenate relations with the same columns."""
    if len(relations) == 1:
        return relations[0]
    rows = like.data()
    for relation in relations:
        rows = rows.appendedAll(relation.data())
    return with_rows(like, rows)


def drop_positions(spark: SparkSession, rows: J, positions: Sequence[int]) -> J:
    """Remove the rows at some positions."""
    nothing, kept = catalyst.vector(spark, []), rows.data()
    for position in sorted(positions, reverse=True):
        kept = kept.patch(position, nothing, 1)
    return with_rows(rows, kept)


def subtract(rows: J, others: J) -> J:
    """Remove the rows of another relation, each as often as it occurs there; rows are compared byte by byte."""
    return with_rows(rows, rows.data().diff(others.data()))


def frame_of_rows(spark: SparkSession, rows: J) -> DataFrame:
    """Return a relation as a DataFrame, with new attribute ids."""
    return catalyst.frame(spark, rows.newInstance())


def number_rows(spark: SparkSession, rows: J) -> DataFrame:
    """Return a relation as a DataFrame with the position of each row in ROW; one partition keeps their order."""
    return frame_of_rows(spark, rows).coalesce(1).withColumn(ROW, F.monotonically_increasing_id())


def materialize(rows: DataFrame) -> DataFrame:
    """Compute the rows of a frame once, and return them as a frame."""
    spark = rows.sparkSession
    output = [attribute.withNullability(True) for attribute in catalyst.sequence(catalyst.analysed_plan(rows).output())]
    return frame_of_rows(
        spark, compute_rows(rows, relation(spark, catalyst.vector(spark, output), catalyst.vector(spark, [])))
    )
