"""Find which partitions of an answer an epoch touches, by the values of its partition key.

They are collected in the aggregation that an epoch makes of its change anyway, so they cost no Spark job.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from incremental.algebra.sqltext import quoted

NONE = "__HIVE_DEFAULT_PARTITION__"  # what Hive, Spark and Delta call the partition of NULL


def partitions(name: str | None, most: int) -> Column:
    """An aggregate: a column's distinct values as sorted text, at most one more than `most`; NULL for no column."""
    if name is None:
        return F.lit(None).cast("array<string>")
    values = F.collect_set(F.coalesce(F.col(quoted(name)).cast("string"), F.lit(NONE)))
    return F.slice(F.array_sort(values), 1, most + 1)


def known_partitions(found: Sequence[str] | None, most: int) -> tuple[str, ...] | None:
    """The partitions that the aggregate found; None if there is no partition key, or more than `most` were touched."""
    return None if found is None or len(found) > most else tuple(found)
