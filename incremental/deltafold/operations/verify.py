"""Compare a view with the batch query: count missing and extra rows (D-009).

The batch query is evaluated once: expected rows weigh 1, actual rows -1, and equal rows are summed.
Sums of floating numbers depend on the order of their terms, in Spark too, so floats are compared to nine significant
digits, and values below 1e-9 count as zero, at any depth; everything else is compared exactly, keys of maps too. The
sign of zero counts where the query only copies values or computes them within a row: of several rows Spark returns
either zero as their `max`, for example.

A `Sample` restricts both answers by a hash of the key. Whether a row is in it depends on its key alone, so the view and
the batch query have the same sample; equal rows are in it together, and NULL is a key like any other. Each epoch has
another sample. If the query groups by the key, Spark filters before it groups, so that the check costs less than the
batch query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from deltafold.algebra.errors import QueryError, UsageError
from deltafold.algebra.program import WEIGHT
from deltafold.algebra.results.formats import format_count
from deltafold.algebra.results.report import MeasuredPoint, Verification
from deltafold.algebra.sqltext import quoted, simple_types
from deltafold.dataflow.pruning.rewind import is_exact
from deltafold.spark import catalyst
from deltafold.spark.checkpoint import measured_once, plan_without_constraints
from deltafold.store.history import Intent
from deltafold.telemetry import log_work

DIGITS = 9
SHOWN_ROWS = 5  # of each side, in a verification
SAMPLE_PARTS = 1 << 20
ROUNDING_GRIDS = (1.0, 1.2345678)  # two grids: close values on two sides of one grid's rounding edge agree on the other
COMPARED_ROW = "__row"
ACTUAL_ROWS = "__actual"
COMBINES_ROWS = ("Aggregate", "Window", "Group", "Deduplicate", "Limit", "Offset", "LogicalRDD")  # the last: of loops


@dataclass(frozen=True)
class Sample:
    """A share of an answer's keys, above 0 and below 1, by the columns of the key."""

    columns: tuple[str, ...]
    share: float
    epoch: int

    def of(self, answer: DataFrame) -> DataFrame:
        """Return the rows of the answer that are in the sample."""
        values = [F.col(quoted(name)) for name in self.columns]
        number = F.pmod(F.xxhash64(F.lit(self.epoch), *values), F.lit(SAMPLE_PARTS))
        return answer.where(number < F.lit(round(self.share * SAMPLE_PARTS)))

    @property
    def words(self) -> str:
        """Describe the sample, to continue «a sample of»."""
        return f"{self.share:.4%}".rstrip("0%").rstrip(".") + f"% by {', '.join(self.columns)}"


def sample_of(schema: StructType, keys: Sequence[str], share: object, epoch: int) -> Sample | None:
    """Return a sample by the key, or by the whole row if there is no key; None for a share of 1.

    keys: the columns that the query groups by. Only columns whose equal values have the same bits can be hashed.
    Raises UsageError for an invalid share, QueryError if no column can be hashed.
    """
    if share == 1:
        return None
    if not isinstance(share, int | float) or not 1 / SAMPLE_PARTS <= share <= 1:
        raise UsageError(f"sample: invalid share {share!r}. Give a number of more than 0, up to 1.")
    exact = [field.name for field in schema if is_exact(field.dataType)]
    columns = tuple(name for name in keys if name in exact) or tuple(exact)
    if not columns:
        raise QueryError(
            "no column of the answer can be sampled: equal values may differ in their bits. Verify all of it."
        )
    return Sample(columns, share, epoch)


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
    schema = expected.schema
    signed = _is_computed_by_row(expected)
    sides = _with_weight(expected, 1).unionByName(_with_weight(actual.toDF(*expected.columns), -1))
    surplus = (_surplus_rows(F.col(WEIGHT)).alias("missing"), _surplus_rows(-F.col(WEIGHT)).alias("extra"))
    measures = (*surplus, F.coalesce(F.sum(ACTUAL_ROWS), F.lit(0)).alias("rows"))
    summed = _sum_equal(plan_without_constraints(sides), schema, ROUNDING_GRIDS[0], signed=signed)
    with measured_once(summed, measures, F.col(WEIGHT) != 0) as (unequal, counted):
        rows = int(counted["rows"])
        if not counted["missing"] and not counted["extra"]:
            return Discrepancy(0, 0, (), rows)
        if any(_has_floats(field.dataType) for field in schema):
            unequal = _sum_equal(unequal, schema, ROUNDING_GRIDS[1], signed=signed).where(F.col(WEIGHT) != 0)
        sums = unequal.agg(*surplus).first()
        assert sums is not None
        sample = [
            f"{word} {row[COMPARED_ROW].asDict()}"
            for word, condition in (("missing", f"{WEIGHT} > 0"), ("extra", f"{WEIGHT} < 0"))
            for row in unequal.where(condition).take(most)
        ]
    return Discrepancy(int(sums["missing"]), int(sums["extra"]), tuple(sample), rows)


