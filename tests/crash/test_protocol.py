"""What a crash, a failure or a lost file may leave behind, and that the next refresh is not misled by it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import ChangedQueryError, DeltafoldError, SourceError, StateError
from deltafold.refresh.stages import program_run
from tests.crash.crash_sandbox import GROUPED, CrashSandbox
from tests.crash.points import Point, watched
from tests.crash.stages import STAGES, begun, changed, stop_when, stopped
from tests.lake.memory.table import MemoryLake
from tests.night import night

RATIO = "select k, sum(100 div (v - 1000)) s from orders group by k"


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> CrashSandbox:
    return CrashSandbox(spark, tmp_path, "one state in place", MemoryLake()).create()


def test_a_failed_refresh_leaves_nothing_to_resume(world: CrashSandbox) -> None:
    """Protects from a bad row that, once pinned, fails every refresh to come although it was corrected."""
    view = world.view(RATIO)
    view.refresh()
    world.sql("insert into {orders} values (1, 1, 1000, 1)")
    with pytest.raises(DeltafoldError, match="DIVIDE_BY_ZERO"):
        view.refresh()
    assert view.verify().ok
    world.sql("delete from {orders} where v = 1000")
    assert view.refresh().verdict in ("applied", "nothing to do")
    assert view.verify().ok


def test_a_failure_between_two_tables_is_taken_back(world: CrashSandbox) -> None:
    """Protects from an epoch that can neither be finished nor forgotten."""
    nested = "select q, sum(100 div (m - 5000)) s from (select q, k, max(v) m from orders group by q, k) group by q"
    view = world.view(nested)
    view.refresh()
    world.sql("insert into {orders} values (1, 1, 5000, 1)")
    with pytest.raises(DeltafoldError, match="DIVIDE_BY_ZERO"):
        view.refresh()
    assert [report.verdict for report in view.history()] == ["applied", "taken back"]
    world.sql("delete from {orders} where v = 5000")
    view.refresh()
    assert view.verify().ok


def test_a_resume_does_not_read_another_table_of_the_same_name(world: CrashSandbox) -> None:
    """Protects from pinned versions being read from a source that was dropped and created again after the crash."""
    changed(world)
    stopped(world, STAGES["change"], 1)
    shutil.rmtree(world.orders)
    world.create()
    for _ in range(4):
        world.sql("insert into {orders} values (7, 7, 7, 7)")
    with pytest.raises(SourceError, match="created again"):
        world.view().refresh()
    assert len(world.view().history()) == 1
    world.view().rebuild()
    assert world.answer() == world.batch()


def test_a_lost_journal_file_is_noticed(world: CrashSandbox) -> None:
    """Protects from Delta's silent skip: tables that carry an epoch's mark take no second write of that epoch."""
    changed(world)
    world.view().refresh()
    sorted(world.journal.glob("g*"))[-1].unlink()
    world.change(2)
    for _ in range(2):
        with pytest.raises(StateError, match="Rebuild the view"):
            world.view().refresh()
    world.view().rebuild()
    assert world.answer() == world.batch()


def test_a_view_without_its_journal_can_be_rebuilt(world: CrashSandbox) -> None:
    """Protects from a rebuild into tables that are there already, whose marks would have Delta skip its writes."""
    changed(world)
    world.view().refresh()
    shutil.rmtree(world.journal)
    with pytest.raises(StateError, match="Rebuild the view"):
        world.view().refresh()
    world.change(2)
    assert world.view().rebuild().verdict == "rebuilt"
    assert world.answer() == world.batch()


def test_compaction_of_the_tables_between_epochs_is_no_reason_to_stop(world: CrashSandbox) -> None:
    """Protects from taking any foreign commit for a lost epoch."""
    begun(world)
    world.sql("optimize {v}", v=world.view().path)
    world.change()
    assert world.view().refresh().verdict == "applied"
    assert world.answer() == world.batch()


@night
def test_compaction_of_the_tables_before_a_resume_is_no_reason_to_stop(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from a resumed epoch that reads its own state at the wrong version."""
    world = CrashSandbox(spark, tmp_path, "two nested states", MemoryLake()).create()
    changed(world)
    stop_when(world, lambda point: point.written)
    for state in ("state_1", "state_2"):
        world.sql("optimize {state}", state=f"{world.journal.parent}/g1/{state}")
    assert world.view().refresh().verdict == "resumed"
    assert world.answer() == world.batch()


