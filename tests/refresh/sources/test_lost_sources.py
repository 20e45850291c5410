"""A source lost what the last epoch read of it: with `on_lost: rebuild` the view is rebuilt without a person."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deltafold.algebra.errors import (
    ChangedQueryError,
    DeltafoldWarning,
    EvaluationError,
    LostSourceError,
    SourceError,
    UsageError,
)
from deltafold.api import Delta, Files, View
from deltafold.refresh import incremental_refresh
from tests.night import night, sampled
from tests.sandbox import MemorySandbox, checked, confirm, rows

QUERY = "select k, count(*) n, sum(v) s from t group by k"
REBUILT = "is rebuilt, as on_lost asks for"


def make_again(sandbox: MemorySandbox) -> None:
    """Drop the source, and create it again with more versions than it had."""
    sandbox.remove("t")
    for value in (7, 8, 9):
        sandbox.insert("t", "k int, v int", [(value, value)])


def restore_copy(sandbox: MemorySandbox) -> None:
    """Bring a copy back that was made before the last epoch's version."""
    shutil.rmtree(sandbox.path("t"))
    shutil.copytree(sandbox.folder / "copy", sandbox.path("t"))


def vacuum(sandbox: MemorySandbox) -> None:
    """Replace all rows, and remove the files of the version of the last epoch."""
    sandbox.insert("t", "k int, v int", [(2, 5), (3, 3)], mode="overwrite")
    sandbox.vacuum("t")


LOSSES: dict[str, Callable[[MemorySandbox], None]] = {
    "made again": make_again,
    "restored from a copy": restore_copy,
    "vacuumed": vacuum,
}


def filled(sandbox: MemorySandbox) -> None:
    """The source in two versions, and a copy of the first."""
    sandbox.source("t", "k int, v int", [(1, 1)])
    shutil.copytree(sandbox.path("t"), sandbox.folder / "copy")
    sandbox.insert("t", "k int, v int", [(2, 2)])


