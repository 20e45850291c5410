"""Compare a view with the batch query: count missing and extra rows.

The batch query is evaluated once: expected rows weigh 1, actual rows -1, and equal rows are summed.
Sums of floating numbers depend on the order of their terms, in Spark too, so floats are compared to nine significant
digits, and values below 1e-9 count as zero, at any depth; everything else is compared exactly, keys of maps too. The
sign of zero counts where the query only copies values or computes them within a row: of several rows Spark returns
either zero as their `max`, for example.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from deltafold.algebra.program import WEIGHT
from deltafold.algebra.results.report import MeasuredPoint, Verification
from deltafold.algebra.results.upkeep import format_count
from deltafold.algebra.sqltext import quoted, simple_types
from deltafold.operations.sampling import Sample
from deltafold.spark import catalyst
from deltafold.spark.checkpoint import measured_once, plan_without_constraints
from deltafold.store.journal import Intent
from deltafold.telemetry import log_work

DIGITS = 9
SAMPLE = 5
ROUNDING_GRIDS = (1.0, 1.2345678)  # two grids: close values on two sides of one grid's rounding edge agree on the other
COMPARED_ROW = "__row"
ACTUAL_ROWS = "__actual"
COMBINES_ROWS = re.compile("Aggregate|Window|Group|Deduplicate|Limit|Offset|LogicalRDD")  # the last: of loops


@dataclass(frozen=True)
class Discrepancy:
    """The numbers of missing and extra rows of an answer, a few of these rows as text, and the number of its rows."""

    missing: int
    extra: int
    sample: tuple[str, ...]
    rows: int


def count_differences(expected: DataFrame, actual: DataFrame, most: int) -> Discrepancy:
    """Compare two answers with the same columns as bags; the sample has at most `most` rows of each side.

    expected: the batch query, whose plan decides whether the sign of zero counts. Equal answers take one Spark job.
    """
    schema, signed = expected.schema, is_computed_by_row(expected)
    sides = with_weight(expected, 1).unionByName(with_weight(actual.toDF(*expected.columns), -1))
    surplus = (surplus_rows(F.col(WEIGHT)).alias("missing"), surplus_rows(-F.col(WEIGHT)).alias("extra"))
    measures = (*surplus, F.coalesce(F.sum(ACTUAL_ROWS), F.lit(0)).alias("rows"))
    summed = sum_equal(plan_without_constraints(sides), schema, ROUNDING_GRIDS[0], signed)
    with measured_once(summed, measures, F.col(WEIGHT) != 0) as (left, counted):
        rows, equal = int(counted["rows"]), not counted["missing"] and not counted["extra"]
        if equal:
            return Discrepancy(0, 0, (), rows)
        if any(has_floats(field.dataType) for field in schema):
            left = sum_equal(left, schema, ROUNDING_GRIDS[1], signed).where(F.col(WEIGHT) != 0)
        found = left.agg(*surplus).first()
        assert found is not None
        sample = [
            f"{word} {row[COMPARED_ROW].asDict()}"
            for word, condition in (("missing", f"{WEIGHT} > 0"), ("extra", f"{WEIGHT} < 0"))
            for row in left.where(condition).take(most)
        ]
    return Discrepancy(int(found["missing"]), int(found["extra"]), tuple(sample), rows)


def surplus_rows(weight: Column) -> Column:
    """Return the sum of the positive weights."""
    return F.coalesce(F.sum(F.greatest(weight, F.lit(0))), F.lit(0))


def with_weight(rows: DataFrame, weight: int) -> DataFrame:
    """Return each row as a struct with its weight."""
    row = F.struct(*(quoted(name) for name in rows.columns)).alias(COMPARED_ROW)
    return rows.select(row, F.lit(weight).cast("bigint").alias(WEIGHT))


def is_computed_by_row(answer: DataFrame) -> bool:
    """Return whether no value of a query comes of several rows: it has no group-by, window, limit or loop."""
    return not COMBINES_ROWS.search(catalyst.analysed_plan(answer).toString())


def sum_equal(rows: DataFrame, schema: StructType, grid: float, signed: bool) -> DataFrame:
    """Sum the weights of rows equal on a rounding grid: one of the side with the surplus, and the actual rows."""
    keys = [comparison_key(F.col(COMPARED_ROW)[field.name], field.dataType, grid, signed) for field in schema]
    of_sign = [F.first(F.when(F.col(WEIGHT) * sign > 0, F.col(COMPARED_ROW)), ignorenulls=True) for sign in (1, -1)]
    summed = rows.groupBy(*(key.alias(f"__key_{i}") for i, key in enumerate(keys))).agg(
        F.sum(WEIGHT).alias(WEIGHT),
        surplus_rows(-F.col(WEIGHT)).alias(ACTUAL_ROWS),
        of_sign[0].alias("__more"),
        of_sign[1].alias("__less"),
    )
    heavier = F.when(F.col(WEIGHT) > 0, F.col("__more")).otherwise(F.col("__less"))
    return summed.select(heavier.alias(COMPARED_ROW), WEIGHT, ACTUAL_ROWS)


def comparison_key(value: Column, data_type: DataType, grid: float, signed: bool) -> Column:
    """Return a value to group by: floats as of `float_key`, a value with variants as JSON, others unchanged."""
    if "variant" in simple_types(data_type.simpleString()):
        return F.to_json(F.struct(value.alias("v")))
    if not has_floats(data_type):
        return value
    match data_type:
        case StructType(fields=fields):
            parts = [
                comparison_key(value[field.name], field.dataType, grid, signed).alias(field.name) for field in fields
            ]
            return F.when(value.isNotNull(), F.struct(*parts))
        case ArrayType(elementType=kind):
            return F.transform(value, lambda item: comparison_key(item, kind, grid, signed))
        case MapType(valueType=kind):
            return F.transform_values(value, lambda _, item: comparison_key(item, kind, grid, signed))
        case _:
            return float_key(value, grid, signed)


def float_key(value: Column, grid: float, signed: bool) -> Column:
    """Return the rounded mantissa and the exponent of a float; signed: tell -0.0 from other small numbers."""
    number = value.cast("double")
    size = F.abs(number)
    scaled = number * F.lit(grid)
    exponent = F.floor(F.log10(F.abs(scaled)))
    mantissa = F.round(scaled / F.pow(F.lit(10.0), exponent), DIGITS)
    ordinary = F.struct(mantissa.alias("m"), exponent.cast("double").alias("e"))
    zero = F.struct(F.lit(0.0).alias("m"), F.lit(0.0).alias("e"))
    special = F.struct(number.alias("m"), F.lit(0.0).alias("e"))
    odd = F.isnan(number) | (size == float("inf"))
    if signed:
        is_negative = (size == 0) & (number.cast("string") == "-0.0")
        zero = F.struct(F.lit(0.0).alias("m"), F.when(is_negative, 1.0).otherwise(0.0).alias("e"))
    return F.when(value.isNull(), F.lit(None)).when(odd, special).when(size < 1e-9, zero).otherwise(ordinary)


def has_floats(data_type: DataType) -> bool:
    """Return whether a type has floating-point numbers at any depth."""
    return bool({"double", "float"}.intersection(simple_types(data_type.simpleString())))


def verify(
    intent: Intent,
    versions: dict[str, int],
    expected: DataFrame,
    actual: DataFrame,
    sample: Sample | None = None,
    points: Sequence[MeasuredPoint] = (),
) -> Verification:
    """Compare the view at an epoch, or a sample of it, with the batch query at the versions of its base sources.

    points: what one batch step found of the loops to a tolerance, whose stored answers the batch query read.
    """
    with log_work("verification", {"view": intent.view, "epoch": intent.epoch}) as work:
        work.result = verification = compare_answers(intent, versions, expected, actual, sample, points)
    return verification


def compare_answers(
    intent: Intent,
    versions: dict[str, int],
    expected: DataFrame,
    actual: DataFrame,
    sample: Sample | None,
    points: Sequence[MeasuredPoint] = (),
) -> Verification:
    """Compare two answers, or a sample of them."""
    if sample is not None:
        expected, actual = sample.of(expected), sample.of(actual)
    found = count_differences(expected, actual, SAMPLE)
    equal = not found.missing and not found.extra
    what = (
        "equals the batch query"
        if equal
        else f"differs: {format_count(found.missing, 'row')} missing, {found.extra:,} extra"
    )
    part = "" if sample is None else f" in a sample of {sample.words}"
    share = 1.0 if sample is None else sample.share
    sentence = f"{intent.view}: {what} at epoch {intent.epoch}{part} ({format_count(found.rows, 'row')})"
    worst = max(points, key=lambda point: (not point.within, point.residual / point.allowed), default=None)
    return Verification(
        view=intent.view,
        ok=equal and all(point.within for point in points),
        missing=found.missing,
        extra=found.extra,
        rows=found.rows,
        versions=versions,
        sample=found.sample,
        sentence=sentence + measured_text(worst),
        share=share,
        residual=worst and worst.residual,
        bound=worst and worst.bound,
        allowed=worst and worst.allowed,
    )


def measured_text(point: MeasuredPoint | None) -> str:
    """Return what was measured of a loop to a tolerance, for the end of a sentence."""
    if point is None:
        return ""
    bound = "" if point.bound is None else f"; distance from the fixpoint at most {point.bound:.3g}"
    stray = f", {format_count(point.unmatched, 'key')} without a match" if point.unmatched else ""
    return f"; residual {point.residual:.3g}, at most {point.allowed:.3g} is allowed{bound}{stray}"
