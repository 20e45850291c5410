"""Random histories of any tables: rows come from a pool, go, come again, and are corrected, chosen by hash.

A table begins with seven tenths of its pool.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, DateType, NumericType, StringType

from deltafold.algebra.sqltext import quoted
from tests.corpus.writer import Writer
from tests.lake.memory.rows import materialize
from tests.sandbox import Sandbox

FIRST = 70  # per cent of the pool


class Churn:
    """The pools that feed the tables of a sandbox."""

    def __init__(self, sandbox: Sandbox, pools: Mapping[str, DataFrame], seed: int) -> None:
        self._random, self._seed = random.Random(seed), seed
        self._writers = {name: Writer(sandbox, name) for name in pools}
        self._pools = {name: materialize(frame) for name, frame in pools.items()}
        for name, pool in self._pools.items():
            self._writers[name].write(pool.where(self._between(name, 0, FIRST)), "append")

    def step(self, names: Sequence[str]) -> None:
        """Change about half of the tables, at least one."""
        chosen = [name for name in names if self._random.random() < 0.5] or [self._random.choice(names)]
        for name in chosen:
            for _ in range(self._random.choice([1, 1, 2])):
                self._random.choice([self._insert, self._delete, self._update])(name)

    def _insert(self, name: str) -> None:
        start = self._random.randrange(FIRST - 5, 100)
        self._writers[name].write(self._pools[name].where(self._between(name, start, start + 6)), "append")

    def _delete(self, name: str) -> None:
        start = self._random.randrange(100)
        self._writers[name].delete(self._between(name, start, start + 8))

    def _update(self, name: str) -> None:
        """Correct one column of some rows."""
        field = self._random.choice(self._pools[name].schema.fields)
        start = self._random.randrange(100)
        value = corrected(quoted(field.name), field.dataType)
        self._writers[name].update({quoted(field.name): value}, self._between(name, start, start + 8))

    def _between(self, name: str, start: int, end: int) -> str:
        columns = ", ".join(map(quoted, self._pools[name].columns))
        bucket = f"pmod(xxhash64({columns}, {self._seed}), 100)"
        return f"{bucket} >= {start} and {bucket} < {end}"


def corrected(column: str, kind: DataType) -> str:
    """Another value of a column, as SQL."""
    match kind:
        case NumericType():
            return f"cast({column} + 1 as {kind.simpleString()})"
        case DateType():
            return f"date_add({column}, 1)"
        case StringType():
            return "cast(null as string)"
        case _:
            return column
