"""Language room: what values are ordered by. In: an expression. Out: one that Spark can order, and orders it alike."""

from __future__ import annotations

from pyspark.sql import SparkSession

from incremental.spark import catalyst
from incremental.spark.catalyst import J


def is_orderable(spark: SparkSession, value: J) -> bool:
    """Whether the values of an expression can be ordered."""
    ordering = catalyst.module(catalyst.catalyst(spark).expressions, "RowOrdering")
    return bool(ordering.isOrderable(catalyst.vector(spark, [value])))


def ranked(spark: SparkSession, value: J) -> J | None:
    """What tells different values apart in an order: themselves, a map's sorted entries, a VARIANT's text and type."""
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
            return struct(spark, [text, expressions.variant.SchemaOfVariant(value)])
        case _:
            return None


def struct(spark: SparkSession, values: list[J]) -> J:
    """A struct of values, compared in their order."""
    named = [part for i, value in enumerate(values) for part in (catalyst.parsed(spark, f"'v{i}'"), value)]
    return catalyst.catalyst(spark).expressions.CreateNamedStruct(catalyst.vector(spark, named))
