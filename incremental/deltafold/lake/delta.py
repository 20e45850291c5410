"""Implement the lake for production: every table is a Delta table."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from deltafold.lake.physical_layout import Storage
from deltafold.lake.protocol import Lake, Table


@dataclass(frozen=True)
class DeltaLake:
    """Delta tables at paths."""

    def table(self, spark: SparkSession, path: str) -> Table:
        """Return the Delta table at a path, which may not exist yet."""
        return Storage(spark, path)


DELTA: Lake = DeltaLake()
