"""Rows that the driver holds as a DataFrame: reading them takes no Spark job, unlike those of `createDataFrame`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.conversion import LocalDataToArrowConversion
from pyspark.sql.types import StructType

from deltafold.spark import catalyst
from tests.lake.memory.rows import empty_relation, frame_of_rows


def local(spark: SparkSession, rows: Sequence[Any], schema: str | StructType) -> DataFrame:
    """A LocalRelation of the rows; of types that Arrow lacks, a scan of an RDD."""
    columns = catalyst.schema_of(schema) if isinstance(schema, str) else schema
    if not rows:
        return frame_of_rows(spark, empty_relation(spark, columns))
    try:
        table = LocalDataToArrowConversion.convert(list(rows), columns, False)
    except PySparkTypeError as error:
        if error.getCondition() != "UNSUPPORTED_DATA_TYPE_FOR_ARROW_CONVERSION":
            raise
        return spark.createDataFrame(list(rows), columns).coalesce(1)
    return spark.createDataFrame(table, columns)
