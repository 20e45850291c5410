"""Rows that SQL calls equal are not the same: a view over them stores and counts what the batch query gives."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.replay import Recording, record
from tests.sandbox import MemorySandbox, Step

NAN = float("nan")
SCHEMA = (
    "id int, d double, f float, c string collate UTF8_LCASE, a array<double>, m map<string, double>, "
    "s struct<x: double, c: array<string collate UTF8_LCASE>>"
)
ROWS = [
    (1, 0.0, -0.0, "a", [0.0], {"k": 0.0}, (0.0, ["a"])),
    (2, -0.0, 0.0, "A", [-0.0], {"k": -0.0}, (-0.0, ["A"])),
    (2, 0.0, 0.0, "A", [-0.0], {"k": -0.0}, (-0.0, ["A"])),
    (3, NAN, None, "b", [NAN, None], None, (None, None)),
    (3, NAN, None, "b", [NAN, None], None, (None, None)),
    (4, None, 1.5, None, None, {}, None),
]
FLIPPED = {
    "d": "-d", "f": "-f", "c": "if(hex(c) = '61', 'A', 'a')", "a": "transform(a, x -> -x)",
    "m": "transform_values(m, (k, v) -> -v)",
    "s": "named_struct('x', -s.x, 'c', transform(s.c, t -> if(hex(t) = '61', 'A', 'a')))",
}  # fmt: skip
HISTORY: tuple[tuple[Step, ...], ...] = (
    *((("update", "t", {name: value}, "id < 3"),) for name, value in FLIPPED.items()),
    (("copy", "t", "id < 3"), ("insert", "t", [(5, -0.0, -0.0, "", [], {}, (0.0, []))])),
    (("update", "t", {"d": "-d", "c": "'A'"}, "id = 2"), ("delete", "t", "id = 1 or id = 3")),
    (("update", "t", {"d": "0.0D"}, "true"), ("delete", "t", "hex(c) = '41'")),
)
WHOLE = "select id, d, f, c, a, s from t"
QUERIES = (
    WHOLE,
    "select d, c from t",
    "select cast(d as string) k, max(id) m from t group by 1",
    "select hex(c) k, min(id) m, collect_list(cast(f as string)) l from t group by 1",
    "select to_json(struct(d, f, a, m, s)) j, hex(c) h, (select max(id) from t) m from t",
    "select d, count(*) n, max(id) m from t group by d",
    "select x.id, x.d, y.f from t x join t y on x.id = y.id",
    "select x.id, x.a, y.c from t x left join t y on x.d = y.d and x.id < y.id",
    "select distinct d, f from t",
    "select id, d, c from t except all select 2, 0.0D, 'A' collate UTF8_LCASE",
    "with recursive r as (select d, id n from t union all select -d, n - 1 from r where n > 0) select * from r",
    "with recursive r as (select d, id n from t union select -d, n - 1 from r where n > 0) select * from r",
)


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return record(spark, tmp_path_factory.mktemp("history"), {"t": (SCHEMA, ROWS)}, HISTORY)


@pytest.mark.parametrize("query", QUERIES)
def test_changes_of_what_only_identity_tells_apart(sandbox: MemorySandbox, history: Recording, query: str) -> None:
    """The sign of zero and the case of collated texts, on every level, with copies of the rows."""
    history.check(sandbox, query)