def _surplus_rows(weight: Column) -> Column:
    """Return the sum of the positive weights."""
    return F.coalesce(F.sum(F.greatest(weight, F.lit(0))), F.lit(0))


def _with_weight(rows: DataFrame, weight: int) -> DataFrame:
    """Return each row as a struct with its weight."""
    row = F.struct(*(quoted(name) for name in rows.columns)).alias(COMPARED_ROW)
    return rows.select(row, F.lit(weight).cast("bigint").alias(WEIGHT))


def _is_computed_by_row(answer: DataFrame) -> bool:
    """Return whether each row of a query is computed from one row: it has no group-by, window, limit or loop."""
    kinds = {catalyst.kind(node) for node in catalyst.nodes(catalyst.analysed_plan(answer))}
    return not any(word in kind for word in COMBINES_ROWS for kind in kinds)


def _sum_equal(rows: DataFrame, schema: StructType, grid: float, *, signed: bool) -> DataFrame:
    """Sum the weights of rows equal on a rounding grid: one of the side with the surplus, and the actual rows."""
    keys = [_comparison_key(F.col(COMPARED_ROW)[field.name], field.dataType, grid, signed=signed) for field in schema]

    def first_of(sign: int) -> Column:
        return F.first(F.when(F.col(WEIGHT) * sign > 0, F.col(COMPARED_ROW)), ignorenulls=True)

    summed = rows.groupBy(*(key.alias(f"__key_{i}") for i, key in enumerate(keys))).agg(
        F.sum(WEIGHT).alias(WEIGHT),
        _surplus_rows(-F.col(WEIGHT)).alias(ACTUAL_ROWS),
        first_of(1).alias("__more"),
        first_of(-1).alias("__less"),
    )
    heavier = F.when(F.col(WEIGHT) > 0, F.col("__more")).otherwise(F.col("__less"))
    return summed.select(heavier.alias(COMPARED_ROW), WEIGHT, ACTUAL_ROWS)


def _comparison_key(value: Column, data_type: DataType, grid: float, *, signed: bool) -> Column:
    """Return a value to group by: floats as of `_float_key`, a value with variants as JSON, others unchanged."""
    if "variant" in simple_types(data_type.simpleString()):
        return F.to_json(F.struct(value.alias("v")))
    if not _has_floats(data_type):
        return value
    match data_type:
        case StructType(fields=fields):
            parts = [
                _comparison_key(value[field.name], field.dataType, grid, signed=signed).alias(field.name)
                for field in fields
            ]
            return F.when(value.isNotNull(), F.struct(*parts))
        case ArrayType(elementType=kind):
            return F.transform(value, lambda item: _comparison_key(item, kind, grid, signed=signed))
        case MapType(valueType=kind):
            return F.transform_values(value, lambda _, item: _comparison_key(item, kind, grid, signed=signed))
        case _:
            return _float_key(value, grid, signed=signed)


def _float_key(value: Column, grid: float, *, signed: bool) -> Column:
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


def _has_floats(data_type: DataType) -> bool:
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
        work.result = verification = _compare_answers(intent, versions, expected, actual, sample, points)
    return verification


def verify_plain(verified: Verification, answer: DataFrame, plain: DataFrame, sample: Sample | None) -> Verification:
    """Compare the plain table with the answer that was verified; somebody else may have written to it."""
    if sample is not None:
        answer, plain = sample.of(answer), sample.of(plain)
    counts = count_differences(answer, plain, SHOWN_ROWS)
    if not counts.missing and not counts.extra:
        return verified
    differs = f"{format_count(counts.missing, 'row')} missing, {counts.extra:,} extra"
    sentence = f"{verified.sentence}, but the plain table differs from it: {differs}. The next refresh writes it again"
    return replace(
        verified, ok=False, missing=counts.missing, extra=counts.extra, sample=counts.sample, sentence=sentence
    )


def _compare_answers(
    intent: Intent,
    versions: dict[str, int],
    expected: DataFrame,
    actual: DataFrame,
    sample: Sample | None,
    points: Sequence[MeasuredPoint] = (),
) -> Verification:
    """Compare two answers, or a sample of them."""
    if sample is not None:
        expected = sample.of(expected)
        actual = sample.of(actual)
    differences = count_differences(expected, actual, SHOWN_ROWS)
    equal = not differences.missing and not differences.extra
    worst = max(points, key=lambda point: (not point.within, point.residual / point.allowed), default=None)
    return Verification(
        view=intent.view,
        ok=equal and all(point.within for point in points),
        missing=differences.missing,
        extra=differences.extra,
        rows=differences.rows,
        versions=versions,
        sample=differences.sample,
        share=1.0 if sample is None else sample.share,
        residual=worst and worst.residual,
        bound=worst and worst.bound,
        allowed=worst and worst.allowed,
        epoch=intent.epoch,
        sampled="" if sample is None else sample.words,
        unmatched=0 if worst is None else worst.unmatched,
    )
