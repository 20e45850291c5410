"""Changes that cancel out somewhere below the answer still finish their epoch."""

from __future__ import annotations

import pytest

from deltafold.refresh import full_recompute, incremental_refresh
from tests.night import every
from tests.sandbox import MemorySandbox, checked, confirm, rows

DISTINCT = "select q, count(distinct k) n from t group by q"


def test_inner_state_changes_but_the_answer_does_not(sandbox: MemorySandbox) -> None:
    """The outer state, with the answer in place, gets no commit, as no group of it changes; it is an epoch."""
    sandbox.source("t", "k int, q int", [(1, 1), (2, 1), (1, 2)])
    view = sandbox.view(DISTINCT)
    checked(view)
    sandbox.sql("insert into {t} values (1, 1)")
    report = checked(view)
    assert (report.verdict, report.epoch) == ("applied", 2)
    assert report.paths == {"state_1": "rewrite"}
    sandbox.sql("delete from {t} where k = 1 and q = 1")
    checked(view)
    assert rows(view) == [(1, 1), (2, 1)]


@pytest.mark.parametrize("policy", every(3, ["incremental", "auto", "definition"]))
def test_interrupted_epoch_of_a_compaction_is_finished(
    sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """An epoch that was begun and then turns out to change nothing must not stay unfinished for ever."""
    query = "select q, min(k) lo from t group by q" if policy == "incremental" else "select k from t order by k limit 2"
    sandbox.source("t", "k int, q int", [(1, 1), (2, 1), (1, 2)])
    sandbox.insert("t", "k int, q int", [(5, 5)])
    view = sandbox.view(query, policy=policy)
    checked(view)
    sandbox.sql("optimize {t}")
    with monkeypatch.context() as crash:
        for room in (incremental_refresh.Incremental, full_recompute.FullRecompute):
            crash.setattr(room, "run", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            view.refresh()
    view.refresh()
    confirm(view)
    sandbox.sql("insert into {t} values (0, 1)")
    checked(view)
