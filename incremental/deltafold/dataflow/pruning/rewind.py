"""Compute the rows before a change from those after it, so that a large plan is read once (D-042)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltafold.algebra.plan import Column
from deltafold.algebra.program import WEIGHT
from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.dataflow.partial_aggregate import unit_weights

EXACT_TYPES = (
    T.IntegralType,
    T.DecimalType,
    T.BooleanType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)


def is_rewindable(columns: Sequence[Column]) -> bool:
    """Return whether equal rows have the same bits, so that any of them can be subtracted."""
    return all(is_exact(T.DataType.fromDDL(column.type)) for column in columns)


def rewind(lowering: Lowering, columns: Sequence[Column], after: Relation, change: Relation) -> Relation:
    """Compute the rows before a change from those after it, which contain every row that the change added."""
    names = [column.name for column in columns]

    def frame(relation: Relation) -> DataFrame:
        return lowering.frame(relation, list(zip(columns, names, strict=True)))

    forward = frame(change) if change.weighted else frame(change).withColumn(WEIGHT, F.lit(1).cast("bigint"))
    backward = forward.withColumn(WEIGHT, -F.col(WEIGHT))
    both = frame(after).withColumn(WEIGHT, F.lit(1).cast("bigint")).unionByName(backward)
    summed = both.groupBy(*(F.col(quoted(name)) for name in names)).agg(F.sum(WEIGHT).alias(WEIGHT))
    rows = unit_weights(summed.where(F.col(WEIGHT) > 0)).drop(WEIGHT)
    return lowering.leaf(rows, list(zip(names, columns, strict=True)), weighted=False)


def is_exact(data_type: T.DataType) -> bool:
    """Return whether equal values of the type have the same bits, unlike floats and collated strings."""
    if isinstance(data_type, T.StringType):
        return data_type.collation == "UTF8_BINARY"
    return isinstance(data_type, EXACT_TYPES)
