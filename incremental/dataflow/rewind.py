"""What was, from what is. In: rows after a change, and the change. Out: the rows before it.

Of a large input that a small change reaches in few places, these places are read once: before = after - change.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from incremental.algebra.plan import Column
from incremental.algebra.program import WEIGHT
from incremental.algebra.sqltext import quoted
from incremental.dataflow.lowering import Lowering, Relation
from incremental.dataflow.partial_aggregate import unit_weights

EXACT = (T.IntegralType, T.DecimalType, T.BooleanType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType)


def undoable(columns: Sequence[Column]) -> bool:
    """Whether rows that count as equal are the same bits, so that any of them can be the one that is taken back."""
    return all(is_exact(T.DataType.fromDDL(column.type)) for column in columns)


def undone(lowering: Lowering, columns: Sequence[Column], after: Relation, change: Relation) -> Relation:
    """The rows before a change, in any order; every row that the change brought is among those after it."""
    names = [column.name for column in columns]

    def frame(relation: Relation) -> DataFrame:
        return lowering.frame(relation, list(zip(columns, names, strict=True)))

    came = frame(change) if change.weighted else frame(change).withColumn(WEIGHT, F.lit(1).cast("bigint"))
    lost = came.withColumn(WEIGHT, -F.col(WEIGHT))
    whole = frame(after).withColumn(WEIGHT, F.lit(1).cast("bigint")).unionByName(lost)
    summed = whole.groupBy(*(F.col(quoted(name)) for name in names)).agg(F.sum(WEIGHT).alias(WEIGHT))
    rows = unit_weights(summed.where(F.col(WEIGHT) > 0)).drop(WEIGHT)
    return lowering.leaf(rows, list(zip(names, columns, strict=True)), weighted=False)


def is_exact(data_type: T.DataType) -> bool:
    """Whether equal values of the type are the same bits: not of floats, nor of texts that differ in case alone."""
    if isinstance(data_type, T.StringType):
        return data_type.collation == "UTF8_BINARY"
    return isinstance(data_type, EXACT)
