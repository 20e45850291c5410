"""Column names that tables find hard, in sources and in answers."""

from __future__ import annotations

import pytest

from incremental.algebra.errors import QueryError, SourceError
from tests.examples.scene import Scene, checked, row, rows


def test_names_with_spaces_parentheses_and_other_letters(scene: Scene) -> None:
    """As Spark names unnamed answers, and as people name columns."""
    scene.source("t", "k int, v int", [(1, 1), (1, 2), (2, 3)])
    scene.warehouse.source("wide", scene_source(scene))
    views = [
        scene.view("select k, sum(v), count(*), avg(v + 1) from t group by k", "unnamed"),
        scene.view("select k as `größe (cm)`, sum(v) as `a.b, c=d;{}` from t group by k", "odd"),
        scene.view("select k as `日本`, v as `x y` from t where v > 1", "bag"),
        scene.view("select `the key`, sum(`v (net)`) `Σ` from wide group by `the key`", "wide_sums"),
        scene.view("select `the key`, `v (net)`, `dot.ted` from wide", "wide_rows"),
    ]
    for view in views:
        checked(view)
    scene.sql("insert into {t} values (1, 5), (3, 3)")
    scene.sql("delete from {t} where v = 2")
    scene.sql("delete from {wide} where `dot.ted` = 'b'")
    for view in views:
        checked(view)
    assert views[0].answer().columns == ["k", "sum(v)", "count(1)", "avg((v + 1))"]
    assert rows(views[3]) == [("a", 1)]


def scene_source(scene: Scene):  # type: ignore[no-untyped-def]
    from incremental.api import Delta

    frame = scene.spark.sql("select 'a' `the key`, 1 `v (net)`, 'a' `dot.ted` union all select 'a', 2, 'b'")
    writer = frame.write.format("delta").option("delta.columnMapping.mode", "name")
    writer.option("delta.enableDeletionVectors", "true").save(scene.path("wide"))
    return Delta(scene.path("wide"))


def test_backticks(scene: Scene) -> None:
    """They must be quoted wherever a name stands in SQL."""
    scene.source("t", "k int, v int", [(1, 1), (1, 2), (2, 3)])
    views = [
        scene.view("select k as `a``b`, sum(v) as `s``` from t group by k", "sums"),
        scene.view("select k as `a``b`, v from t", "bag"),
    ]
    for view in views:
        checked(view)
    scene.sql("delete from {t} where v = 2")
    for view in views:
        checked(view)


def test_names_that_look_like_ours(scene: Scene) -> None:
    """State columns are made of key names and answer names; no two may meet."""
    scene.source("t", "n int, s int, rows int, bucket int, m int", [(1, 1, 1, 1, 1), (2, 2, 2, 2, 2)])
    views = [
        scene.view("select sum(s) as key, max(m) as key_m from t group by n, m", "hidden"),
        scene.view("select rows, bucket, count(*) as weight, sum(n) as n from t group by rows, bucket", "ours"),
        scene.view("select n as s, s as n, count(m) as m from t group by n, s", "swapped"),
        scene.view("select n as total, n as again, sum(n) as n from t group by n", "repeated"),
    ]
    for view in views:
        checked(view)
    scene.sql("insert into {t} values (1, 5, 1, 1, 1), (3, 3, 3, 3, 3)")
    scene.sql("delete from {t} where n = 2")
    for view in views:
        checked(view)


def test_answer_columns_that_no_table_can_have(scene: Scene) -> None:
    """Delta's names do not differ by case; ours begin with two underscores."""
    scene.source("t", "k int, v int", [(1, 1)])
    for query, sentence in (
        ("select k, v as K from t", "two columns named 'k' and 'K', which are one name"),
        ("select k, count(*) K from t group by k", "two columns named 'k' and 'K', which are one name"),
        ("select k as __rows from t", "'__rows' starts with '__', which is reserved"),
    ):
        with pytest.raises(QueryError, match=sentence):
            scene.view(query).refresh()
    assert not (scene.folder / "warehouse" / "views" / "v" / "journal").exists()


def test_names_of_views_and_sources(scene: Scene) -> None:
    """They become folders and SQL names."""
    scene.source("t", "k int", [(1,)])
    for name in ("a b", "../x", "", "1x"):
        with pytest.raises(QueryError, match="is no name for a view"):
            scene.view("select k from t", name)
        with pytest.raises(SourceError, match="is no name for a source"):
            scene.source(name or "__x", "k int", [])
    with pytest.raises(SourceError, match="declared twice"):
        scene.source("t", "k int", [(1,)])


def test_dataframe_function_is_a_query(scene: Scene) -> None:
    """Also where the warehouse has sources that it does not use."""
    scene.source("t", "k int, v int", [(1, 1), (1, 2)])
    scene.source("other", "k int", [(1,)])
    view = scene.view(lambda t, **_: t.groupBy().agg({"v": "sum"}))
    checked(view)
    scene.sql("insert into {t} values (1, 5)")
    checked(view)
    assert row(view)["sum(v)"] == 8
