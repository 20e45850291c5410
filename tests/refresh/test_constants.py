"""Queries without a source are constant views; queries that read what is not declared are refused under any policy."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

from deltafold.algebra.errors import ChangedQueryError, QueryError, SourceError
from deltafold.api import Delta
from deltafold.compilation import Policy
from tests.night import night
from tests.sandbox import DeltaSandbox, MemorySandbox, checked, rows

POLICIES: tuple[Policy, ...] = ("incremental", "auto", "definition")


def test_a_query_without_a_source(sandbox: MemorySandbox) -> None:
    """Epoch 1 loads it and nothing follows, in a warehouse without sources, whatever kind of state it would keep."""
    queries = {
        "select 1 as x": [(1,)],
        "select a % 2 m, count(*) n, max(a) hi from values (1), (2), (3) as t(a) group by 1": [(0, 1, 2), (1, 2, 3)],
    }
    for policy in POLICIES:
        for number, (query, answer) in enumerate(queries.items()):
            view = sandbox.view(query, f"{policy}_{number}", policy=policy)
            assert view.explain()
            assert checked(view).epoch == 1
            assert view.refresh().verdict == "nothing to do" and view.verify().ok and view.status().current
            assert rows(view) == answer


@night
def test_a_function_without_a_source(delta: DeltaSandbox) -> None:
    """Beside a source without data that it does not read; with it, both are read."""
    delta.warehouse.source("t", Delta(delta.path("t")))

    def constant(**_: DataFrame) -> DataFrame:
        return delta.spark.range(3)

    view = delta.view(constant)
    checked(view)
    assert rows(view) == [(0,), (1,), (2,)]
    for query in ("select k from t", lambda t: t.select("k"), lambda **tables: tables["t"].select("k")):
        with pytest.raises(SourceError, match=r"source t has no data: .*Land its files, or create the table"):
            delta.view(query, "late").refresh()
    delta.insert("t", "k int", [(7,)])
    assert view.refresh().verdict == "nothing to do"
    late = delta.view("select k from t", "late")
    checked(late)
    assert rows(late) == [(7,)]
    delta.warehouse.source("late", late)
    both = delta.view("select k from late union all select 8", "both")
    both.refresh()
    assert both.verify().ok
    assert rows(both) == [(7,), (8,)]


def test_what_is_not_declared_is_refused_under_any_policy(delta: DeltaSandbox) -> None:
    """Recomputing such a query once would leave it as it was then, and say that there is nothing to do."""
    delta.source("t", "k int", [(1,)])
    stray = f"select k from t union all select k from delta.`{delta.path('t')}`"
    for policy in POLICIES:
        view = delta.view(stray, policy, policy=policy)
        for call in (view.refresh, view.explain, view.rebuild):
            with pytest.raises(
                QueryError, match=r"^query: it reads the Delta table .*/t, which is not .* Declare it w"
            ):
                call()
    assert not (delta.folder / "warehouse" / "views").exists()


@night
def test_a_view_of_constants_that_was_replaced(delta: DeltaSandbox) -> None:
    """A temporary view may hold other rows, or read a table, while a View of it lives on."""
    delta.source("t", "k int", [(1,)])
    delta.spark.sql("create or replace temporary view rates as values (1), (2) as v(r)")
    try:
        view = delta.view("select k, r from t, rates", policy="auto")
        checked(view)
        delta.spark.sql("create or replace temporary view rates as values (3) as v(r)")
        with pytest.raises(ChangedQueryError, match="view v: the query"):
            view.refresh()
        view.rebuild()
        assert rows(view) == [(1, 3)]
        delta.spark.sql(f"create or replace temporary view rates as select k r from delta.`{delta.path('t')}`")
        with pytest.raises(QueryError, match=r"\(read through the view rates\), which is not a declared source"):
            view.refresh()
    finally:
        delta.spark.catalog.dropTempView("rates")
