"""Answers with lists, structs, maps and VARIANT values, which other queries group, explode and join again."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import QueryError
from tests.night import every
from tests.replay import Recording, record
from tests.sandbox import MemorySandbox, Step, checked, rows

SCHEMA = "id int, customer string, item string, price int, tags array<string>"
FIRST = [
    (1, "ann", "tea", 3, ["hot", "new"]), (2, "ann", "milk", 2, []), (3, "ann", "tea", 4, None),
    (4, "bob", "tea", 5, ["hot"]), (4, "bob", "tea", 5, ["hot"]), (5, None, "milk", None, ["cold", None]),
]  # fmt: skip
HISTORY: tuple[tuple[Step, ...], ...] = (
    (("insert", "t", [(6, "bob", "milk", 1, ["new"]), (7, "cid", "tea", 9, None)]), ("delete", "t", "id = 2")),
    (("update", "t", {"customer": "'bob'"}, "id = 1"), ("update", "t", {"price": "price + 1"}, "item = 'tea'")),
    (("delete", "c", "name = 'bob'"), ("copy", "t", "customer = 'cid'"), ("delete", "t", "customer is null")),
    (("delete", "t", "customer = 'bob'"), ("insert", "c", [("cid", "rome", "milk")])),
)
DOCUMENTS = "select customer, collect_list(struct(id, item, price)) lines, count(*) n from t group by customer"
ITEMS = (
    "select customer, collect_list(struct(item, ids, total)) items, "
    "map_from_entries(collect_list(struct(item, total))) totals "
    "from (select customer, item, collect_list(id) ids, sum(price) total from t group by customer, item) "
    "group by customer"
)
QUERIES = (
    f"select customer, e.* from ({ITEMS}) d, lateral explode(totals) e(item, total)",
    DOCUMENTS,
    ITEMS,
    f"select l.item, count(*) n, sum(l.price) s from ({DOCUMENTS}) lateral view explode(lines) as l group by 1",
    f"select to_json(struct(customer, n, lines)) document from ({DOCUMENTS}) where n > 1",
    f"select n, collect_list(struct(customer, lines)) groups from ({DOCUMENTS}) group by n",
    f"select item, max(total) m from ({ITEMS}) lateral view explode(totals) as item, total group by item",
    f"select i.item, size(i.ids) n, count(*) customers from ({ITEMS}) lateral view explode(items) as i group by 1, 2",
    f"select c.city, d.lines, map_entries(i.totals) totals from c join ({DOCUMENTS}) d on c.name = d.customer "
    f"left join ({ITEMS}) i on d.customer <=> i.customer and i.totals[c.likes] > 3",
    f"select c.name, d.n from c join ({DOCUMENTS}) d on array_contains(d.lines.item, c.likes)",
    f"select name from c where not exists (select 1 from ({ITEMS}) i where i.customer = name and i.items[0].total > 5)",
    "select tags, count(*) n from t group by tags",
    f"select lines.item, count(*) n from ({DOCUMENTS}) group by 1",
    "select tag, map_from_entries(collect_list(distinct struct(id, item))) m "
    "from t lateral view outer explode(tags) as tag group by tag",
    f"select customer, transform(lines, l -> named_struct('x', l.item, 'y', array(l.price, l.id))) x, "
    f"aggregate(lines.price, 0, (a, p) -> a + coalesce(p, 0)) s from ({DOCUMENTS})",
    f"select distinct lines from ({DOCUMENTS})",
)


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    cities = [("ann", "oslo", "tea"), ("bob", "rome", "milk"), ("ann", "bonn", "beer")]
    tables = {"t": (SCHEMA, FIRST), "c": ("name string, city string, likes string", cities)}
    return record(spark, tmp_path_factory.mktemp("history"), tables, HISTORY)


@pytest.mark.parametrize("query", every(16, QUERIES))
def test_nested_answers(sandbox: MemorySandbox, history: Recording, query: str) -> None:
    """Documents grow, shrink, move to another group, and go."""
    history.check(sandbox, query)


def test_variants_within_answers(sandbox: MemorySandbox) -> None:
    """Rows become documents of VARIANT; a view above reads their fields, and explodes them into rows again."""
    sandbox.source("t", SCHEMA, FIRST)
    document = "to_variant_object(struct(count(*) n, collect_list(struct(id, item, price)) lines))"
    documents = sandbox.view(f"select customer, {document} doc from t group by customer", "documents")
    sandbox.warehouse.source("documents", documents)
    lines = sandbox.view(
        "select variant_get(l.value, '$.item', 'string') item, sum(variant_get(l.value, '$.price', 'int')) s, "
        "max(variant_get(doc, '$.n', 'int')) n "
        "from documents, lateral variant_explode(variant_get(doc, '$.lines')) l group by 1",
        "lines",
    )
    steps: tuple[Step, ...] = (
        ("insert", "t", []), ("delete", "t", "id = 3"), ("update", "t", {"customer": "'bob'"}, "id = 2"),
        ("delete", "t", "customer = 'bob'"),
    )  # fmt: skip
    found = []
    for step in steps:
        sandbox.do(step)
        lines.refresh()
        assert documents.verify().ok and lines.verify().ok
        found.append(rows(lines))
    first, second, third, last = found
    assert first == [("milk", 2, 3), ("tea", 17, 3)] and second == [("milk", 2, 2), ("tea", 13, 2)]
    assert third == [("milk", 2, 3), ("tea", 13, 3)] and last == [("milk", None, 1), ("tea", 3, 1)]


def test_lateral_generators_are_linear(sandbox: MemorySandbox) -> None:
    """Protects from a join with the distinct arrays, and from a failure for maps, which no join can compare."""
    sandbox.source("t", "id int, m map<string,int>, a array<int>", [(1, {"x": 1}, [1, 2]), (2, None, [1, 2])])
    view = sandbox.view("select id, k, v, e from t, lateral explode(m) x(k, v), lateral (select explode(a) e)")
    assert not view.description().states
    for step in (("insert", "t", [(3, {"y": 2}, [7])]), ("delete", "t", "id = 1")):
        checked(view)
        sandbox.do(step)
    checked(view)
    assert rows(view) == [(3, "y", 2, 7)]
    refused = sandbox.another("select id, n from t, lateral (select count(*) n from explode(m))")
    with pytest.raises(QueryError, match=r"Spark cannot run the query: .*cannot be map type"):
        refused.explain()
