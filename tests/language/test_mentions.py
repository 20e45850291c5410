"""Which sources a query may read is known from its text, or from its parameters, before any of them is looked up."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.language.analysis import analyse
from deltafold.language.mentions import find_mentions
from tests.language.schemas import SOURCES, read_query, schemas

DECLARED = ("t", "u", "w", "Orders")
EVERY = " ".join(DECLARED)


def may_read(spark: SparkSession, query: Any) -> str:
    """The declared sources among what a query names, in words."""
    return " ".join(find_mentions(spark, query).among(DECLARED))


TEXTS = {
    "select * from t": "t",
    "select u.k from t, t as u": "t",  # an alias is no table
    "select * from oRDERS": "Orders",
    "select * from session.orders": "Orders",
    "select 1": "",
    "select * from nowhere": "",
    "selekt": "",
    "table t": "t",
    "values ((select max(k) from t))": "t",
    "select * from t join (values (1), (2)) x(k) using (k) cross join range(3)": "t",
    "select * from t tablesample (3 rows) where k in (1, 2)": "t",
    "select (select max(k) from u where u.k = t.k) from t": "t u",
    "select * from t where k in (select k from u) and exists (select 1 from w)": "t u w",
    "select k from t group by k having max(v) > (select max(v) from u) order by (select v from w)": "t u w",
    "select sum(v) over (order by (select v from u)) from t qualify sum(v) over () > (select v from w)": "t u w",
    "select transform(a, x -> x + (select k from u)) from t": "t u",
    "select count(*) from t group by grouping sets ((k), ((select k from u)))": "t u",
    "select * from t limit (select 3 from u)": "t u",
    "select * from t, lateral (select * from u where u.k = t.k)": "t u",
    "select * from t lateral view explode((select v from u)) x as y": "t u",
    "select * from explode((select v from t))": "t",
    "select * from f(table(t), (select k from u))": "t u",
    "from t |> where k > 1 |> join u using (k) |> union all (table w)": "t u w",
    "select * from t pivot (sum(v) for k in (1, 2)) union select * from u unpivot (v for k in (a, b))": "t u",
    "select * from t version as of 3": "t",
    "select /*+ broadcast(u) */ * from t": "t",
    # a common table stands in front of a source, but not within itself, and not beyond its query
    "with t as (select * from u) select * from t": "u",
    "with t as (select * from t) select * from t": "t",
    "with u as (select * from t), w as (select * from u) select * from w": "t",
    "with w as (select * from u), u as (select * from t) select * from w, u": "t u",
    "with U as (select * from t) select * from u": "t",
    "with orders as (select * from t) select * from session.orders": "t Orders",
    "select * from (with t as (select * from u) select * from t) join t using (k)": "t u",
    "with t as (select 1 k) select (select max(k) from t where exists (select 1 from u)) m": "u",
    "with recursive r(n) as (select k from t union all select n + 1 from r where n < 5) select * from r": "t",
    # a name that is computed may be any
    "select * from identifier('t')": "t",
    "select * from identifier('o' || 'rders')": EVERY,
    "with w as (select * from identifier('o' || 'rders')) select * from w": EVERY,
}


def test_the_tables_of_a_text(spark: SparkSession) -> None:
    """Protects from a place in a query that is overlooked, so that Spark finds no table there."""
    assert {text: may_read(spark, text) for text in TEXTS} == TEXTS


def test_names_that_differ_in_case(spark: SparkSession) -> None:
    """Where Spark tells T from t, a common table T does not stand in front of a source t."""
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert may_read(spark, "with T as (select * from u) select * from t") == "t u"
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_what_the_session_knows_may_read_any_source(spark: SparkSession) -> None:
    """A view or an SQL function of the session may read what the text does not name."""
    spark.range(3).createOrReplaceTempView("stray")
    try:
        assert may_read(spark, "select * from stray") == EVERY
        assert may_read(spark, "select * from t") == "t"
        spark.sql("create temporary function one() returns int return 1")
        assert may_read(spark, "select * from t") == EVERY
    finally:
        spark.sql("drop temporary function if exists one")
        spark.catalog.dropTempView("stray")


@pytest.mark.parametrize(
    ("query", "named"),
    [
        (lambda t: t, "t"),
        (lambda t, nowhere=None, *, u: t, "t u"),
        (lambda u, t, /: t, "t u"),
        (lambda: None, ""),
        (lambda t, **rest: t, EVERY),
        (dict, EVERY),  # which does not show its parameters
    ],
)
def test_the_parameters_of_a_function(spark: SparkSession, query: Any, named: str) -> None:
    assert may_read(spark, query) == named


def test_a_function_gets_what_it_has_parameters_for(spark: SparkSession) -> None:
    """By name or by place; of `**tables` only what is used is looked up, and only that is an error."""
    asked: list[str] = []

    def schema(name: str) -> Any:
        asked.append(name)
        return schemas().get(name)

    declared = (*SOURCES, "empty", "rest")

    def sources(query: Any) -> tuple[tuple[str, ...], list[str]]:
        asked.clear()
        return analyse(spark, query, declared, schema).translate().sources, sorted(asked)

    def everything(flights: DataFrame, **rest: DataFrame) -> DataFrame:
        assert set(rest) == set(declared) - {"flights"}
        return flights.join(rest["airlines"], "carrier").select("carrier", rest["airlines"].name)

    assert sources(everything) == (("flights", "airlines"), ["airlines", "flights"])
    assert sources(lambda lines, orders, /: lines.join(orders, lines.lk == orders.ok)) == (
        ("lines", "orders"),
        ["lines", "orders"],
    )
    assert sources(lambda airlines, empty=None: airlines) == (("airlines",), ["airlines", "empty"])
    assert sources("select name from airlines") == (("airlines",), ["airlines"])
    with pytest.raises(SourceError, match=r"source empty has no data yet. Land its files"):
        sources(lambda **tables: tables["airlines"].crossJoin(tables["empty"]))


def test_columns_are_known_before_the_query_is_translated(spark: SparkSession) -> None:
    """A view above is compiled over these: they are those of the translated query."""
    texts = [
        "select carrier, avg(seats) a, max(day) d, collect_list(origin) o, named_struct('X', 1, 'y', stops) s "
        "from flights group by carrier, stops",
        "select f.*, name from flights f left join airlines using (carrier) order by day limit 3",
    ]
    for text in texts:
        analysis = analyse(spark, text, SOURCES, schemas().get)
        read = read_query(spark, text, schemas()).outputs
        assert [(c.name, c.type) for c in analysis.columns] == [(name, column.type) for column, name in read]
