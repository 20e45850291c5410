"""Views over views: a change is handed on, and the whole chain stands at one version of each base source."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from incremental.algebra.errors import ChangedQueryError, QueryError, SourceError, StateError
from incremental.api import Delta, Report, View, Warehouse
from incremental.operations.declared_views import DECLARED
from tests.examples.scene import Scene, rows, types
from tests.properties.comparing import difference

TOTALS = "select k, sum(v) s, count(*) n from t group by k"
BIG = "select n, count(*) c, max(s) top from totals group by n"


def chained(view: View, text: str, **options: object) -> Report:
    """Refresh, then compare with one batch query over the base tables, in which {t} is t at the pinned version."""
    report = view.refresh(**options)  # type: ignore[arg-type]
    same(view, text)
    return report


def same(view: View, text: str) -> None:
    tables = {way.rsplit("/", 1)[-1]: version for way, version in pinned(view).items()}
    paths = {Path(table.path).name: table.path for table in view._resolved.inputs.bases.values()}
    known = {name: f"delta.`{paths[name]}` version as of {version}" for name, version in tables.items()}
    expected = view.warehouse.spark.sql(text.format(**known))
    assert types(expected) == types(view.answer())
    assert not (found := difference(expected.collect(), view.answer().collect())), found


def pinned(view: View) -> dict[str, int]:
    """The versions of all base sources that a view stands for."""
    return view.versions


def test_three_levels_and_reading_a_table_twice(scene: Scene) -> None:
    """Changes of one refresh arrive on every level; the middle one alone may go ahead several times."""
    scene.source("t", "k int, v int", [(1, 1), (1, 2), (2, 3), (3, 3)])
    scene.source("d", "n long, name string", [(1, "one"), (2, "two")])
    totals = scene.view(TOTALS, "totals")
    scene.warehouse.source("totals", totals)
    # a bag: equal rows, and a base table that the view below reads too
    pairs = scene.view("select name, t.k from totals join d on totals.n = d.n join t on t.k = totals.k", "pairs")
    scene.warehouse.source("pairs", pairs)
    top = scene.view("select name, count(*) c, sum(k) s from pairs group by name", "top")
    sub = TOTALS.replace("from t ", "from {t} ")
    middle = f"select name, x.k from ({sub}) y join {{d}} d on y.n = d.n join {{t}} x on x.k = y.k"
    whole = f"select name, count(*) c, sum(k) s from ({middle}) group by name"
    report = chained(top, whole)
    assert [(each.view, each.verdict) for each in report.below] == [("totals", "applied"), ("pairs", "applied")]
    assert "below it, totals epoch 1 applied, pairs epoch 1 applied" in report.sentence
    assert report.versions == {"view pairs": (None, 0)}
    assert "view pairs (name, k)" in top.explain()
    assert "view totals (k, n)" in pairs.explain()
    same(pairs, middle)
    scene.sql("insert into {t} values (3, 4), (3, 4), (4, 1)")
    scene.sql("update {d} set name = 'pair' where n = 2")
    scene.sql("delete from {t} where k = 1 and v = 2")
    chained(pairs, middle)
    scene.sql("delete from {t} where k = 2")
    chained(pairs, middle)
    assert not top.current
    report = chained(top, whole)
    assert top.current
    assert [each.verdict for each in report.below] == ["nothing to do", "nothing to do"]
    assert report.verdict == "applied"
    found = top.verify()
    assert found.ok
    assert set(found.versions) == {"pairs/t", "pairs/d", "pairs/totals/t"}
    assert top.history()[-1].versions["view pairs"][1] == pairs.history()[-1].epoch - 1


def test_a_diamond_stands_at_one_version(scene: Scene) -> None:
    """Two views and their reader see the same rows of one table, though they know it by other names and paths."""
    scene.source("t", "k int, v int", [(1, 1), (2, 2)])
    other = Warehouse(scene.spark, scene.folder / "other")
    other.source("u", Delta(f"file:{scene.path('t')}/"))
    low = other.view("low", "select k, min(v) m from u group by k")
    high = scene.view("select k, max(v) m from t group by k", "high")
    scene.warehouse.source("lows", low)
    scene.warehouse.source("highs", high)
    query = "select t.k, t.v, h.m - l.m as width from t join highs h on t.k = h.k join lows l on l.k = t.k"
    view = scene.view(query)
    text = (
        "select t.k, t.v, h.m - l.m as width from {t} t join (select k, max(v) m from {t} group by k) h on t.k = h.k "
        "join (select k, min(v) m from {t} group by k) l on l.k = t.k"
    )
    for change in ("", "insert into {t} values (1, 5), (2, 2), (3, 0)"):
        if change:
            scene.sql(change)
            high.refresh()  # one side is ahead
            scene.sql("insert into {t} values (1, 7)")
        view.refresh()
        assert set(pinned(view)) == {"t", "lows/u", "highs/t"}
        assert len(set(pinned(view).values())) == 1
        latest = scene.spark.sql(text.format(t=f"delta.`{scene.path('t')}`")).collect()
        assert not difference(latest, view.answer().collect())
    assert view.refresh().verdict == "nothing to do"
    assert view.verify().ok


def test_changes_that_do_not_reach_the_answer_below(scene: Scene) -> None:
    """The view below writes its state anew, and nothing of it is seen above but the versions."""
    scene.source("t", "k int, v int", [(1, 1), (1, 3), (2, 3)])
    below = scene.view("select k, min(v) lo from t group by k", "below")
    scene.warehouse.source("below", below)
    view = scene.view("select lo, count(*) c from below group by lo")
    bag = scene.view("select lo + 1 x from below", "bag")
    for each in (view, bag):
        each.refresh()
    scene.sql("insert into {t} values (1, 8), (2, 4)")  # other row counts, same answers
    for each in (view, bag):
        report = each.refresh()
        assert (report.verdict, report.epoch, report.commits) == ("nothing to do", 1, 0)
        assert pinned(each) == {"below/t": 1}
    assert [report.epoch for report in below.history()] == [1, 2]
    scene.sql("optimize {t}")
    assert view.refresh().verdict == "nothing to do"
    assert pinned(view) == {"below/t": 2}
    scene.sql("insert into {t} values (2, 0)")
    chained(view, "select lo, count(*) c from (select k, min(v) lo from {t} group by k) group by lo")


def test_versions_that_are_asked_for(scene: Scene) -> None:
    """Back to an epoch that the view below had, and a sentence where it had none."""
    scene.source("t", "k int, v int", [(1, 1), (2, 2)])
    totals = scene.view(TOTALS, "totals")
    scene.warehouse.source("totals", totals)
    view = scene.view(BIG)
    text = f"select n, count(*) c, max(s) top from ({TOTALS.replace('from t', 'from {t}')}) group by n"
    for values in ("(1, 4)", "(3, 4)", "(3, 0)"):
        scene.sql(f"insert into {{t}} values {values}")
    for version in (0, 1, 3):
        chained(view, text, versions={"t": version})
    assert chained(view, text, versions={"totals/t": 1}).below[0].epoch == 2
    assert pinned(totals) == {"t": 3}
    with pytest.raises(SourceError, match=r"view totals has gone on to t 3 and has no epoch at t 2, .* or refresh"):
        view.refresh(versions={"t": 2})
    totals.refresh(versions={"t": 2})
    chained(view, text, versions={"t": 2})
    for versions, says in (
        ({"totals": 1}, r"source totals of view v is a view: give the versions of what it reads \(t\)"),
        ({"u": 1}, "view v reads no source 'u'; it reads totals/t"),
        ({"t": 9}, "source totals/t has no version 9: its latest is 3"),
    ):
        with pytest.raises(SourceError, match=says):
            view.refresh(versions=versions)


def test_a_view_below_that_was_rebuilt(scene: Scene) -> None:
    """Its new table is handed on by its difference from the old one, as long as that is there."""
    scene.source("t", "k int, v int", [(1, 1), (1, 2), (2, 3)])
    views = {}

    def opened(query: str, policy: str = "incremental") -> View:
        warehouse = Warehouse(scene.spark, scene.folder / "warehouse")
        warehouse.source("t", Delta(scene.path("t")))
        views["totals"] = warehouse.view("totals", query)
        warehouse.source("totals", views["totals"])
        return warehouse.view(policy, BIG, policy)  # type: ignore[arg-type]

    text = f"select n, count(*) c, max(s) top from ({TOTALS.replace('from t', 'from {t}')}) group by n"
    policies = ("incremental", "definition")
    for policy in policies:
        chained(opened(TOTALS, policy), text)
    views["totals"].rebuild()
    for policy in policies:
        assert opened(TOTALS, policy).refresh().verdict == "nothing to do"
    scene.sql("insert into {t} values (2, 4), (5, 5)")
    views["totals"].rebuild()
    for policy in policies:
        report = chained(opened(TOTALS, policy), text)
        assert (report.generation, report.epoch) == (1, 2)
    changed = TOTALS.replace("sum(v)", "sum(v + 1)")
    with pytest.raises(ChangedQueryError, match="the query of view totals"):
        opened(changed).refresh()
    opened(changed)
    views["totals"].rebuild()
    text = text.replace("sum(v)", "sum(v + 1)")
    chained(opened(changed), text)
    scene.sql("delete from {t} where k = 5")
    assert opened(changed).rebuild().generation == 2
    same(opened(changed), text)
    drop_refused(views["totals"], "definition, incremental")
    views["totals"].drop(force=True)
    scene.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    with pytest.raises(SourceError, match=r"source totals at .* created anew, or .*: rebuild the view incremental"):
        opened(changed).refresh()
    opened(changed).rebuild()
    views["totals"].rebuild()
    shutil.rmtree(scene.folder / "warehouse" / "views" / "totals" / "g1")
    scene.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    with pytest.raises(SourceError, match="rebuild the view incremental"):
        opened(changed).refresh()


def drop_refused(view: View, readers: str) -> None:
    with pytest.raises(StateError, match=rf"view {view.name} cannot be dropped: {readers} reads? it\. Drop {readers}"):
        view.drop()


def test_a_view_that_others_read_is_not_dropped(scene: Scene) -> None:
    """Its readers would be left with a sentence that their source is gone; who is asked to drop knows them by name."""
    scene.source("t", "k int, v int", [(1, 1)])
    totals = scene.view(TOTALS, "totals")
    scene.warehouse.source("totals", totals)
    view, beside = scene.view(BIG), scene.view("select k from t", "beside")
    drop_refused(totals, "v")  # which was declared here, and never refreshed
    view.refresh()
    beside.refresh()
    elsewhere = Warehouse(scene.spark, scene.folder / "warehouse")  # as another process has it
    elsewhere.source("t", Delta(scene.path("t")))
    DECLARED.clear()
    below = elsewhere.view("totals", TOTALS)
    drop_refused(below, "v")
    view.drop()
    below.drop()
    assert not (scene.folder / "warehouse" / "views" / "totals").exists()
    assert rows(beside) == [(1,)]
    totals.drop()


def test_a_wrong_view_below_is_seen_above(scene: Scene) -> None:
    """The batch query above stands on the batch query below, not on its table."""
    scene.source("t", "k int, v int", [(1, 1), (2, 3)])
    totals = scene.view("select k, v + 1 w from t", "totals")
    scene.warehouse.source("totals", totals)
    view = scene.view("select w from totals")
    view.refresh()
    scene.spark.sql(f"update delta.`{totals.path}` set w = 100 where k = 1")
    assert view.verify().ok
    assert rows(view) == [(2,), (4,)]
    scene.sql("insert into {t} values (7, 7)")
    view.refresh()
    assert not totals.verify().ok
    found = view.verify()
    assert (found.missing, found.extra) == (1, 1)
    totals.rebuild()
    view.refresh()
    assert view.verify().ok


def test_a_view_that_reads_itself(scene: Scene) -> None:
    """Only by a trick; every honest view reads what was there before it."""
    scene.source("t", "k int, v int", [(1, 1)])
    first = scene.view("select k, v from t", "first")
    scene.warehouse.source("above", first)
    first.refresh()
    with pytest.raises(QueryError, match="view first reads itself, through above"):
        scene.view("select k, v from above", "first").refresh()
    with pytest.raises(SourceError, match="source above is the view first"):
        scene.warehouse.land("above")
    with pytest.raises(SourceError, match="declared twice"):
        scene.warehouse.source("above", first)
