"""A view only reads: what would act, or freeze the clock, is refused before Spark sees it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from deltafold.algebra.errors import DeltafoldError, QueryError, RefusedError, SourceError
from deltafold.api import Delta
from tests.sandbox import DeltaSandbox, MemorySandbox, checked


@pytest.fixture
def shop(sandbox: MemorySandbox) -> MemorySandbox:
    sandbox.source("t", "k int, s string", [(1, "a"), (2, "b")])
    return sandbox


def test_a_command_is_refused_and_not_run(delta: DeltaSandbox) -> None:
    """Spark runs a command as soon as it analyses one."""
    delta.source("t", "k int, s string", [(1, "a"), (2, "b")])
    table, new = f"delta.`{delta.path('t')}`", delta.path("new")
    for command in (
        f"delete from {table}",
        f"with x as (select 3 k, 'c' s) insert into {table} select * from x",
        f"create table delta.`{new}` using delta as select 1 a",
        f"update {table} set k = 0",
        "set spark.sql.session.timeZone = Asia/Tokyo",
    ):
        with pytest.raises(QueryError, match="not a query"):
            delta.view(command).explain()
    with pytest.raises(QueryError, match="EXECUTE IMMEDIATE: it runs another text"):
        delta.view(f"execute immediate 'delete from {table}'").explain()
    assert [tuple(row) for row in delta.spark.table(table).orderBy("k").collect()] == [(1, "a"), (2, "b")]
    assert not Path(new).exists()


@pytest.mark.parametrize("clock", ["timestamp 'now'", 'DATE "today"', "timestamp_ntz ' yesterday '"])
def test_the_clock_as_a_literal(shop: MemorySandbox, clock: str) -> None:
    with pytest.raises(QueryError, match="clock in the query"):
        shop.view(f"select k, {clock} n from t").explain()
    assert (
        "project" in shop.view("select k, 'today' d /* timestamp 'now' */ from t where s <> 'date' -- 'now'").explain()
    )


def test_the_clock_as_a_text_that_is_cast(shop: MemorySandbox) -> None:
    with pytest.raises(RefusedError, match="changes with the clock"):
        shop.view("select k from t where cast(s as timestamp) < cast('now' as timestamp)").explain()


def test_keys_of_a_collation_cannot_be_stored(shop: MemorySandbox) -> None:
    with pytest.raises(RefusedError, match="Delta does not store"):
        shop.view("select max(s) m, count(*) c from t group by s collate utf8_lcase").explain()


def test_names_and_declarations(shop: MemorySandbox) -> None:
    """Spark does not tell T from t: the second would hide the first."""
    for name, declaration in (("T", Delta("/x")), ("u", "/a/path"), (5, Delta("/x")), ("x" * 300, Delta("/x"))):
        with pytest.raises(SourceError):
            shop.warehouse.source(name, declaration)  # type: ignore[arg-type]
    for name, query in ((None, "select 1"), ("x" * 300, "select 1"), ("v", 5)):
        with pytest.raises(DeltafoldError):
            shop.warehouse.view(name, query).explain()  # type: ignore[arg-type]


def test_pipes_are_plain_sql(shop: MemorySandbox) -> None:
    view = shop.view("from t |> where k > 1 |> aggregate count(*) as c group by s")
    assert "group by s: count(1)" in view.explain()
    checked(view)


def test_sql_within_a_function(shop: MemorySandbox) -> None:
    """It has to be of the session of the frames; the error says so, since the name looks right."""

    def named(t: DataFrame) -> DataFrame:
        t.createOrReplaceTempView("mine")
        return t.sparkSession.sql("select s, k from mine union all select s, k from {d}", d=t)

    view = shop.view(named)
    checked(view)
    shop.sql("insert into {t} values (3, 'c')")
    checked(view)
    with pytest.raises(QueryError, match=r"`other` cannot be found.*make views and functions by the sparkSession"):
        shop.view(lambda t: shop.spark.sql("select k from other") if t else t, "w").refresh()
