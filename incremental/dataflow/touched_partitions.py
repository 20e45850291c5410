"""Which partitions of an answer an epoch touched. In: a change. Out: the values of its partition key.

They are collected in the aggregation that an epoch makes of its change anyway, so they cost no Spark job.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from incremental.algebra.sqltext import quoted

MOST = 1000  # more are not told: whoever reads them takes all as touched
NONE = "__HIVE_DEFAULT_PARTITION__"  # what Hive, Spark and Delta call the partition of NULL


def partitions(name: str | None) -> Column:
    """An aggregate: the distinct values of a column as sorted text, one more than MOST at most; NULL for no column."""
    if name is None:
        return F.lit(None).cast("array<string>")
    values = F.collect_set(F.coalesce(F.col(quoted(name)).cast("string"), F.lit(NONE)))
    return F.slice(F.array_sort(values), 1, MOST + 1)


def told(found: Sequence[str] | None) -> tuple[str, ...] | None:
    """What the aggregate found; None where there is no partition key, or too many partitions were touched."""
    return None if found is None or len(found) > MOST else tuple(found)