def interrupt(view: View, patch: pytest.MonkeyPatch) -> None:
    """Let a refresh of the view end as if it was killed, once its intent is written."""
    with patch.context() as failing:
        failing.setattr(incremental_refresh.Incremental, "run", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            view.refresh()


@pytest.mark.parametrize("loss", sampled(LOSSES, lambda loss: loss == "vacuumed"))
def test_what_is_lost_is_rebuilt(
    sandbox: MemorySandbox, loss: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only where that was asked for; it is said in the report, the history, the metrics and the events."""
    monkeypatch.setenv("DELTAFOLD_METRICS", str(tmp_path))
    filled(sandbox)
    checked(sandbox.view(QUERY))
    LOSSES[loss](sandbox)
    with pytest.raises(LostSourceError):
        sandbox.view(QUERY).refresh()
    view = sandbox.view(QUERY, on_lost="rebuild")
    with caplog.at_level(logging.INFO, "deltafold"), pytest.warns(DeltafoldWarning, match=REBUILT):
        report = view.refresh()
    confirm(view)
    assert (report.verdict, report.generation, report.because) == ("rebuilt", 2, (report.lost,))
    assert report.lost.startswith(("source t at", "source t (version", "Delta table"))
    assert "a source lost what the last epoch read" in report.sentence
    events = {record.getMessage(): record.fields for record in caplog.records}  # type: ignore[attr-defined]
    assert events["source lost"]["view"] == "v" and events["refresh finished"]["lost"] == report.lost
    sandbox.insert("t", "k int, v int", [(2, 20)])
    assert checked(view).verdict == "applied"
    assert [bool(each.lost) for each in view.history()] == [False, True, False]
    (metrics,) = tmp_path.glob("*.view.prom")
    (losses,) = (line for line in metrics.read_text().split("\n") if line.startswith("deltafold_losses{"))
    assert losses.endswith(" 1.0")


def test_the_old_answer_stays_until_the_new_one_is_complete(
    sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch before was interrupted, and so is the rebuild; the report of what finishes it has the loss, too."""
    filled(sandbox)
    view = sandbox.view(QUERY, on_lost="rebuild")
    checked(view)
    before = rows(view)
    sandbox.insert("t", "k int, v int", [(4, 4)])
    interrupt(view, monkeypatch)
    make_again(sandbox)
    with pytest.warns(DeltafoldWarning, match=REBUILT):
        interrupt(view, monkeypatch)
    assert rows(view) == before
    report = checked(view)
    assert (report.verdict, report.generation) == ("resumed", 2)
    assert "was dropped and created again" in report.lost
    assert rows(view) == [(7, 1, 7), (8, 1, 8), (9, 1, 9)]


def test_what_a_rebuild_does_not_heal(sandbox: MemorySandbox) -> None:
    """A table that is gone, files of the present version, a query that fails: the error is as ever."""
    filled(sandbox)
    view = sandbox.view("select k, sum(10 div v) s from t group by k", on_lost="rebuild")
    checked(view)
    before = rows(view)
    shutil.move(sandbox.path("t"), sandbox.folder / "away")
    with pytest.raises(SourceError, match="source t is gone"):
        view.refresh()
    shutil.move(sandbox.folder / "away", sandbox.path("t"))
    vacuum(sandbox)
    table = sandbox.table("t")
    present = [path for path, _ in table.files(table.version() or 0)]
    sandbox.tables.log.discard(present)
    advice = r"source t at .*/t: its version 2 lacks the file .*/t/.*, which a rebuild .* Bring the file back, or write"
    for attempt in (view.refresh, view.rebuild, sandbox.view(view.query).refresh):
        with pytest.raises(SourceError, match=advice) as error:
            attempt()
        assert not isinstance(error.value, LostSourceError)
    assert rows(view) == before
    make_again(sandbox)
    sandbox.insert("t", "k int, v int", [(1, 0)])
    with pytest.warns(DeltafoldWarning, match=REBUILT), pytest.raises(EvaluationError):
        view.refresh()
    assert rows(view) == before and len(view.history()) == 1
    changed = sandbox.view("select k, sum(11 div v) s from t group by k", on_lost="rebuild")
    with pytest.raises(Exception, match="the query, or a column that it reads, changed"):
        changed.refresh()
    with pytest.raises(UsageError, match=r"unknown on_lost 'ignore'\. Use refuse or rebuild"):
        sandbox.view(QUERY, on_lost="ignore")


@pytest.mark.parametrize("type_", sampled(["bigint", "smallint", "string"], lambda type_: type_ == "string"))
def test_a_table_made_again_with_another_type(sandbox: MemorySandbox, type_: str) -> None:
    """That it is another table decides, and not that a type changed: `on_change` has no part in it."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2)])
    query = "select count(*) n, sum(s) s from (select k, sum(v) s from t group by k)"
    checked(sandbox.view(query))
    sandbox.remove("t")
    key = "7" if type_ == "string" else 7
    for value in (7, 8):
        sandbox.insert("t", f"k {type_}, v int", [(key, value)])
    retyped = f"Besides, column k of source t changed from int to {type_}"
    for on_change in ("refuse", "rebuild"):
        with pytest.raises(LostSourceError, match=rf"was dropped and created again.* Rebuild the view v\. {retyped}\."):
            sandbox.view(query, on_change=on_change).refresh()
    with pytest.raises(ChangedQueryError, match="column k of source t changed"):
        sandbox.view(f"{query} having n > 0", on_lost="rebuild").refresh()
    view = sandbox.view(query, on_lost="rebuild")
    with pytest.warns(DeltafoldWarning, match=REBUILT):
        report = checked(view)
    assert (report.verdict, report.generation, report.because) == ("rebuilt", 2, (report.lost,))
    assert retyped in report.lost
    sandbox.insert("t", f"k {type_}, v int", [(key, 9)])
    assert (checked(view).verdict, rows(view)) == ("applied", [(1, 24)])


def test_each_view_of_a_chain_decides_for_its_own_sources(sandbox: MemorySandbox) -> None:
    """The one that reads the lost table is rebuilt; the ones above take the difference of its answers in."""
    filled(sandbox)
    sandbox.insert("u", "k int, w int", [(1, 1), (7, 7)])

    def chained(on_lost: Any) -> View:
        warehouse = sandbox.opened()
        for name in ("t", "u"):
            warehouse.source(name, Delta(sandbox.path(name)))
        warehouse.source("below", warehouse.view("below", QUERY, on_lost=on_lost))
        return warehouse.view("above", "select b.s, u.w from below b join u on b.k = u.k", on_lost="rebuild")

    above = chained("refuse")
    checked(above)
    make_again(sandbox)
    with pytest.raises(LostSourceError, match=r"source t at .* Rebuild the view below"):
        above.refresh()
    above = chained("rebuild")
    with pytest.warns(DeltafoldWarning, match="view below: it is rebuilt"):
        report = checked(above)
    assert (report.verdict, report.lost, report.below[0].verdict) == ("applied", "", "rebuilt")
    assert rows(above) == [(7, 7)]


@pytest.mark.parametrize(
    "at_once", [True, pytest.param(False, marks=night)], ids=["a run of all views", "the view above"]
)
def test_views_above_a_healed_one_follow(sandbox: MemorySandbox, *, at_once: bool) -> None:
    """The new table has fewer versions: epochs at the same versions of the old one are not asked for."""
    sandbox.source("t", "k int, v int", [(1, 1)])
    views = [sandbox.view(QUERY, "low", on_lost="rebuild")]
    for name, query in (("middle", "select max(s) m from low"), ("top", "select m + 1 n from middle")):
        sandbox.warehouse.source(views[-1].name, views[-1])
        views.append(sandbox.view(query, name))

    def refresh() -> None:
        if at_once:
            assert sandbox.warehouse.refresh().ok
        else:
            views[-1].refresh()

    for value in (2, 3):
        refresh()
        sandbox.insert("t", "k int, v int", [(value, value)])
    refresh()
    sandbox.remove("t")
    for value in (7, 8):
        sandbox.insert("t", "k int, v int", [(value, value)])
        if value == 7:
            with pytest.warns(DeltafoldWarning, match="view low: it is rebuilt"):
                refresh()
        else:
            refresh()
        for view in views:
            confirm(view)
        assert rows(views[-1]) == [(value + 1,)]


def test_a_landed_source_that_was_lost(sandbox: MemorySandbox, tmp_path: Path) -> None:
    """Its table and what was known of its files were removed: it is landed again, as another table."""
    folder = tmp_path / "dropped"
    folder.mkdir()
    (folder / "a.csv").write_text("k,v\n1,1\n2,2\n")
    sandbox.warehouse.source("t", Files(str(folder), "csv", "k int, v int"))
    sandbox.warehouse.land("t")
    view = sandbox.view(QUERY, on_lost="rebuild")
    checked(view)
    for part in ("sources", "landed"):
        shutil.rmtree(sandbox.folder / "warehouse" / part / "t")
    (folder / "b.csv").write_text("k,v\n2,3\n")
    sandbox.warehouse.land("t")
    with pytest.warns(DeltafoldWarning, match=REBUILT):
        assert checked(view).lost
    assert rows(view) == [(1, 1, 1), (2, 2, 5)]


def test_the_journals_of_earlier_releases(sandbox: MemorySandbox) -> None:
    """They know nothing of losses."""
    filled(sandbox)
    view = sandbox.view(QUERY, on_lost="rebuild")
    checked(view)
    (file,) = (sandbox.folder / "warehouse" / "views" / "v" / "journal").glob("g*-e*.json")
    content = json.loads(file.read_text())
    for field in ("lost", "losses"):
        del content["intent"][field]
    del content["report"]["lost"]
    file.write_text(json.dumps(content))
    sandbox.insert("t", "k int, v int", [(2, 2)])
    assert (checked(view).lost, view.history()[0].lost) == ("", "")
