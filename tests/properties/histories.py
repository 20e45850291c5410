"""Random histories of two tables, in Delta or in memory: what users do to one between two refreshes."""

from __future__ import annotations

import datetime
import random
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.corpus.writer import Writer
from tests.local_rows import local

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
SET: tuple[dict[str, str], ...] = (
    {"v": "v + 1"}, {"k": "null"}, {"k": "2"}, {"q": "'b'", "i": "1"}, {"e": "-e"}, {"b": "not b"},
    {"v": "double('NaN')"}, {"v": "-0.0D"}, {"d": "date'2020-01-01'", "t": "null"}, {"a": "array(1, null)"},
    {"l": "l * -1"}, {"i": "i"}, {"s": "concat(s, 'x')", "h": "3"},
)  # fmt: skip
DIMENSION_WHERE = ("dk = 1", "dk is null", "w <= 2", "name = 'none' or w is null", "true")
DIMENSION_SET: tuple[dict[str, str], ...] = (
    {"dk": "2"}, {"w": "w + 1", "name": "upper(name)"}, {"dk": "null"}, {"name": "'uno'"},
)  # fmt: skip
DIMENSION_MORE = (
    [(1, "ein", 3), (None, "nemo", 1), (7, "seven", 7)], [(0, "zero", 1), (2, "two", None)], [(1, "uno", 5)] * 2,
)  # fmt: skip
UNIQUE = count()
NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Step:
    """One thing done to the table."""

    kind: str
    where: str
    set: int
    seed: int


steps = st.builds(
    Step,
    st.sampled_from(
        [
            "insert",
            "update",
            "delete",
            "insert",
            "delete",
            "merge",
            "copy",
            "optimize",
            "overwrite",
            "nothing",
            "touch",
            "dimension",
            "dimension",
            "dimension",
        ]
    ),
    st.sampled_from(WHERE),
    st.integers(0, len(SET) - 1),
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
            some(r.randint(-200, 200) / 4, r.randint(-200, 200) / 4, r.choice([0.25, 0.0, -0.0, NAN, INF])),
            some(day, day + datetime.timedelta(r.randrange(40))),
            some(noon + datetime.timedelta(hours=r.randrange(99))), some("x", "y'z", "ä"),
            some([1, 2], [], [None, 1], [3, 3]), next(UNIQUE),
        )
        for _ in range(r.randint(0, most))
    ]  # fmt: skip


class History:
    """The tables `events` and `dim`, and what is done to them; `invariant`: not to the latter."""

    def __init__(self, spark: SparkSession, events: Writer, dimension: Writer, invariant: bool) -> None:
        self.spark, self.events, self.dimension, self.invariant = spark, events, dimension, invariant
        self._write(rows(1, 25), "overwrite")
        dimension.write(local(spark, DIMENSION_ROWS, DIMENSION_SCHEMA), "overwrite")

    def apply(self, step: Step) -> None:
        """Do one step."""
        where = self._literal(step.where)
        match step.kind:
            case "insert":
                self._write(rows(step.seed, 12), "append")
            case "overwrite":
                self._write(rows(step.seed, 20), "overwrite")
            case "nothing":
                self._write([], "append")
            case "update":
                self.events.update(SET[step.set], where)
            case "touch":
                self.events.update({"k": "k"}, where)
            case "delete":
                self.events.delete(where)
            case "copy":
                self.events.copy(where)
            case "optimize":
                self.events.optimize()
            case "merge":
                self.events.merge(SET[step.set], where)
            case _:
                if not self.invariant:
                    self._dimension(random.Random(step.seed))

    def _dimension(self, r: random.Random) -> None:
        where = r.choice(DIMENSION_WHERE)
        match r.randrange(4):
            case 0:
                more = local(self.spark, r.choice(DIMENSION_MORE), DIMENSION_SCHEMA)
                self.dimension.write(more, "append")
            case 1:
                self.dimension.update(r.choice(DIMENSION_SET), where)
            case 2:
                self.dimension.delete(where)
            case _:
                self.dimension.copy(f"w <= 2 and ({where})")

    def _literal(self, text: str) -> str:
        """A condition without subqueries, which Delta does not allow."""
        for name, aggregate in (("{least}", "min(v)"), ("{newest}", "max(u)")):
            if name in text:
                (value,) = self.events.rows().selectExpr(aggregate).collect()[0]
                text = text.replace(name, "null" if value is None else f"double('{value}')")
        return text

    def _write(self, content: list[tuple[Any, ...]], mode: str) -> None:
        self.events.write(local(self.spark, content, SCHEMA), mode)
