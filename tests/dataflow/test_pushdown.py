"""Costly conditions and joins: evaluated for the rows that a change can affect, and for no others."""

from __future__ import annotations

from unittest import mock

import pytest
from pyspark.sql import DataFrame, SparkSession

from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.dataflow.pruning.semijoin import Pushdown, Semijoin
from deltafold.spark import catalyst
from tests.night import every
from tests.sandbox import MemorySandbox, checked

ROWS = "(select int(id % 50) k, id v, concat(char(97 + id % 3), 'x', id) s from range(200))"
COSTLY = {
    "a pattern": f"select k, v from {ROWS} where s like 'a%x%3'",
    "two filters": f"select k, v from (select * from {ROWS} where s rlike '^[ab]' and v > 20) where v < 150",
    "two patterns": f"select k, s from (select k, s from {ROWS} where not s like '_x1%' and v < 99) where s rlike '^a'",
    "a renamed key": f"select n as k from (select k as n, v as w from {ROWS} where s rlike 'b|c') where w < 150",
    "a condition that another guards": f"select k from {ROWS} where s rlike '^a' and if(s like 'a%', 1, 1 / 0) > 0",
}
UNCHANGED = {
    "a plain part": f"select k, v from {ROWS} where not s like '%x1%'",
    "two plain parts": f"select k, v from {ROWS} where s like 'a%' or not (s like 'b%' and s like '%1')",
    "a limit": f"select k, v from (select * from {ROWS} where s like 'a%x%' order by v limit 40)",
    "a key that a pattern guards": f"select int(substr(s, 3)) k from {ROWS} where s rlike '^a.[0-9]+$'",
}


def restrict(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """Return the rows whose key is among three."""
    aliases = catalyst.module(catalyst.catalyst(spark).analysis, "EliminateSubqueryAliases")
    plan = aliases.apply(catalyst.analysed_plan(rows))
    (key,) = (each for each in catalyst.sequence(plan.output()) if str(each.name()) == "k")
    few = spark.sql("select * from values (3), (7), (7), (null) t(touched)")
    return catalyst.frame(spark, Semijoin(Lowering(spark, {})).of_keys(Relation(plan), [key], few, few=True).plan)


@pytest.mark.parametrize("name", COSTLY)
def test_keys_are_looked_up_before_patterns_are_matched(spark: SparkSession, name: str) -> None:
    rows = spark.sql(COSTLY[name])
    found = restrict(spark, rows)
    assert sorted(found.collect()) == sorted(rows.where("k in (3, 7)").collect()) != []
    lines = catalyst.optimised_plan(found).toString().splitlines()
    (join,) = (i for i, line in enumerate(lines) if "Join LeftSemi" in line)
    matched = [i for i, line in enumerate(lines) if "LIKE" in line]
    assert matched
    assert max(matched) < join
    assert all(i > join for i, line in enumerate(lines) if "v#" in line and "Filter" in line)


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_is_left_where_it_is(spark: SparkSession, name: str) -> None:
    """Protects from a key computed for a row that the query excludes before, and from a limit of other rows."""
    rows = spark.sql(UNCHANGED[name])
    found = restrict(spark, rows)
    assert sorted(found.collect()) == sorted(rows.where("k in (3, 7)").collect())
    assert "SPARK_PARTITION_ID" not in catalyst.optimised_plan(found).toString()


OTHER = "(select int(id % 40) j, concat('o', id) o from range(30))"
JOINED = {
    "left": f"select k, v, o from {ROWS} left join {OTHER} on k = j",
    "right": f"select k, v, o from {OTHER} right join {ROWS} on k = j and s < o",
    "inner": f"select k + 0 as l, k, o from {ROWS} join {OTHER} on k = j",
    "the right one of an inner join": f"select k, v, o from {OTHER} join {ROWS} on k > j",
    "anti": f"select k, v from {ROWS} left anti join {OTHER} on v = j",
    "two, and a filter": f"select k, a.o from {ROWS} left join {OTHER} a on k = a.j left join {OTHER} b on v = b.j "
    "where coalesce(b.o, '') <> 'o1'",
}
NOT_JOINED = {
    "the other side": f"select k, v, o from {OTHER} left join {ROWS} on k = j",
    "full": f"select k, v, o from {ROWS} full join {OTHER} on k = j",
    "a key of both sides": f"select coalesce(o, s) s, coalesce(k, j) k from {ROWS} left join {OTHER} on k = j",
}


@pytest.mark.parametrize("name", [*JOINED, *NOT_JOINED])
def test_keys_are_looked_up_before_joins(spark: SparkSession, name: str) -> None:
    """Protects from states that are joined with every row of a large input, for the few that a change touches."""
    rows = spark.sql({**JOINED, **NOT_JOINED}[name])
    found = restrict(spark, rows)
    few = rows.where("k in (3, 7) or k is null")
    assert sorted(map(str, found.collect())) == sorted(map(str, few.collect())) != []
    lines = [line.strip(" :+-") for line in catalyst.analysed_plan(found).toString().splitlines() if "Join" in line]
    assert lines[0].startswith("Join LeftSemi") == (name in NOT_JOINED)


QUERIES = {
    "left join": "select t.k, count(d.s) n from t left join d on t.k = d.k and not d.s like '%x%1%' group by t.k",
    "inner join": "select t.k, t.s, d.s u from t join d on t.k = d.k where d.s rlike 'x' and t.s like 'a%x%'",
    "semi-join": "select k from t where exists (select 1 from d where d.k = t.k and d.s rlike '^[ab]' and d.v > 2)",
    "extremes": "select k, min(v) m from d where regexp_replace(s, '[0-9]', '') <> 'cx' group by k",
    "window": "select k, v, rank() over (partition by k order by v, s) r from d where s rlike '^[^c]'",
}


@pytest.mark.parametrize("name", every(5, QUERIES))
def test_histories(sandbox: MemorySandbox, name: str) -> None:
    rows = [(i % 9, i, f"{'abc'[i % 3]}x{i}") for i in range(60)]
    for table in ("t", "d"):
        sandbox.source(table, "k int, v int, s string", rows)
    sandbox.tune(prune_above_bytes=0)
    view = sandbox.view(QUERIES[name], "v")
    held = Pushdown._hold
    with mock.patch.object(Pushdown, "_hold", autospec=True, side_effect=held) as spy:
        checked(view)
        for step in (
            ("insert", "d", [(4, 1, "ax1"), (None, 2, "bx2"), (11, 3, "cx3")]),
            ("delete", "d", "v in (4, 7, 13)"),
            ("insert", "t", [(11, 5, "ax5"), (None, 6, "ax6")]),
            ("update", "d", {"s": "concat('c', s)"}, "k = 3"),
            ("delete", "t", "k = 2"),
        ):
            sandbox.do(step)
            checked(view)
    assert spy.call_count
