"""Tables that the driver holds: queries over a few rows are planned without shuffles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from incremental.lake.memory.rows import compute_rows, empty_relation
from incremental.spark import catalyst


def local(spark: SparkSession, schema: str, rows: Sequence[Any]) -> DataFrame:
    made = spark.createDataFrame(list(rows), schema).coalesce(1)
    return catalyst.frame(spark, compute_rows(made, empty_relation(spark, made.schema)))
