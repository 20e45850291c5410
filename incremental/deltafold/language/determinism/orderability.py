"""Determine which values Spark can order, and order other values by an equivalent expression."""

from __future__ import annotations

from pyspark.sql import SparkSession

from deltafold.spark import catalyst
from deltafold.spark.catalyst import J


def is_orderable(spark: SparkSession, value: J) -> bool:
    """Return whether Spark can order the values of an expression."""
    ordering = catalyst.module(catalyst.catalyst(spark).expressions, "RowOrdering")
    return bool(ordering.isOrderable(catalyst.vector(spark, [value])))


def orderable_equivalent(spark: SparkSession, value: J) -> J | None:
    """Return an expression that Spark can order and that differs where the values do, None if there is none.

    It is the value itself, the sorted entries of a map, or text and type of a VARIANT.
    """
    if is_orderable(spark, value):
        return value
    expressions = catalyst.catalyst(spark).expressions
    match catalyst.kind(value.dataType()):
        case "MapType":
            entries = expressions.MapEntries(value)
            return expressions.SortArray(entries) if is_orderable(spark, entries) else None
        case "VariantType" | "VariantType$":
            zone = catalyst.some(spark, str(spark.conf.get("spark.sql.session.timeZone")))
            text = expressions.Cast(value, catalyst.module(catalyst.sql(spark).types, "StringType"), zone)
            return make_struct(spark, [text, expressions.variant.SchemaOfVariant(value)])
        case _:
            return None


def make_struct(spark: SparkSession, values: list[J]) -> J:
    """Return a struct of values, which Spark compares in their order."""
    named = [part for i, value in enumerate(values) for part in (catalyst.parse_expression(spark, f"'v{i}'"), value)]
    return catalyst.catalyst(spark).expressions.CreateNamedStruct(catalyst.vector(spark, named))
