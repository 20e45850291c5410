"""Random histories of any tables: rows come from a pool, go, come again, and are corrected, chosen by hash.

A table begins with seven tenths of its pool.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, NumericType, StringType

from tests.corpus.lakes import MemoryLake
from tests.corpus.memory import MemoryTable

FIRST = 70  # per cent of the pool


class Churn:
    """Tables in memory and the pools that feed them."""

    def __init__(self, spark: SparkSession, pools: Mapping[str, DataFrame], seed: int) -> None:
        self._random, self._seed = random.Random(seed), seed
        self._pools = {name: MemoryTable(spark, f"pool of {name}", frame) for name, frame in pools.items()}
        self.tables = {
            name: MemoryTable(spark, name, pool.at(0).where(self._between(pool.at(0), 0, FIRST)))
            for name, pool in self._pools.items()
        }

    def step(self, names: Sequence[str]) -> None:
        """Change about half of the tables, at least one."""
        chosen = [name for name in names if self._random.random() < 0.5] or [self._random.choice(names)]
        for name in chosen:
            for _ in range(self._random.choice([1, 1, 2])):
                self._random.choice([self._insert, self._delete, self._update])(name)

    def _insert(self, name: str) -> None:
        pool = self._pools[name].at(0)
        start = self._random.randrange(FIRST - 5, 100)
        MemoryLake(self.tables[name]).write(pool.where(self._between(pool, start, start + 6)), "append")

    def _delete(self, name: str) -> None:
        lake = MemoryLake(self.tables[name])
        start = self._random.randrange(100)
        lake.write(lake.rows().where(~self._between(lake.rows(), start, start + 8)), "overwrite")

    def _update(self, name: str) -> None:
        """Correct one column of some rows."""
        lake = MemoryLake(self.tables[name])
        rows = lake.rows()
        field = self._random.choice(rows.schema.fields)
        old, start = F.col(field.name), self._random.randrange(100)
        match field.dataType:
            case NumericType():
                new = (old + 1).cast(field.dataType)
            case DateType():
                new = F.date_add(old, 1)
            case StringType():
                new = F.lit(None).cast("string")
            case _:
                new = old
        lake.write(
            rows.withColumn(field.name, F.when(self._between(rows, start, start + 8), new).otherwise(old)), "overwrite"
        )

    def _between(self, rows: DataFrame, start: int, end: int) -> Column:
        bucket = F.pmod(F.xxhash64(*rows.columns, F.lit(self._seed)), F.lit(100))
        return (bucket >= start) & (bucket < end)
