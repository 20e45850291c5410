"""Upkeep stores a view whose buckets have become too large in more of them; whatever stops it, no row is lost."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest

from deltafold.algebra.errors import DeltafoldError
from deltafold.api import View
from deltafold.lake.delta_table import DeltaTable
from deltafold.store.snapshot import LastAnswer
from tests.crash.points import Killed, watched
from tests.night import every, night
from tests.sandbox import DeltaSandbox, MemorySandbox, checked, confirm

QUERIES = {
    "grouped": "select k, sum(v) s, max(v) m from t group by k",
    "bag": "select k, v from t where v > 1",
    "total": "select sum(v) s, count(*) c from t",
    "looped": """with recursive near(k, v) as (select k, 0 from t where k % 50 = 0
                 union select t.k, 1 from t join near on t.v = near.k) select k, v from near""",
}
MANY = [(k, k * 79 % 9973) for k in range(9973)]


def buckets(view: View) -> int:
    last = view.store.journal.last()
    assert last is not None
    return last.intent.buckets


def fullest(view: View) -> int:
    """The bytes of its largest table."""
    return max(size.bytes for size in view.status().tables.values())


@night
def test_a_view_whose_buckets_are_full_is_stored_in_more(delta: DeltaSandbox) -> None:
    """A view above it goes on; a total, whose one row is in one bucket, stays as it is."""
    delta.source("t", "k int, v int", MANY)
    grouped, total = (delta.view(QUERIES[name], name) for name in ("grouped", "total"))
    delta.warehouse.source("grouped", grouped)
    above = delta.view("select m % 10 d, sum(s) s from grouped group by m % 10", "above")
    for view in (above, total):
        view.refresh()
    delta.tune(full_bucket_bytes=fullest(grouped) // 2 + 1)
    done = grouped.maintain(0)
    assert done.grown is not None and done.grown.verdict == "rebucketed"
    assert done.sentence.startswith("grouped: epoch 1 of generation 1 in 4 buckets, as epoch 1 of generation 2, ")
    assert "; nothing to compact; " in done.sentence
    delta.tune(full_bucket_bytes=fullest(grouped) // 3)
    assert grouped.maintain(0).grown is None
    delta.tune(full_bucket_bytes=1)
    assert total.maintain(0).grown is None
    assert (buckets(grouped), buckets(total)) == (4, 1)
    delta.sql("delete from {t} where k % 3 = 0")
    delta.sql("insert into {t} values (1, 5), (77777, 3)")
    for view in (above, total):
        assert checked(view).verdict == "applied"
    confirm(grouped)


@night
def test_each_bucket_is_a_task_and_a_large_one_several_files(delta: DeltaSandbox) -> None:
    """Protects from buckets that share a task by the hash of their numbers, as both of two do."""
    delta.source("t", "k int, v int", MANY)
    grouped = delta.view(QUERIES["grouped"])
    grouped.refresh()
    delta.tune(file_bytes=fullest(grouped) // 8)
    grouped.rebucket(2)
    state = DeltaTable(delta.spark, grouped.path)
    ranges: dict[str, list[tuple[int, int]]] = {}
    for file in Path(state.path).glob("__bucket=*/*.parquet"):
        keys = [row.k for row in delta.spark.read.parquet(str(file)).select("k").collect()]
        assert keys == sorted(keys)
        ranges.setdefault(file.parent.name, []).append((keys[0], keys[-1]))
    assert len(ranges) == 2 and sum(map(len, ranges.values())) >= 6
    for parts in ranges.values():
        parts.sort()
        assert all(before[1] < after[0] for before, after in pairwise(parts))
    confirm(grouped)
    delta.tune(file_bytes=1 << 30)
    grouped.rebucket(5)
    with_rows = delta.spark.read.format("delta").load(grouped.path).selectExpr("spark_partition_id() p", "__bucket")
    assert with_rows.distinct().count() == 5
    assert LastAnswer(grouped.store).table.size()[0] == 5


@pytest.mark.parametrize("name", every(3, ["grouped", "bag", "looped"]))
def test_a_copy_that_is_killed_is_forgotten(sandbox: MemorySandbox, name: str) -> None:
    """At any write: the view goes on from the epoch that was to be copied, without computing it anew."""
    sandbox.source("t", "k int, v int", [(k, k % 5) for k in range(40)])
    view = sandbox.view(QUERIES[name])
    view.refresh()
    with watched() as run:
        view.rebucket(2)
    outcomes: list[bool] = []
    for number in range(len(run.passed)):
        before = view.status().generation
        with watched(number), pytest.raises(Killed):
            view.rebucket(3)
        copied = view.status().generation != before
        sandbox.sql(f"insert into {{t}} values ({number}, 50), (50, {number})")
        report = checked(view)
        assert (report.verdict, report.generation) == ("applied", view.status().generation)
        assert buckets(view) == (3 if copied else 2)
        outcomes.append(copied)
        view.maintain(0)
        if copied:
            view.rebucket(2)
    assert outcomes == sorted(outcomes) and {*outcomes} == {False, True}


@night
def test_a_copy_that_fails_leaves_the_view_as_it_was(delta: DeltaSandbox) -> None:
    """As of a full disk, after one of its tables was written."""
    delta.source("t", "k int, v int", [(k, k % 50) for k in range(100)])
    view = delta.view("select a.k, count(*) c from t a join (select distinct v from t) b on a.k = b.v group by a.k")
    view.refresh()
    append, calls = DeltaTable.append, 0

    def fail(self: DeltaTable, *given: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise DeltafoldError("No space left on device. Free some space and try again.")
        return append(self, *given)  # type: ignore[arg-type]

    with mock.patch.object(DeltaTable, "append", fail), pytest.raises(DeltafoldError, match=r"try again\.$"):
        view.rebucket(3)
    assert view.status().unfinished is None
    delta.sql("delete from {t} where k = 7")
    report = checked(view)
    assert (report.verdict, report.generation, report.epoch) == ("applied", 1, 2)
    assert view.rebucket(3).generation == 3
    assert 2 in view.maintain(0).generations
    checked(view)


def test_a_killed_copy_stops_neither_upkeep_nor_another_copy(sandbox: MemorySandbox) -> None:
    """Protects from a nightly `maintain` that fails until somebody refreshes, after a crash of the one before."""
    sandbox.source("t", "k int, v int", [(k, k) for k in range(9)])
    view = sandbox.view(QUERIES["grouped"])
    view.refresh()
    for work in (lambda: view.maintain(0), lambda: view.rebucket(2)):
        with watched(("after MemoryLog.advance", 1)), pytest.raises(Killed):
            view.rebucket(5)
        assert view.status().unfinished == 1
        work()
        assert view.status().unfinished is None
        confirm(view)
