"""Arrange rows for the files of a table: one task for each bucket, sorted by lineage key (D-139)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.program import BUCKET
from deltafold.algebra.sqltext import quoted


def arrange(rows: DataFrame, buckets: int, keys: Sequence[str], files: int = 1) -> DataFrame:
    """Repartition rows for writing a state: one task and file per bucket, sorted by lineage key.

    files: if there are more of them than buckets, as many tasks and about as many files, each with its own range of
    keys; Spark reads a sample of the rows to find the ranges.
    """
    columns = [BUCKET, *keys] if buckets > 1 else list(keys)
    if keys and files > buckets:
        return sort_partitions(rows.repartitionByRange(files, *map(quoted, columns)), columns)
    return sort_partitions(repartition_by_bucket(rows, buckets), columns)


def repartition_by_bucket(rows: DataFrame, buckets: int) -> DataFrame:
    """Repartition rows so that each bucket is one task's.

    Before Spark 4.1 it hashes the bucket, so that a task may get several and another one none: of 2 buckets both.
    """
    if buckets == 1:
        return rows.repartition(1)
    if not hasattr(rows, "repartitionById"):
        return rows.repartition(buckets, BUCKET)
    return rows.repartitionById(buckets, F.col(BUCKET))


def sort_partitions(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Sort the rows of each partition by columns, if there are any."""
    return rows.sortWithinPartitions(*(F.col(quoted(name)) for name in columns)) if columns else rows
