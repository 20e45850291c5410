"""Upkeep: fewer files with the same rows and marks, sorted; nothing goes that a pinned version needs."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from deltafold.algebra.errors import StateError
from deltafold.api import Files, View
from deltafold.lake.delta_table import DeltaTable
from deltafold.lake.snapshot import Snapshot
from deltafold.lake.version_diff import file_difference
from tests.crash.points import Killed, Point, raise_killed, watched
from tests.night import night
from tests.sandbox import DeltaSandbox, checked, confirm, rows

QUERY = "select k, sum(v) s, min(v) lo from t group by k"
BUCKETS = 2


@pytest.fixture
def merged(delta: DeltaSandbox) -> None:
    """Even small tables are merged, and lie in several buckets."""
    delta.tune(rewrite_files=0, rewrite_touched_bytes=0, bucket_bytes=1, buckets=BUCKETS)


def table(view: View, name: str = "state_1") -> DeltaTable:
    return DeltaTable(view.warehouse.spark, str(Path(view.path).with_name(name)))


def contents(of: DeltaTable) -> list[tuple[object, ...]]:
    version = of.version()
    assert version is not None
    return sorted((tuple(row) for row in of.at(version).collect()), key=repr)


@night
def test_a_merged_state_is_compacted_and_sorted(
    delta: DeltaSandbox, merged: None, caplog: pytest.LogCaptureFixture
) -> None:
    delta.source("t", "k int, v int", [(k * 7 % 20, k) for k in range(20)])
    view = delta.view(QUERY)
    view.refresh()
    delta.sql("insert into {t} values " + ", ".join(f"({key}, 5)" for key in range(8)))
    view.refresh()
    state = table(view)
    before, stored, version = state.size()[0], contents(state), state.version()
    mark, fragmented = state.epoch("deltafold/v/state_1/1"), view.status().state.fragmented
    with caplog.at_level("INFO", "deltafold"):
        done = view.maintain(0)
    assert caplog.messages == ["upkeep begun", "upkeep finished"]
    assert (done.tables["state_1"].work, done.tables["state_1"].files) == ("sorted", (before, BUCKETS))
    assert before > BUCKETS
    assert (done.tables["state_1"].partitions, view.status().state.fragmented) == (fragmented, 0)
    assert contents(state) == stored
    assert state.epoch("deltafold/v/state_1/1") == mark == 2
    assert version is not None
    commits = state.commits(version, version + 1)
    assert commits is not None and [commit.compacts for commit in commits] == [True]
    for file in Path(state.path).glob("__bucket=*/*.parquet"):
        if file.name in {Path(path).name for path, _ in state.files(version + 1)}:
            keys = [row.k for row in delta.spark.read.parquet(str(file)).select("k").collect()]
            assert keys == sorted(keys)
    assert view.refresh().verdict == "nothing to do"
    assert view.maintain(0).tables["state_1"].work == "as it was"
    delta.sql("delete from {t} where k % 3 = 0")
    delta.sql("insert into {t} values (1, -5), (200, 1)")
    assert checked(view).verdict == "applied"


@night
def test_files_without_statistics_are_compacted(delta: DeltaSandbox, merged: None) -> None:
    """Nothing tells how many rows these have, so upkeep seemed to be another program that wrote to the view's state."""
    delta.source("t", "k int, v int", [(k, k) for k in range(20)])
    view = delta.view(QUERY)
    delta.spark.conf.set("spark.databricks.delta.stats.collect", "false")
    try:
        for key in range(3):
            view.refresh()
            delta.sql(f"insert into {{t}} values ({key}, 5)")
    finally:
        delta.spark.conf.unset("spark.databricks.delta.stats.collect")
    assert view.maintain(0).tables["state_1"].work == "sorted"
    assert checked(view).verdict == "applied"


@night
def test_a_compaction_is_not_read_as_a_change(delta: DeltaSandbox) -> None:
    """Neither of a source of others nor in a chain; what came before and after it is."""
    delta.source("t", "k int, v int", [(1, 1)])
    view = delta.view(QUERY)
    checked(view)
    delta.sql("insert into {t} values (1, 2)")
    delta.sql("optimize {t}")
    delta.sql("insert into {t} values (3, 3)")
    source = DeltaTable(delta.spark, delta.path("t"))
    found = file_difference(source, 0, 3)
    assert (len(found.added), found.insert_only) == (2, True)
    delta.sql("delete from {t} where v = 2")
    checked(view)
    assert rows(view) == [(1, 1, 1), (3, 3, 3)]
    delta.sql("optimize {t}")
    assert file_difference(source, 4, 5).empty
    delta.sql("alter table {t} set tblproperties ('delta.enableRowTracking' = 'true')")  # notes something of each file
    assert checked(view).verdict == "nothing to do"


