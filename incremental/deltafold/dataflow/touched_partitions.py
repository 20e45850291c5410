"""Find the partitions of an answer that an epoch touches, by the values of its partition key.

They are collected in an aggregation that an epoch runs over its change anyway, so they cost no Spark job.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from deltafold.algebra.sqltext import quoted

NONE = "__HIVE_DEFAULT_PARTITION__"  # the name of the partition of NULL in Hive, Spark and Delta


def partitions(name: str | None, most: int) -> Column:
    """Return an aggregate: a column's distinct values as text, at most one more than `most`; NULL for no column."""
    if name is None:
        return F.lit(None).cast("array<string>")
    values = F.collect_set(F.coalesce(F.col(quoted(name)).cast("string"), F.lit(NONE)))
    return F.slice(F.array_sort(values), 1, most + 1)


def known_partitions(partitions: Sequence[str] | None, most: int) -> tuple[str, ...] | None:
    """Return the partitions in the aggregate's result; None if there is no partition key, or more than `most`."""
    return None if partitions is None or len(partitions) > most else tuple(partitions)