@night
def test_versions_may_go_back_and_forth(world: CrashSandbox) -> None:
    """Protects from a change whose inverse is not its opposite."""
    changed(world)
    view = world.view()
    view.refresh()
    assert view.refresh({"orders": 0}).versions["orders"][1] == 0
    assert view.verify().ok
    view.refresh()
    assert world.answer() == world.batch()


def test_versions_that_do_not_exist_are_refused(world: CrashSandbox) -> None:
    """Protects from a misspelt source that is silently refreshed to its latest version, and from a stuck epoch."""
    begun(world)
    for name, version, says in (
        ("oders", 1, "reads no source 'oders'"),
        ("orders", -1, "no version -1"),
        ("orders", 99, "no version 99"),
    ):
        with pytest.raises(SourceError, match=says):
            world.view().refresh({name: version})
        assert world.view().refresh().verdict == "nothing to do"


@night
def test_a_resume_above_does_not_see_what_went_on_below(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from an epoch that ends with another answer of the view below than it began with."""
    world = CrashSandbox(spark, tmp_path, "view over a view", MemoryLake()).create()
    changed(world)
    written: list[Point] = []

    def second(point: Point) -> bool:
        if point.written:
            written.append(point)
        return len(written) == 2

    stop_when(world, second)
    assert world.unfinished
    world.change(2)
    low = world.view().catalog.views["low"]
    low.refresh()
    low.rebuild()
    world.change(3)
    report = world.view().refresh()
    assert "before it, epoch 2 was resumed" in report.sentence
    assert [(each.view, each.generation, each.epoch) for each in report.below] == [("low", 2, 2)]
    assert world.answer() == world.batch()
    assert world.view().verify().ok


def test_sources_are_written_while_a_refresh_runs(world: CrashSandbox) -> None:
    """Protects from reading what came after the versions were pinned, and from passing over it later."""
    changed(world)
    pinned = world.sandbox.table("orders").version()

    def write() -> None:
        world.sql("insert into {orders} values (1, 1, 1000, 1)")
        world.sql("delete from {orders} where k = 2")

    with watched(("before MemoryLog.advance", 1), write):
        assert world.view().refresh().versions["orders"][1] == pinned
    assert world.answer() == world.batch(pinned)
    world.view().refresh()
    assert world.answer() == world.batch() != world.batch(pinned)


@night
def test_two_views_of_one_warehouse_do_not_meet(world: CrashSandbox) -> None:
    """Protects from marks, locks or journals shared between views."""
    other = world.view().warehouse.view("w", RATIO)
    other.refresh()
    changed(world)
    stop_when(world, lambda point: point.written)
    assert other.refresh().verdict == "applied"
    assert world.view().refresh().verdict == "resumed"
    assert other.verify().ok
    assert world.answer() == world.batch()


@night
def test_a_view_is_the_same_from_another_folder(
    world: CrashSandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Protects from a lock, a journal or a mark that depends on how the warehouse's path is written."""
    changed(world)
    stop_when(world, lambda point: point.written)
    monkeypatch.chdir(tmp_path)
    relative = CrashSandbox(world.spark, Path("warehouse/.."), world.kind, world.sandbox.lake)
    relative.orders = world.orders
    assert relative.view().refresh().verdict == "resumed"
    assert world.answer() == world.batch()


def test_a_first_epoch_is_not_resumed_in_other_tables(world: CrashSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a state without the answer's columns being taken for the answer, once it is published in place."""
    warehouse = world.warehouse()
    with monkeypatch.context() as failing, pytest.raises(ZeroDivisionError):
        failing.setattr(program_run.Run, "_view", lambda run: 1 / 0)
        warehouse.view("v", GROUPED, publish="table").refresh()
    with pytest.raises(ChangedQueryError, match="view v: other tables than before"):
        warehouse.view("v", GROUPED).refresh()
    assert warehouse.view("v", GROUPED, on_change="rebuild").refresh().generation == 2
    assert warehouse.view("v", GROUPED).verify().ok