def test_what_came_was_compacted_and_vacuumed(delta: DeltaSandbox) -> None:
    """The files that came are gone: the change is read from those that the compaction made of them."""
    delta.source("t", "k int, v int", [(1, 1)])
    view = delta.view(QUERY)
    checked(view)
    version = DeltaTable(delta.spark, delta.path("t")).version()
    delta.sql("insert into {t} values (1, 2)")
    delta.sql("insert into {t} values (3, 3)")
    table = DeltaTable(delta.spark, delta.path("t"))
    added = table.files(2).keys() - table.files(0).keys()
    delta.sql("optimize {t}")
    for path, _ in added:
        (Path(delta.path("t")) / path).unlink()
    assert version == 0
    checked(view)
    assert rows(view) == [(1, 3, 1), (3, 3, 3)]


@night
def test_what_a_view_above_stands_at_stays(delta: DeltaSandbox) -> None:
    delta.source("t", "k int, v int", [(1, 1), (1, 2), (2, 3)])
    totals = delta.view("select k, sum(v) s from t group by k", "totals")
    delta.warehouse.source("totals", totals)
    view = delta.view("select s, count(*) c from totals group by s")
    view.refresh()
    pinned = totals.address.version
    assert pinned is not None
    for value in (5, 6, 7):
        delta.sql(f"insert into {{t}} values ({value}, {value})")
        totals.refresh()
    done = totals.maintain(0).tables["state_1"]
    assert "view v" in done.kept[0]
    assert Snapshot(table(totals), pinned).is_readable
    totals.rebuild()
    assert totals.maintain(0).generations == ()
    assert view.refresh().verdict == "applied"
    assert view.verify().ok
    assert totals.maintain(0).generations == (1,)
    assert totals.verify().ok and view.verify().ok
    delta.sql("insert into {t} values (2, 8)")
    assert view.refresh().below[0].verdict == "applied"
    assert view.verify().ok


@night
def test_a_landed_source_keeps_what_its_views_stand_at(delta: DeltaSandbox) -> None:
    files = delta.folder / "dropped"
    delta.warehouse.source("t", Files(str(files), "csv", "k INT, v INT, day STRING", partition_by="day"))

    def drop(day: str, *values: int) -> None:
        folder = files / f"day={day}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rows.csv").write_text("k,v\n" + "".join(f"{value % 2},{value}\n" for value in values))
        delta.warehouse.land("t")

    drop("a", 1, 2, 3)
    views = [delta.view(QUERY, name) for name in ("slow", "quick")]
    for view in views:
        view.refresh()
    for value in (4, 5):
        drop("a", value)
        drop("b", value, 7)
    slow, quick = views
    quick.refresh()
    assert quick.maintain(0).tables["landed/t"].kept == ("files of version 0, which view slow reads",)
    assert slow.verify().ok
    assert slow.refresh().verdict == "applied"
    assert slow.verify().ok
    done = quick.maintain(0).tables["landed/t"]
    assert (done.kept, done.removed > 0) == ((), True)
    drop("a", 9)
    assert slow.refresh().verdict == "applied"
    assert slow.verify().ok


def test_upkeep_waits_for_an_interrupted_epoch(delta: DeltaSandbox) -> None:
    delta.source("t", "k int, v int", [(1, 1)])
    view = delta.view(QUERY)
    with pytest.raises(StateError, match=r"view v: no finished epoch yet. Refresh it first"):
        view.maintain()
    view.refresh()
    delta.sql("insert into {t} values (1, 2)")
    interrupt(view)
    with pytest.raises(StateError, match=r"view v: epoch 2 was interrupted. Refresh it first"):
        view.maintain()
    status = view.status()
    assert (status.epoch, status.unfinished, status.current) == (1, 2, False)
    assert (status.lag["t"].versions, status.lag["t"].rows) == (1, 1)
    assert status.state.files == 1 and status.state.bytes > 0 and status.answer is None
    view.refresh()
    assert (view.status().unfinished, view.status().current, view.status().verdict) == (None, True, "resumed")


def test_a_superseded_generation_stays_as_long_as_was_asked(delta: DeltaSandbox) -> None:
    delta.source("t", "k int, v int", [(1, 1)])
    view = delta.view("select k, v from t where v > 0")
    view.refresh()
    view.rebuild()
    old = Path(view.path).parents[1] / "g1"
    assert view.maintain().generations == ()
    assert old.exists()
    with mock.patch("deltafold.operations.upkeep.seconds_since", lambda _: 169.0 * 3600):
        assert view.maintain().generations == (1,)
    assert not old.exists()
    confirm(view)


@night
def test_a_part_of_an_hour_is_retained_as_a_whole_one(delta: DeltaSandbox) -> None:
    """Protects from Delta's rounding, which takes 0.4 hours for none."""
    delta.source("t", "k int, v int", [(1, 1), (2, 2)])
    view = delta.view(QUERY)
    view.refresh()
    delta.sql("update {t} set v = v + 1")
    view.refresh()
    assert view.maintain(0.4).tables["state_1"].removed == 0
    assert view.maintain(0).tables["state_1"].removed > 0
    confirm(view)


def interrupt(view: View) -> None:
    """A refresh that dies after it has written a table."""
    with watched() as run:
        reach = run.reach

        def stop(point: Point) -> None:
            reach(point)
            if point.written:
                raise_killed()

        run.reach = stop  # type: ignore[method-assign]
        with pytest.raises(Killed):
            view.refresh()
