"""Views over views: a change is handed on, and the whole chain stands at one version of each base source."""

from __future__ import annotations

import pytest

from deltafold.algebra.errors import ChangedQueryError, QueryError, SourceError, StateError
from deltafold.api import Delta, Report, View
from deltafold.operations.branch import DECLARED
from tests.night import night
from tests.properties.comparing import difference
from tests.sandbox import MemorySandbox, rows, types

TOTALS = "select k, sum(v) s, count(*) n from t group by k"
LAYERS = 3
BIG = "select n, count(*) c, max(s) top from totals group by n"


def chained(sandbox: MemorySandbox, view: View, text: str, **options: object) -> Report:
    """Refresh, then compare with one batch query over the base tables, in which {t} is t at the pinned version."""
    report = view.refresh(**options)  # type: ignore[arg-type]
    same(sandbox, view, text)
    return report


def same(sandbox: MemorySandbox, view: View, text: str) -> None:
    expected = sandbox.read(text, {way.rsplit("/", 1)[-1]: version for way, version in pinned(view).items()})
    assert types(expected) == types(view.answer())
    assert not (found := difference(expected.collect(), view.answer().collect())), found


def pinned(view: View) -> dict[str, int]:
    """The versions of all base sources that a view stands for."""
    return view.versions


def test_three_levels_and_reading_a_table_twice(sandbox: MemorySandbox) -> None:
    """Changes of one refresh arrive on every level; the middle one alone may go ahead several times."""
    sandbox.source("t", "k int, v int", [(1, 1), (1, 2), (2, 3), (3, 3)])
    sandbox.source("d", "n long, name string", [(1, "one"), (2, "two")])
    totals = sandbox.view(TOTALS, "totals")
    sandbox.warehouse.source("totals", totals)
    # a bag: equal rows, and a base table that the view below reads too
    pairs = sandbox.view("select name, t.k from totals join d on totals.n = d.n join t on t.k = totals.k", "pairs")
    sandbox.warehouse.source("pairs", pairs)
    top = sandbox.view("select name, count(*) c, sum(k) s from pairs group by name", "top")
    sub = TOTALS.replace("from t ", "from {t} ")
    middle = f"select name, x.k from ({sub}) y join {{d}} d on y.n = d.n join {{t}} x on x.k = y.k"
    whole = f"select name, count(*) c, sum(k) s from ({middle}) group by name"
    report = chained(sandbox, top, whole)
    assert [(each.view, each.verdict) for each in report.below] == [("totals", "applied"), ("pairs", "applied")]
    assert "below it, totals epoch 1 applied, pairs epoch 1 applied" in report.sentence
    assert report.versions == {"view pairs": (None, 0)}
    assert "view pairs (name, k)" in top.explain()
    assert "view totals (k, n)" in pairs.explain()
    same(sandbox, pairs, middle)
    sandbox.sql("insert into {t} values (3, 4), (3, 4), (4, 1)")
    sandbox.sql("update {d} set name = 'pair' where n = 2")
    sandbox.sql("delete from {t} where k = 1 and v = 2")
    chained(sandbox, pairs, middle)
    sandbox.sql("delete from {t} where k = 2")
    chained(sandbox, pairs, middle)
    assert not top.current
    report = chained(sandbox, top, whole)
    assert top.current
    assert [each.verdict for each in report.below] == ["nothing to do", "nothing to do"]
    assert report.verdict == "applied"
    found = top.verify()
    assert found.ok
    assert set(found.versions) == {"pairs/t", "pairs/d"}  # of two paths below pairs to t, the first
    assert top.refresh(versions={"pairs/totals/t": 3}).verdict == "nothing to do"  # a longer one is understood
    assert top.history()[-1].versions["view pairs"][1] == pairs.history()[-1].epoch - 1


