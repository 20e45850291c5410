"""Back to an earlier epoch and forward again; and branches, which begin where a view stands and go their own way."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from deltafold.algebra.errors import BusyError, ChangedQueryError, SourceError, StateError, UsageError
from deltafold.lake.durable import LocalRecords
from tests.sandbox import MemorySandbox, checked, confirm, rows

QUERY = "select k, sum(v) s, min(v) lo from t group by k"


def test_back_and_forward_again(sandbox: MemorySandbox) -> None:
    sandbox.source("t", "k int, v int", [(1, 1), (1, 1), (2, 2)])
    grouped = sandbox.view(QUERY)
    bag = sandbox.view("select k, v from t where v > 0", "bag")
    answers = {}
    for epoch, change in enumerate(["", "insert into {t} values (1, 1), (2, 5)", "delete from {t} where k = 2"], 1):
        if change:
            sandbox.sql(change)
        for view in (grouped, bag):
            view.refresh()
            answers[view.name, epoch] = rows(view)
    for view in (grouped, bag):
        report = view.rollback(2)
        assert (report.verdict, report.generation, report.epoch) == ("rolled back", 2, 1)
        assert rows(view) == answers[view.name, 2]
        confirm(view)
        assert view.verify().ok
        report = checked(view)
        assert (report.generation, report.epoch, report.verdict) == (2, 2, "applied")
    sandbox.sql("insert into {t} values (1, 1), (1, 1), (2, 5)")
    for view in (grouped, bag):
        checked(view)
    sandbox.sql("delete from {t} where k = 1")  # of a bag, all copies: old, copied and new ones
    for view in (grouped, bag):
        checked(view)
        assert view.rollback(1, generation=1).generation == 3
        assert rows(view) == answers[view.name, 1]
        checked(view)


def test_what_cannot_be_gone_back_to(sandbox: MemorySandbox) -> None:
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2)])
    view = sandbox.view(QUERY)
    with pytest.raises(StateError, match="no finished epoch yet"):
        view.rollback(1)
    view.refresh()
    for wrong in ({"epoch": "1"}, {"epoch": None}, {"epoch": 1, "generation": "1"}):
        with pytest.raises(UsageError, match=r"view v: (epoch|generation) ('1'|None) is not a number\. Give one"):
            view.rollback(**cast(Any, wrong))
    for work in (view.rebucket, view.maintain):
        with pytest.raises(UsageError, match="'4'"):
            work(cast(Any, "4"))
    with pytest.raises(StateError, match=r"is at epoch 1 of generation 1 already\. It has no earlier one\."):
        view.rollback(1)
    for value in (3, 4):
        sandbox.sql(f"insert into {{t}} values (1, {value})")
        view.refresh()
    with pytest.raises(StateError, match=r"no finished epoch 9 of generation 1. .*\(generation 1 has 1, 2, 3\)"):
        view.rollback(9)
    with pytest.raises(StateError, match=r"is at epoch 3 of generation 1 already. .* \(generation 1 has 1, 2, 3\)"):
        view.rollback(3)
    with pytest.raises(
        ChangedQueryError, match=r"view v: the query.* changed .*. To go back to epoch 1 of generation 1, restore"
    ):
        sandbox.view(QUERY.replace("sum(v)", "sum(v + 1)")).rollback(1)
    view.maintain(0)
    for asked in (view, sandbox.view(QUERY.replace("sum(v)", "sum(v + 1)"))):  # restoring a query would not help
        with pytest.raises(StateError, match="view v: the files of epoch 1 of generation 1 were removed"):
            asked.rollback(1)
    assert view.refresh().verdict == "nothing to do"


def test_back_to_a_view_below_whose_generation_is_gone(sandbox: MemorySandbox) -> None:
    """The sentence told of a table that was created anew (an hour's soak found it)."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2)])
    low = sandbox.view(QUERY, "low")
    sandbox.warehouse.source("low", low)
    high = sandbox.view("select count(*) n, max(s) top from low", "high")
    high.refresh()
    low.rebuild()
    sandbox.sql("insert into {t} values (1, 3)")
    high.refresh()
    assert "generation 1 removed" in str(low.maintain(0).sentence)
    with pytest.raises(StateError, match="view high: the files of epoch 1 of generation 1 were removed"):
        high.rollback(1)


def test_back_to_versions_that_were_vacuumed(sandbox: MemorySandbox) -> None:
    """The view can go back, since its own files are there; that the way forward may be closed is said at once."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2)])
    view = sandbox.view(QUERY)
    checked(view)
    before = rows(view)
    sandbox.insert("t", "k int, v int", [(1, 5), (3, 3)], mode="overwrite")
    checked(view)
    sandbox.vacuum("t")
    report = view.rollback(1)
    assert rows(view) == before
    assert report.sentence.endswith(
        "; files of version 0 of source t are gone: a refresh that reads them is refused until the view is rebuilt"
    )
    with pytest.raises(SourceError, match="Rebuild the view"):
        view.refresh()
    view.rebuild()
    confirm(view)


def test_a_branch_goes_its_own_way(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2)])
    view = sandbox.view("select k, v from t where v > 0", "original")
    view.refresh()
    sandbox.sql("insert into {t} values (1, 7), (1, 1)")
    view.refresh()
    dev = view.branch("dev")
    assert rows(dev) == rows(view)
    assert [report.verdict for report in dev.history()] == ["branched"]
    with pytest.raises(StateError, match="view dev: it exists already"):
        view.branch("dev")
    before = rows(view)
    sandbox.sql("insert into {t} values (2, 9), (1, 1)")
    assert checked(dev).epoch == 3
    assert rows(view) == before
    sandbox.sql("delete from {t} where k = 2")  # the original writes its file anew and removes the old one
    view.refresh()
    assert "branch dev" in view.maintain(0).tables["view"].kept[0]
    sandbox.sql("delete from {t} where k = 1")
    checked(dev)
    changed = sandbox.view("select count(*) n from t", "dev")
    changed.rebuild()
    confirm(changed)
    with pytest.raises(StateError, match=r"view original: .* branches .* Drop dev first"):
        view.drop()
    changed.drop()
    checked(view)
    sandbox.tune(lock_seconds=0.1)
    records = LocalRecords(Path(view.path).parents[1])
    with records.lock("view original", "refreshed", 1), pytest.raises(BusyError, match="original"):
        view.drop()
    view.drop()
    view.drop()
