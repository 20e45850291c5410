"""Random histories of a Delta table: what users do to one between two refreshes, by SQL and by writing rows."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import SparkSession

SCHEMA = (
    "k int, q string, b boolean, i int, h smallint, l bigint, e decimal(12,2), v double, d date, t timestamp, "
    "s string, a array<int>, u bigint"
)
DIMENSION_SCHEMA = "dk int, name string, w int"
DIMENSION_ROWS = [(0, "zero", 1), (1, "one", 2), (1, "uno", 5), (None, "nobody", 3), (3, None, None), (77, "none", 0)]
WHERE = (
    "k = 1", "k is null", "i < 0", "b", "v is null or v > 3", "u % 3 = 0", "q = 'a'", "u % 2 = 1 and k > 0", "isnan(v)",
    "u >= {newest}", "v = {least}", "true", "false",
)  # fmt: skip
SET = (
    "v = v + 1", "k = null", "k = 2", "q = 'b', i = 1", "e = -e", "b = not b", "v = double('NaN')", "v = -0.0D",
    "d = date'2020-01-01', t = null", "a = array(1, null)", "l = l * -1", "i = i", "s = concat(s, 'x'), h = 3",
)  # fmt: skip
UNIQUE = count()
NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Step:
    """One thing done to the table."""

    kind: str
    where: str
    set: str
    seed: int


steps = st.builds(
    Step,
    st.sampled_from(
        ["insert", "update", "delete", "insert", "delete", "merge", "copy", "optimize", "overwrite", "nothing", "touch"]
    ),
    st.sampled_from(WHERE),
    st.sampled_from(SET),
    st.integers(0, 2**32),
)
histories = st.lists(st.lists(steps, min_size=1, max_size=3), min_size=2, max_size=3)


def rows(seed: int, most: int) -> list[tuple[Any, ...]]:
    """Rows with few keys, many NULLs and doubles whose sums are exact in any order (all but NaN and infinities)."""
    r = random.Random(seed)

    def some(*values: Any) -> Any:
        return r.choice([None, *values, *values])

    day = datetime.date(2020, 1, 1)
    noon = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC)
    return [
        (
            some(0, 1, 2, 3), some("a", "b", ""), some(True, False), some(-3, 0, 1, 7, 2**31 - 1, -(2**31)),
            some(-1, 0, 5), some(r.randint(-(2**40), 2**40), 1, 2), some(Decimal(r.randint(-99999, 99999)).scaleb(-2)),
            some(r.randint(-200, 200) / 4, r.randint(-200, 200) / 4, r.choice([0.25, -0.0, NAN, INF])),
            some(day, day + datetime.timedelta(r.randrange(40))),
            some(noon + datetime.timedelta(hours=r.randrange(99))), some("x", "y'z", "ä"),
            some([1, 2], [], [None, 1], [3, 3]), next(UNIQUE),
        )
        for _ in range(r.randint(0, most))
    ]  # fmt: skip


class History:
    """The table at a path, and what is done to it."""

    def __init__(self, spark: SparkSession, path: str, deletion_vectors: bool) -> None:
        self.spark, self.path = spark, path
        self.table = f"delta.`{path}`"
        self._write(rows(1, 25), "overwrite", {"delta.enableDeletionVectors": str(deletion_vectors).lower()})

    def apply(self, step: Step) -> None:
        """Do one step."""
        done: dict[str, Callable[[Step], None]] = {
            "insert": lambda s: self._write(rows(s.seed, 12), "append", {}),
            "overwrite": lambda s: self._write(rows(s.seed, 20), "overwrite", {}),
            "nothing": lambda s: self._write([], "append", {}),
            "update": lambda s: self._sql(f"update {{t}} set {s.set} where {s.where}"),
            "touch": lambda s: self._sql(f"update {{t}} set k = k where {s.where}"),
            "delete": lambda s: self._sql(f"delete from {{t}} where {s.where}"),
            "copy": lambda s: self._sql(f"insert into {{t}} select * from {{t}} where {s.where} limit 9"),
            "optimize": lambda s: self._sql("optimize {t}"),
            "merge": self._merge,
        }
        done[step.kind](step)

    def _merge(self, step: Step) -> None:
        source = f"select distinct u, u + 1000000 * (u % 2) as other from {{t}} where {step.where}"
        self._sql(
            f"merge into {{t}} e using ({source}) n on e.u = n.other "
            f"when matched and k = 1 then delete when matched then update set {step.set} "
            "when not matched then insert (k, u, v) values (1, n.other, 0.5)"
        )

    def _sql(self, text: str) -> None:
        for name, aggregate in (("{least}", "min(v)"), ("{newest}", "max(u)")):
            if name in text:  # Delta allows no subquery in a condition
                (value,) = self.spark.sql(f"select {aggregate} from {self.table}").collect()[0]
                text = text.replace(name, "null" if value is None else f"double('{value}')")
        self.spark.sql(text.replace("{t}", self.table)).collect()

    def _write(self, content: list[tuple[Any, ...]], mode: str, options: dict[str, str]) -> None:
        frame = self.spark.createDataFrame(content, SCHEMA).coalesce(1)
        frame.write.format("delta").mode(mode).options(**options).save(self.path)
