"""Rows that the driver holds, as Spark's LocalRelation: what the files of a lake in memory are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from incremental.algebra.sqltext import quoted
from incremental.spark import catalyst
from incremental.spark.catalyst import J

ROW = "__row"  # where a row is among those of its relation, from 0


def empty_relation(spark: SparkSession, schema: StructType) -> J:
    """No rows of a schema, any column of which may be NULL."""
    java = catalyst.module(catalyst.sql(spark).types, "DataType").fromJson(schema.json())
    utils = catalyst.module(catalyst.catalyst(spark).types, "DataTypeUtils")
    attributes = [attribute.withNullability(True) for attribute in catalyst.sequence(utils.toAttributes(java))]
    return relation(spark, catalyst.vector(spark, attributes), catalyst.vector(spark, []))


def relation(spark: SparkSession, output: J, rows: J) -> J:
    """A LocalRelation of Scala sequences of attributes and of rows."""
    return catalyst.catalyst(spark).plans.logical.LocalRelation(output, rows, False, catalyst.none(spark))


def holding(like: J, rows: J) -> J:
    """A relation with the same columns and other rows."""
    return like.copy(like.output(), rows, like.isStreaming(), like.stream())


def collected(of: DataFrame, like: J) -> J:
    """The rows of a frame, computed now; like: a relation with the same columns."""
    rows = cast(Any, of)._jdf.queryExecution().executedPlan().executeCollect()
    sequence = catalyst.jvm(of.sparkSession).scala.collection.immutable.ArraySeq.unsafeWrapArray(rows)
    return holding(like, sequence)


def shaped(rows: DataFrame, schema: StructType) -> DataFrame:
    """The columns of a schema; NULL where the frame lacks one."""
    types = {field.name: field.dataType for field in rows.schema}
    if list(types.items()) == [(field.name, field.dataType) for field in schema]:
        return rows
    columns = [(F.col(quoted(field.name)) if field.name in types else F.lit(None), field) for field in schema]
    return rows.select(*(value.cast(field.dataType).alias(field.name) for value, field in columns))


def count(rows: J) -> int:
    """How many rows a relation has."""
    return int(rows.data().size())


def joined(like: J, relations: Sequence[J]) -> J:
    """The rows of several relations with the same columns, one after the other."""
    if len(relations) == 1:
        return relations[0]
    rows = like.data()
    for each in relations:
        rows = rows.appendedAll(each.data())
    return holding(like, rows)


def without(spark: SparkSession, rows: J, gone: Sequence[int]) -> J:
    """A relation less the rows at some places."""
    nothing, left = catalyst.vector(spark, []), rows.data()
    for place in sorted(gone, reverse=True):
        left = left.patch(place, nothing, 1)
    return holding(rows, left)


def less(rows: J, others: J) -> J:
    """A relation less the rows of another, each as often as it occurs there; rows are compared byte by byte."""
    return holding(rows, rows.data().diff(others.data()))


def frame(spark: SparkSession, rows: J) -> DataFrame:
    """A relation as a DataFrame with identities of its own."""
    return catalyst.frame(spark, rows.newInstance())


def with_places(spark: SparkSession, rows: J) -> DataFrame:
    """The same with the place of each row: one partition keeps their order, so that numbers follow it."""
    return frame(spark, rows).coalesce(1).withColumn(ROW, F.monotonically_increasing_id())


def evaluated(rows: DataFrame) -> DataFrame:
    """The rows of a frame, computed now, once."""
    spark = rows.sparkSession
    output = [attribute.withNullability(True) for attribute in catalyst.sequence(catalyst.analysed(rows).output())]
    return frame(spark, collected(rows, relation(spark, catalyst.vector(spark, output), catalyst.vector(spark, []))))
