"""The tables that a query mentions, without Spark; its parser finds the same."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from deltafold.language.mentions import find_relations, name_parts
from deltafold.pipelines.mentioned_tables import find_tables
from deltafold.spark import catalyst
from tests.pipelines.dbt_project import COMPILED

QUERIES = [
    ("select a from t -- from u\n where b = 'from v' /* join w */", "t"),
    ("select * from a x, `b c` y join s.d on x.f(1, 2) = y.g, e where x in (select k from h)", "a;b c;s.d;e;h"),
    ("with a as (select * from a), b (x, y) as (select 1, 2 from a, c) select * from b, d", "a;c;d"),
    ("with recursive a as (select 1 union all select * from a) select * from a, b", "b"),
    (
        "select extract(year from x.y), (select z from c), a is distinct from b from t lateral view f(z) u as k, v",
        "c;t",
    ),
    ("select * from (a join (select * from b) c using (k, l)), range(3) r, lateral (select * from d)", "a;b;d"),
    ("select * from values (1, 2), (3, 4) t(a, b) union all table u order by a, b", "u"),
    ("from t |> where a > 1 |> join u using (k) |> select a, b", "t;u"),
    ("select count(*) from stream(t) where exists (select 1 from T)", "t;T"),
    ("with recent as (select * from orders), orders as (select 1) select * from recent, orders", "orders"),
    ("with a as (select extract(year from day) from t) from orders o, a |> where x", "t;orders"),
    ("with a as (select 1), b (x, y) as (select 1, 2) from b, c select x", "c"),
    ("select * from (with a as (select 1), b (x, y) as (select * from t) select * from b) e, a", "t;a"),
    ("with a as (with a as (select * from a) select * from a) select * from A, s.a", "a;s.a"),
    ("with a (select * from t), b (x) (select * from a) select (select max(x) from b) from u", "t;u"),
    ("with recursive as (select * from recursive) select * from recursive", "recursive"),
    ("with recursive r (n) max recursion level 9 as (select 1 union all select n from r) select * from r, s", "s"),
    ("select * from f(table(t), x), u", "t;u"),
]


@pytest.mark.parametrize(("text", "tables"), QUERIES)
def test_tables(text: str, tables: str) -> None:
    assert ";".join(map(".".join, find_tables(text))) == tables


def test_spark_finds_the_same_tables(spark: SparkSession) -> None:
    for text, tables in QUERIES:
        relations = list(find_relations(catalyst.parse_plan(spark, text), case_sensitive=False))
        found = {".".join(name_parts(relation)) for relation in relations if relation is not None}
        recursive = {"a", "r"} if text.startswith("with recursive") else set()  # which an analysis finds
        assert found - recursive == set(tables.split(";")) and None not in relations, text


def test_each_model_mentions_what_dbt_knows_that_it_reads() -> None:
    content = json.loads(COMPILED.read_text())
    named = {id: node["relation_name"] for kind in ("nodes", "sources") for id, node in content[kind].items()
             if "relation_name" in node}  # fmt: skip
    models = [node for node in content["nodes"].values() if node["resource_type"] == "model"]
    assert len(models) == 56

    def read(node: dict) -> set[str]:
        ids = node.get("depends_on", {}).get("nodes", ())
        inside = [id for id in ids if content["nodes"].get(id, {}).get("config", {}).get("materialized") == "ephemeral"]
        others = {named[id].replace("`", "") for id in ids if id not in inside}
        return others.union(*(read(content["nodes"][id]) for id in inside))

    for node in models:
        assert set(map(".".join, find_tables(node["compiled_code"]))) == read(node), node["name"]
