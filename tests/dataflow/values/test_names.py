"""Column names that tables find hard, in sources and in answers."""

from __future__ import annotations

import pytest

from deltafold.algebra.errors import QueryError, SourceError, UsageError
from deltafold.api import Delta
from tests.night import night
from tests.sandbox import DeltaSandbox, MemorySandbox, checked, row, rows


@night
def test_names_with_spaces_parentheses_and_other_letters(delta: DeltaSandbox, long: bool) -> None:
    """As Spark names unnamed answers, and as people name columns."""
    delta.source("t", "k int, v int", [(1, 1), (1, 2), (2, 3)])
    delta.warehouse.source("wide", wide(delta))
    views = [
        delta.view("select k, sum(v), count(*), avg(v + 1) from t group by k", "unnamed"),
        delta.view("select k as `größe (cm)`, sum(v) as `a.b, c=d;{}` from t group by k", "odd"),
        delta.view("select k as `日本`, v as `x y` from t where v > 1", "bag"),
        delta.view("select `the key`, sum(`v (net)`) `Σ` from wide group by `the key`", "wide_sums"),
        delta.view("select `the key`, `v (net)`, `dot.ted` from wide", "wide_rows"),
    ]
    shown = views if long else [views[0], views[3]]
    for view in shown:
        checked(view)
    delta.sql("insert into {t} values (1, 5), (3, 3)")
    delta.sql("delete from {t} where v = 2")
    delta.sql("delete from {wide} where `dot.ted` = 'b'")
    for view in shown:
        checked(view)
    assert views[0].answer().columns == ["k", "sum(v)", "count(1)", "avg((v + 1))"]
    assert rows(views[3]) == [("a", 1)]


def wide(delta: DeltaSandbox) -> Delta:
    frame = delta.spark.sql("select 'a' `the key`, 1 `v (net)`, 'a' `dot.ted` union all select 'a', 2, 'b'")
    writer = frame.write.format("delta").option("delta.columnMapping.mode", "name")
    writer.option("delta.enableDeletionVectors", "true").save(delta.path("wide"))
    return Delta(delta.path("wide"))


@night
def test_backticks(delta: DeltaSandbox) -> None:
    """They must be quoted wherever a name stands in SQL."""
    delta.source("t", "k int, v int", [(1, 1), (1, 2), (2, 3)])
    views = [
        delta.view("select k as `a``b`, sum(v) as `s``` from t group by k", "sums"),
        delta.view("select k as `a``b`, v from t", "bag"),
    ]
    for view in views:
        checked(view)
    delta.sql("delete from {t} where v = 2")
    for view in views:
        checked(view)


def test_names_that_look_like_ours(sandbox: MemorySandbox) -> None:
    """State columns are made of key names and answer names; no two may meet."""
    sandbox.source("t", "n int, s int, rows int, bucket int, m int", [(1, 1, 1, 1, 1), (2, 2, 2, 2, 2)])
    views = [
        sandbox.view("select sum(s) as key, max(m) as key_m from t group by n, m", "hidden"),
        sandbox.view("select rows, bucket, count(*) as weight, sum(n) as n from t group by rows, bucket", "ours"),
        sandbox.view("select n as s, s as n, count(m) as m from t group by n, s", "swapped"),
        sandbox.view("select n as total, n as again, sum(n) as n from t group by n", "repeated"),
    ]
    for view in views:
        checked(view)
    sandbox.sql("insert into {t} values (1, 5, 1, 1, 1), (3, 3, 3, 3, 3)")
    sandbox.sql("delete from {t} where n = 2")
    for view in views:
        checked(view)


def test_answer_columns_that_no_table_can_have(sandbox: MemorySandbox) -> None:
    """Delta's names do not differ by case; ours begin with two underscores."""
    sandbox.source("t", "k int, v int", [(1, 1)])
    for query, sentence in (
        ("select k, v as K from t", "duplicate answer column 'K'.* only in case"),
        ("select k, count(*) K from t group by k", "duplicate answer column 'K'.* only in case"),
        ("select k as __rows from t", "reserved answer column '__rows'"),
    ):
        with pytest.raises(QueryError, match=sentence):
            sandbox.view(query).refresh()
    assert not (sandbox.folder / "warehouse" / "views" / "v" / "journal").exists()


def test_names_of_views_and_sources(sandbox: MemorySandbox) -> None:
    """They become folders and SQL names."""
    sandbox.source("t", "k int", [(1,)])
    for name in ("a b", "../x", "", "1x"):
        with pytest.raises(UsageError, match="invalid name"):
            sandbox.view("select k from t", name)
        with pytest.raises(SourceError, match="invalid name"):
            sandbox.source(name or "__x", "k int", [])
    with pytest.raises(SourceError, match="declared twice"):
        sandbox.source("t", "k int", [(1,)])
    sandbox.view("select k from t", "total").refresh()
    (sandbox.folder / "warehouse" / "views" / "Kept").mkdir()  # by another process
    for name, other in ("Total", "total"), ("kept", "Kept"):
        with pytest.raises(UsageError, match=f"view {name}: there is a view {other} .*only in case"):
            sandbox.view("select k from t", name)
    sandbox.view("select k from t", "total")


def test_dataframe_function_is_a_query(sandbox: MemorySandbox) -> None:
    """Also where the warehouse has sources that it does not use."""
    sandbox.source("t", "k int, v int", [(1, 1), (1, 2)])
    sandbox.source("other", "k int", [(1,)])
    view = sandbox.view(lambda t, **_: t.groupBy().agg({"v": "sum"}))
    checked(view)
    sandbox.sql("insert into {t} values (1, 5)")
    checked(view)
    assert row(view)["sum(v)"] == 8
