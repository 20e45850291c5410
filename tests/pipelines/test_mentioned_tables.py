"""The tables that a query mentions, without Spark."""

from __future__ import annotations

import json

import pytest

from deltafold.pipelines.mentioned_tables import find_tables
from tests.pipelines.dbt_project import COMPILED


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("select a from t -- from u\n where b = 'from v' /* join w */", "t"),
        ("select * from a x, `b c` y join s.d on x.f(1, 2) = y.g, e where x in (select k from h), i", "a;b c;s.d;e;h"),
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
    ],
)
def test_tables(text: str, tables: str) -> None:
    assert ";".join(map(".".join, find_tables(text))) == tables


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
