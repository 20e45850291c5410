"""A changed query takes over the states that it has in common with the one before: equal, and nothing read twice."""

from __future__ import annotations

from typing import Any

import pytest

from deltafold.api import View
from deltafold.refresh.stages import program_run
from tests.night import every
from tests.sandbox import MemorySandbox, checked, confirm, rows

GROUPED = "select k, sum(v) s, max(v) m from t group by k"
NESTED = "select m, count(*) n from (select k, max(v) m from t group by k) q group by m"


@pytest.fixture
def sold(sandbox: MemorySandbox) -> MemorySandbox:
    sandbox.source("t", "k int, v int", [(k, k + v) for k in range(5) for v in range(4)])
    return sandbox


def changed(sandbox: MemorySandbox, query: str, **options: Any) -> View:
    return sandbox.view(query, on_change="rebuild", **options)


TAKEN = {
    "to a table of its own": (GROUPED, f"{GROUPED} having sum(v) > 12"),
    "another filter": (f"{GROUPED} having sum(v) > 12", f"{GROUPED} having sum(v) > 20"),
    "another group-by above": (NESTED, "select m, sum(k) n from (select k, max(v) m from t group by k) q group by m"),
    "other columns": (f"{GROUPED} having sum(v) > 12", "select s + m as both from (" + GROUPED + ") q"),
    "nothing above": (NESTED, "select k, max(v) m from t group by k"),
    "a total": ("select count(*) n from t", "select count(*) + 1 n from t"),
}


@pytest.mark.parametrize("case", every(6, TAKEN))
def test_a_state_is_taken_over(sold: MemorySandbox, case: str) -> None:
    """Where the sources stand still there is one epoch, which reads no source."""
    old, new = TAKEN[case]
    checked(sold.view(old))
    report = checked(changed(sold, new))
    assert (report.verdict, report.generation, report.epoch) == ("rebuilt", 2, 1)
    assert report.paths["state_1"] == "reused" and "state_1 reused" in report.sentence
    sold.sql("delete from {t} where k = 3 and v > 4")
    sold.sql("insert into {t} values (1, 100), (9, 9)")
    assert checked(changed(sold, new)).verdict == "applied"


def test_what_came_since_is_an_epoch_of_its_own(sold: MemorySandbox) -> None:
    """The state is of the versions it was built at; the report tells of both epochs and of what changed."""
    checked(sold.view(GROUPED))
    sold.sql("insert into {t} values (1, 100)")
    sold.sql("delete from {t} where k = 2 and v = 5")
    view = changed(sold, f"{GROUPED} having sum(v) > 12")
    report = checked(view)
    assert (report.verdict, report.generation, report.epoch) == ("applied", 2, 2)
    assert "before it, epoch 1 was rebuilt, state_1 reused" in report.sentence and report.because
    epochs = view.history()[-2:]
    assert [(each.verdict, each.paths.get("state_1")) for each in epochs] == [
        ("rebuilt", "reused"),
        ("applied", "rewrite"),
    ]
    assert (report.jobs, report.commits) == (sum(each.jobs for each in epochs), sum(each.commits for each in epochs))


def test_a_join_with_a_source_that_was_not_read_before(sold: MemorySandbox) -> None:
    """The state is taken over where it stood, the new source as it is now; then both go on."""
    checked(sold.view(GROUPED))
    sold.source("u", "k int, name string", [(1, "one"), (7, "seven")])
    sold.sql("insert into {u} values (2, 'two')")
    sold.sql("insert into {t} values (1, 100)")
    view = changed(sold, f"select q.*, name from ({GROUPED}) q left join u on q.k = u.k")
    report = checked(view)
    assert (report.verdict, report.generation, report.epoch) == ("applied", 2, 2)
    assert "state_1 reused" in report.sentence
    sold.sql("delete from {t} where k = 2")
    sold.sql("update {u} set k = 3 where k = 7")
    assert checked(view).epoch == 3


def test_a_crash_between(sold: MemorySandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun where the old generation stood ends there; then the rest follows."""
    checked(sold.view(GROUPED))
    sold.sql("insert into {t} values (1, 100)")
    view = changed(sold, f"{GROUPED} having sum(v) > 12")
    before = rows(sold.view(GROUPED))
    with monkeypatch.context() as crash:
        crash.setattr(program_run.Run, "_view", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            view.refresh()
    assert rows(view) == before
    report = view.refresh()
    assert (report.verdict, report.generation, report.epoch) == ("applied", 2, 2)
    confirm(view)


def test_what_is_not_taken_over(sold: MemorySandbox) -> None:
    """Another state, another setting, a rebuild of the same query (which may be a repair), another table."""
    checked(sold.view(GROUPED))
    report = checked(changed(sold, GROUPED.replace("max", "min")))
    assert report.paths == {"state_1": "first load"}
    assert sold.view(GROUPED.replace("max", "min")).rebuild().paths == {"state_1": "first load"}
    zone = sold.spark.conf.get("spark.sql.session.timeZone")
    sold.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        report = checked(changed(sold, f"{GROUPED.replace('max', 'min')} having sum(v) > 12"))
    finally:
        sold.spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
    assert report.paths["state_1"] == "first load"


def test_where_the_old_version_has_not_what_is_read(sold: MemorySandbox) -> None:
    """A column that came since, for another state; and versions whose files are gone: all is loaded at the new ones."""
    inner = "(select k, max(v) m from t group by k)"
    checked(sold.view(f"select m, count(*) n from {inner} q group by m"))
    sold.sql("alter table {t} add column w int")
    sold.sql("insert into {t} values (1, 2, 3)")
    sold.warehouse = sold.opened()
    sold.declare("t")
    report = checked(changed(sold, f"select q.m, t.w from {inner} q join t on t.k = q.k"))
    assert (report.verdict, report.epoch, report.paths["state_1"]) == ("rebuilt", 1, "first load")


def test_a_part_of_a_query_over_files_that_are_gone(sold: MemorySandbox) -> None:
    """One state is there, for the other the source would have to be read at a version that was vacuumed."""
    inner = "(select k, max(v) m from t group by k)"
    checked(sold.view(f"select m, count(*) n from {inner} q group by m"))
    sold.insert("t", "k int, v int", [(1, 5), (3, 3)], mode="overwrite")
    sold.vacuum("t")
    report = checked(changed(sold, f"select m, count(*) n, sum(k) s from {inner} q group by m"))
    assert (report.verdict, report.epoch, report.paths["state_1"]) == ("rebuilt", 1, "first load")