def test_paths_do_not_multiply_with_layers(sandbox: MemorySandbox) -> None:
    """Two views a layer, each of both below: there are 2^n paths to the table, and each view counts two of them."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2)])
    low, high = "t", "t"
    for layer in range(LAYERS):
        names = f"low{layer}", f"high{layer}"
        views = [
            sandbox.view(f"select a.k, a.v + b.v {sign} {layer} as v from {low} a join {high} b on a.k = b.k", name)
            for name, sign in zip(names, "+-", strict=True)
        ]
        for name, view in zip(names, views, strict=True):
            sandbox.warehouse.source(name, view)
        low, high = names
    top = views[0]
    top.refresh()
    assert len(pinned(top)) == 2
    sandbox.sql("insert into {t} values (3, 3)")
    report = top.refresh()
    assert len(report.below) == 2 * LAYERS - 2
    assert {each.verdict for each in report.below} == {"applied"}
    assert top.answer().count() == 3
    sandbox.sql("delete from {t} where k = 1")
    some, other = (f"{side}1/high0/t" for side in ("low", "high"))
    with pytest.raises(SourceError, match="requested at two versions"):
        top.refresh(versions={some: 1, other: 2})
    top.refresh(versions={some: 2, other: 2})
    assert {row.k for row in top.answer().collect()} == {2, 3}
    text = "select k, v low, v high from {t}"
    for layer in range(LAYERS):
        text = f"select k, low + high + {layer} low, low + high - {layer} high from ({text})"
    same(sandbox, top, f"select k, low v from ({text})")


def test_a_diamond_stands_at_one_version(sandbox: MemorySandbox) -> None:
    """Two views and their reader see the same rows of one table, though they know it by other names and paths."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2)])
    other = sandbox.opened("other")
    other.source("u", Delta(f"file:{sandbox.path('t')}/"))
    low = other.view("low", "select k, min(v) m from u group by k")
    high = sandbox.view("select k, max(v) m from t group by k", "high")
    sandbox.warehouse.source("lows", low)
    sandbox.warehouse.source("highs", high)
    query = "select t.k, t.v, h.m - l.m as width from t join highs h on t.k = h.k join lows l on l.k = t.k"
    view = sandbox.view(query)
    text = (
        "select t.k, t.v, h.m - l.m as width from {t} t join (select k, max(v) m from {t} group by k) h on t.k = h.k "
        "join (select k, min(v) m from {t} group by k) l on l.k = t.k"
    )
    for change in ("", "insert into {t} values (1, 5), (2, 2), (3, 0)"):
        if change:
            sandbox.sql(change)
            high.refresh()  # one side is ahead
            sandbox.sql("insert into {t} values (1, 7)")
        view.refresh()
        assert set(pinned(view)) == {"t", "lows/u", "highs/t"}
        assert len(set(pinned(view).values())) == 1
        latest = sandbox.read(text).collect()
        assert not difference(latest, view.answer().collect())
    assert view.refresh().verdict == "nothing to do"
    assert view.verify().ok


def test_changes_that_do_not_reach_the_answer_below(sandbox: MemorySandbox) -> None:
    """The view below writes its state anew, and nothing of it is seen above but the versions."""
    sandbox.source("t", "k int, v int", [(1, 1), (1, 3), (2, 3)])
    below = sandbox.view("select k, min(v) lo from t group by k", "below")
    sandbox.warehouse.source("below", below)
    view = sandbox.view("select lo, count(*) c from below group by lo")
    bag = sandbox.view("select lo + 1 x from below", "bag")
    for each in (view, bag):
        each.refresh()
    sandbox.sql("insert into {t} values (1, 8), (2, 4)")  # other row counts, same answers
    for each in (view, bag):
        report = each.refresh()
        assert (report.verdict, report.epoch, report.commits) == ("nothing to do", 1, 0)
        assert pinned(each) == {"below/t": 1}
    assert [report.epoch for report in below.history()] == [1, 2]
    sandbox.sql("optimize {t}")
    assert view.refresh().verdict == "nothing to do"
    assert pinned(view) == {"below/t": 2}
    sandbox.sql("insert into {t} values (2, 0)")
    chained(sandbox, view, "select lo, count(*) c from (select k, min(v) lo from {t} group by k) group by lo")


