"""Rows that SQL calls equal are not the same: a view over them stores and counts what the batch query gives."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.night import every, night
from tests.reading import large_by_day
from tests.replay import Recording, record
from tests.sandbox import DeltaSandbox, MemorySandbox, Step, checked, confirm

pytestmark = large_by_day

NAN = float("nan")
SCHEMA = (
    "id int, d double, f float, c string collate UTF8_LCASE, a array<double>, m map<string, double>, "
    "s struct<x: double, y: array<float>>"
)
ROWS = [
    (1, 0.0, -0.0, "a", [0.0], {"k": 0.0}, (0.0, [0.0])),
    (2, -0.0, 0.0, "A", [-0.0], {"k": -0.0}, (-0.0, [-0.0])),
    (2, 0.0, 0.0, "A", [-0.0], {"k": -0.0}, (-0.0, [-0.0])),
    (3, NAN, None, "b", [NAN, None], None, (None, None)),
    (3, NAN, None, "b", [NAN, None], None, (None, None)),
    (4, None, 1.5, None, None, {}, None),
]
FLIPPED = {
    "d": "-d", "f": "-f", "c": "if(c collate utf8_binary = 'a', 'A', 'a')", "a": "transform(a, x -> -x)",
    "m": "transform_values(m, (k, v) -> -v)", "s": "named_struct('x', -s.x, 'y', transform(s.y, y -> -y))",
}  # fmt: skip
HISTORY: tuple[tuple[Step, ...], ...] = (
    (("update", "t", {"d": FLIPPED["d"]}, "id < 3"),),
    (("update", "t", {"c": FLIPPED["c"]}, "id < 3"),),
    (("update", "t", {name: FLIPPED[name] for name in "fams"}, "id < 3"), ("copy", "t", "id < 3")),
    (("update", "t", {"d": "-d"}, "id = 2"), ("delete", "t", "id = 1 or id = 3")),
    (("insert", "t", [(5, -0.0, -0.0, "", [], {}, (0.0, []))]), ("delete", "t", "c collate utf8_binary = 'A'")),
)
QUERIES = (
    "select id, d, f, a, s, cast(c as string) t from t",
    "select cast(d as string) k, max(id) m from t group by 1",
    "select cast(c as string) k, min(id) m, collect_list(cast(f as string)) l from t group by 1",
    "select to_json(struct(d, f, a, m, s)) j, cast(c as string) h, (select max(id) from t) m from t",
    "select d, count(*) n, max(id) m from t group by d",
    "select x.id, x.a, y.f from t x left join t y on x.d = y.d and x.id < y.id",
    "select d, a from t except all select 0.0D, array(0.0D)",
    "with recursive r as (select d, id n from t union all select -d, n - 1 from r where n > 0) select * from r",
    "with recursive r as (select d, id n from t union select -d, n - 1 from r where n > 0) select * from r",
)


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return record(spark, tmp_path_factory.mktemp("history"), {"t": (SCHEMA, ROWS)}, HISTORY)


@pytest.mark.parametrize("query", every(9, QUERIES))
def test_changes_of_what_only_identity_tells_apart(sandbox: MemorySandbox, history: Recording, query: str) -> None:
    """The sign of zero and the case of collated texts, on every level, with copies of the rows."""
    history.check(sandbox, query)


@night
def test_views_in_delta(delta: DeltaSandbox) -> None:
    """A view above sees the sign that the batch query of the chain sees, and rows that differ in it alone go again."""
    delta.tune(rewrite_files=0)  # so that copies are deleted by a merge
    delta.source("t", "id int, d double, a array<double>", [(1, 0.0, [0.0]), (1, 0.0, [0.0]), (2, 5.0, None)])
    below = delta.view("select id, d, a from t", "below")
    delta.warehouse.source("below", below)
    above = delta.view("select id, cast(d as string) x, to_json(a) y from below", "above")
    beside = delta.view("select d, cast(d as string) x, (select max(id) from t) m from t", "beside")
    flipped = ("update", "t", {"d": "-0.0D", "a": "array(-0.0D)"}, "id = 1")
    steps: tuple[Step, ...] = (flipped, ("insert", "t", [(3, 0.0, [0.0])]), ("delete", "t", "id = 3"))
    for step in (None, *steps):
        delta.do(*([] if step is None else [step]))
        for view in (above, beside):
            checked(view)
        confirm(below)
    assert above.verify().ok and below.verify().ok and beside.verify().ok
