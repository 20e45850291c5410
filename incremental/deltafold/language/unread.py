"""Relations that have a schema and no data, over which a query is analysed before anything is read."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltafold.spark import catalyst
from deltafold.spark.catalyst import J


@dataclass(frozen=True)
class Placeholder:
    """A relation that stands for a source or a loop; number: that of its RDD, which survives self-joins."""

    schema: StructType
    plan: J
    number: int


@dataclass(frozen=True)
class Placeholders:
    """The placeholders of one analysis, by what each stands for.

    earlier: those of the previous analysis, which are reused: plans can only be compared over the same relations.
    """

    earlier: Mapping[Hashable, Placeholder] = field(default_factory=dict[Hashable, Placeholder])
    made: dict[Hashable, Placeholder] = field(default_factory=dict[Hashable, Placeholder])

    def make(self, spark: SparkSession, what: Hashable, schema: StructType) -> tuple[DataFrame, int]:
        """Return the frame of a placeholder, in a session, and its number."""
        placeholder = self.earlier.get(what)
        if placeholder is not None and placeholder.schema == schema:
            frame = catalyst.frame(spark, placeholder.plan)
        else:
            frame = _unread(spark, schema)
            placeholder = Placeholder(schema, catalyst.analysed_plan(frame), _relation_number(frame))
        self.made[what] = placeholder
        return frame, placeholder.number


def _unread(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return a frame that can be analysed and fails before any task runs, whose plan is a LogicalRDD of its own."""
    return DataFrame(
        catalyst.session(spark).applySchemaToPythonRDD(_failing_rdd(spark.sparkContext), schema.json()), spark
    )


@lru_cache(maxsize=1)
def _failing_rdd(context: SparkContext) -> J:
    """Return the RDD behind all such frames of a Spark application; each frame maps it to an RDD of its own."""
    java = cast(Any, context)
    rows = java._jvm.java.util.ArrayList()
    return (
        java._jsc.parallelize(rows, 1).zip(java._jsc.parallelize(rows, 2)).rdd()
    )  # zip fails if the numbers of partitions differ


def is_unread_error(message: str) -> bool:
    """Return whether Spark's message is that of a task that reads such a frame; it has no error class to test."""
    return "Can't zip RDDs" in message


def empty(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return a frame without rows."""
    return cast(Any, spark).createDataFrame(spark.sparkContext.emptyRDD(), schema)


def _relation_number(frame: DataFrame) -> int:
    """Return the RDD number of the relation behind a frame."""
    plan = catalyst.analysed_plan(frame)
    while catalyst.kind(plan) != "LogicalRDD":
        plan = plan.children().apply(0)
    return int(plan.rdd().id())