def test_versions_that_are_asked_for(sandbox: MemorySandbox) -> None:
    """Back to an epoch that the view below had, and a sentence where it had none."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2)])
    totals = sandbox.view(TOTALS, "totals")
    sandbox.warehouse.source("totals", totals)
    view = sandbox.view(BIG)
    text = f"select n, count(*) c, max(s) top from ({TOTALS.replace('from t', 'from {t}')}) group by n"
    for values in ("(1, 4)", "(3, 4)", "(3, 0)"):
        sandbox.sql(f"insert into {{t}} values {values}")
    for version in (0, 1, 3):
        chained(sandbox, view, text, versions={"t": version})
    assert chained(sandbox, view, text, versions={"totals/t": 1}).below[0].epoch == 2
    assert pinned(totals) == {"t": 3}
    with pytest.raises(SourceError, match=r"view totals: it is at t 3 and has no epoch at t 2, .* or refresh"):
        view.refresh(versions={"t": 2})
    totals.refresh(versions={"t": 2})
    chained(sandbox, view, text, versions={"t": 2})
    for versions, says in (
        ({"totals": 1}, r"view v: source totals is a view. Give the versions of what it reads \(t\)"),
        ({"u": 1}, "view v: it reads no source 'u'. Choose one of: totals/t"),
        ({"t": 9}, "source totals/t has no version 9: its latest is 3"),
    ):
        with pytest.raises(SourceError, match=says):
            view.refresh(versions=versions)


@night
def test_a_view_below_that_was_rebuilt(sandbox: MemorySandbox) -> None:
    """Its new table is handed on by its difference from the old one, as long as that is there."""
    sandbox.source("t", "k int, v int", [(1, 1), (1, 2), (2, 3)])
    views = {}

    def opened(query: str, policy: str = "incremental") -> View:
        warehouse = sandbox.opened()
        warehouse.source("t", Delta(sandbox.path("t")))
        views["totals"] = warehouse.view("totals", query)
        warehouse.source("totals", views["totals"])
        return warehouse.view(policy, BIG, policy)  # type: ignore[arg-type]

    text = f"select n, count(*) c, max(s) top from ({TOTALS.replace('from t', 'from {t}')}) group by n"
    policies = ("incremental", "definition")
    for policy in policies:
        chained(sandbox, opened(TOTALS, policy), text)
    views["totals"].rebuild()
    for policy in policies:
        assert opened(TOTALS, policy).refresh().verdict == "nothing to do"
    sandbox.sql("insert into {t} values (2, 4), (5, 5)")
    views["totals"].rebuild()
    for policy in policies:
        report = chained(sandbox, opened(TOTALS, policy), text)
        assert (report.generation, report.epoch) == (1, 2)
    changed = TOTALS.replace("sum(v)", "sum(v + 1)")
    with pytest.raises(ChangedQueryError, match="view totals: the query"):
        opened(changed).refresh()
    opened(changed)
    views["totals"].rebuild()
    text = text.replace("sum(v)", "sum(v + 1)")
    chained(sandbox, opened(changed), text)
    sandbox.sql("delete from {t} where k = 5")
    assert opened(changed).rebuild().generation == 2
    same(sandbox, opened(changed), text)
    drop_refused(views["totals"], "definition, incremental")
    views["totals"].drop(force=True)
    with pytest.raises(SourceError, match=r"source totals at .* created again, or .*. Rebuild the view incremental"):
        opened(changed).refresh()
    opened(changed).rebuild()
    views["totals"].rebuild()
    sandbox.remove("warehouse/views/totals/g1")
    with pytest.raises(SourceError, match="Rebuild the view incremental"):
        opened(changed).refresh()


def drop_refused(view: View, readers: str) -> None:
    with pytest.raises(StateError, match=rf"view {view.name} cannot be dropped: {readers} reads? it\. Drop {readers}"):
        view.drop()


def test_a_view_that_others_read_is_not_dropped(sandbox: MemorySandbox) -> None:
    """Its readers would be left with a sentence that their source is gone; who is asked to drop knows them by name."""
    sandbox.source("t", "k int, v int", [(1, 1)])
    totals = sandbox.view(TOTALS, "totals")
    sandbox.warehouse.source("totals", totals)
    view, beside = sandbox.view(BIG), sandbox.view("select k from t", "beside")
    drop_refused(totals, "v")  # which was declared here, and never refreshed
    view.refresh()
    beside.refresh()
    elsewhere = sandbox.opened()  # as another process has it
    elsewhere.source("t", Delta(sandbox.path("t")))
    DECLARED.clear()
    below = elsewhere.view("totals", TOTALS)
    drop_refused(below, "v")
    view.drop()
    below.drop()
    assert not (sandbox.folder / "warehouse" / "views" / "totals").exists()
    assert rows(beside) == [(1,)]
    totals.drop()


def test_a_wrong_view_below_is_seen_above(sandbox: MemorySandbox) -> None:
    """The batch query above stands on the batch query below, not on its table."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 3)])
    totals = sandbox.view("select k, v + 1 w from t", "totals")
    sandbox.warehouse.source("totals", totals)
    view = sandbox.view("select w from totals")
    view.refresh()
    sandbox.sql("update {totals} set w = 100 where k = 1", totals=totals.path)
    assert view.verify().ok
    assert rows(view) == [(2,), (4,)]
    assert not totals.verify().ok
    sandbox.sql("insert into {t} values (7, 7)")
    with pytest.raises(StateError, match=r"view totals: its table .* has rows that its journal does not know"):
        view.refresh()
    assert rows(view) == [(2,), (4,)]
    totals.rebuild()
    view.refresh()
    assert view.verify().ok


def test_a_view_that_reads_itself(sandbox: MemorySandbox) -> None:
    """Only by a trick; every honest view reads what was there before it."""
    sandbox.source("t", "k int, v int", [(1, 1)])
    first = sandbox.view("select k, v from t", "first")
    sandbox.warehouse.source("above", first)
    first.refresh()
    with pytest.raises(QueryError, match="view first: it reads itself, through above"):
        sandbox.view("select k, v from above", "first").refresh()
    with pytest.raises(SourceError, match="source above: it is the view first"):
        sandbox.warehouse.land("above")
    with pytest.raises(SourceError, match="declared twice"):
        sandbox.warehouse.source("above", first)
