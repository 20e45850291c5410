"""Columns of a source that change places: a query that names them goes on, one that takes them by position does not."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.recipe import LONGEST_LINE, Recipe
from tests.night import every, night
from tests.refresh.test_changes import refusal
from tests.sandbox import DeltaSandbox, MemorySandbox, checked, rows

FIRST, SECOND = "k int, v int, name string, w int", "w int, name string, k int, v int"
NAMED: dict[str, Any] = {
    "grouped": "select k, sum(v) s, max(name) m from t group by k",
    "rows": "select name, k + v x from t where w > 1",
    "joined with itself": "select a.k, b.v, a.name from t a join t b on a.k = b.w",
    "union": "select k, v, w from t union all select w, k, v from (table t)",
    "window": "select k, name, rank() over (partition by k order by v, w) r from t",
    "recursive": (
        "with recursive r(n) as (select k from t union select t.v from r join t on r.n = t.k where t.v < 3) "
        "select n, count(*) c from r group by n"
    ),
    "subqueries": "select k, (select max(v) from t) m from t where w in (select v from t) and exists (select 1 from t)",
    "function": lambda t: t.groupBy("k").agg(F.sum("v").alias("s"), F.count("name").alias("n")),
}
BY_POSITION: dict[str, Any] = {
    "all columns": "select * from t",
    "all columns in a union": "select w, name, k, v from t union all table t",
    "function": lambda t: first_column(t),
}


def first_column(t: DataFrame) -> DataFrame:
    return t.select(t.columns[0])


def moved(sandbox: MemorySandbox) -> None:
    """Write the source anew, with its columns in other places."""
    values = [(1, "x", 1, 1), (2, "z", 2, 5), (3, "u", 1, 2)]
    sandbox.write("t", sandbox.spark.createDataFrame(values, SECOND), "reshape")


@pytest.mark.parametrize("query", every(4, NAMED))
def test_a_query_that_names_its_columns_goes_on(sandbox: MemorySandbox, query: str) -> None:
    sandbox.source("t", FIRST, [(1, 1, "x", 1), (2, 2, "y", 2), (1, 2, "z", 3)])
    view = sandbox.view(NAMED[query])
    checked(view)
    moved(sandbox)
    assert checked(sandbox.view(NAMED[query])).verdict == "applied"
    sandbox.sql("insert into {t} (k, v, name, w) values (7, 8, 'q', 9)")
    sandbox.sql("delete from {t} where k = 1")
    report = checked(view)
    assert (report.verdict, report.generation) == ("applied", 1)


@pytest.mark.parametrize("query", every(2, BY_POSITION))
def test_a_query_that_takes_columns_by_position_does_not(sandbox: MemorySandbox, query: str) -> None:
    sandbox.source("t", FIRST.replace("string", "int"), [(1, 1, 5, 1), (2, 2, 6, 2)])
    view = sandbox.view(BY_POSITION[query])
    checked(view)
    values = [(1, 5, 1, 1), (2, 6, 2, 3)]
    sandbox.write("t", sandbox.spark.createDataFrame(values, SECOND.replace("string", "int")), "reshape")
    assert "changed since the state was built" in refusal(view)
    view.rebuild()
    checked(view)


@night
def test_columns_moved_and_mapped(delta: DeltaSandbox) -> None:
    """ALTER COLUMN ... FIRST commits no file; NOT NULL, comments and defaults are no change of the query either."""
    delta.sql(
        f"create table delta.`{delta.path('t')}` (k int not null, v int not null, name string) using delta "
        "tblproperties ('delta.columnMapping.mode' = 'name', 'delta.feature.allowColumnDefaults' = 'supported')"
    )
    delta.sql("insert into {t} values (1, 1, 'a'), (2, 2, 'b')")
    delta.declare("t")
    query = (
        "select k, count(v) n, sum(coalesce(v, 7)) s, max(name) m from t where v is not null or name = 'c' group by k"
    )
    view = delta.view(query)
    checked(view)
    for change in (
        "alter column name first",
        "alter column v drop not null",
        "alter column v comment 'what it costs'",
        "alter column v set default 9",
    ):
        delta.sql(f"alter table {{t}} {change}")
    delta.sql("insert into {t} (k, v, name) values (1, null, 'c'), (3, default, 'd')")
    assert checked(view).verdict == "applied"
    assert rows(view) == [(1, 1, 8, "c"), (2, 1, 2, "b"), (3, 1, 9, "d")]


def test_the_order_is_in_the_recipe() -> None:
    """Of each occurrence of a source the columns that it reads; earlier releases cut a long line."""
    lines = ("join", "  source t (a, b AS b_2, d)", "  source t (a AS a_2, c, d)", "  source u (z)")
    order = Recipe(fingerprint="", plan=lines).orders["t"]
    assert order.index("a") < order.index("b") < order.index("d") and order.index("a") < order.index("c") < order.index(
        "d"
    )
    many = [f"column_{number}" for number in range(100, 0, -1)]
    whole = f"source t ({', '.join(many)})"
    assert Recipe(fingerprint="", plan=(whole,)).orders == {"t": many}
    assert Recipe.from_json(Recipe(fingerprint="", plan=(whole,)).to_json()).orders == {"t": many}
    assert Recipe(fingerprint="", plan=(f"{whole[: LONGEST_LINE - 1]}…",)).orders["t"][:5] == many[:5]
    assert Recipe(fingerprint="", plan=("source t (a, b)", "source t (b, a)")).orders == {}
