"""Runtime room: the view against the batch query. In: two DataFrames. Out: rows missing and rows too many, counted.

`EXCEPT ALL` both ways. Sums of floating numbers depend on the order of their terms, in Spark too, so floats are
compared to nine significant digits, and what is below 1e-9 counts as zero; everything else is compared exactly.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType

from incremental.runtime.layout import quoted

DIGITS = 9
ROUNDING_GRIDS = (1.0, 1.2345678)  # two grids: close values on two sides of a rounding edge agree on one of them


def differing(expected: DataFrame, actual: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Rows of `expected` that `actual` lacks, and rows that it has too many, as comparable rows."""
    missing, extra = expected, actual
    for grid in ROUNDING_GRIDS if any(is_float(field.dataType) for field in expected.schema) else ROUNDING_GRIDS[:1]:
        missing, extra = one_sided(missing, extra, grid), one_sided(extra, missing, grid)
    return missing, extra


def one_sided(rows: DataFrame, others: DataFrame, grid: float) -> DataFrame:
    """The rows that have no partner among the others, duplicates counted, floats compared on a rounding grid."""
    names = rows.columns
    left = comparable(rows, grid).withColumn("__side", F.lit(1))
    right = comparable(others.toDF(*names), grid).withColumn("__side", F.lit(0))
    keys = [f"`{key}`" for key in left.columns if key.startswith("__key_")]
    collected = (
        left.unionByName(right, allowMissingColumns=True)
        .groupBy(*keys)
        .agg(
            F.sum(F.col("__side")).alias("__rows"),
            F.sum(1 - F.col("__side")).alias("__others"),
            F.collect_list(F.when(F.col("__side") == 1, F.struct(*(quoted(name) for name in names)))).alias("__all"),
        )
    )
    surplus = collected.where("__rows > __others")
    lonely = surplus.select(
        F.explode(F.slice(F.col("__all"), 1, (F.col("__rows") - F.col("__others")).cast("int"))).alias("r")
    )
    return lonely.select("r.*")


def comparable(rows: DataFrame, grid: float) -> DataFrame:
    """The rows with a comparison key for each column."""
    keys = [
        comparison_key(F.col(quoted(field.name)), field.dataType, grid).alias(f"__key_{i}")
        for i, field in enumerate(rows.schema)
    ]
    return rows.select("*", *keys)


def comparison_key(value: Column, data_type: DataType, grid: float) -> Column:
    """The value itself, or a float's mantissa to nine digits with its exponent."""
    if not is_float(data_type):
        return value
    number = value.cast("double")
    size = F.abs(number)
    scaled = number * F.lit(grid)
    exponent = F.floor(F.log10(F.abs(scaled)))
    mantissa = F.round(scaled / F.pow(F.lit(10.0), exponent), DIGITS)
    ordinary = F.struct(mantissa.alias("m"), exponent.cast("double").alias("e"))
    zero = F.struct(F.lit(0.0).alias("m"), F.lit(0.0).alias("e"))
    special = F.struct(number.alias("m"), F.lit(0.0).alias("e"))
    odd = F.isnan(number) | (size == float("inf"))
    return F.when(value.isNull(), F.lit(None)).when(odd, special).when(size < 1e-9, zero).otherwise(ordinary)


def is_float(data_type: DataType) -> bool:
    """Whether values of the type are floating numbers."""
    return isinstance(data_type, DoubleType | FloatType)
