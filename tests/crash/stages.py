"""Define the stages of crash tests: the preparation, the run that is stopped, and the checks afterwards.

After a crash of a refresh, readers must see the last finished epoch until the next refresh, which finishes the
interrupted epoch and applies later changes. After any other crash, readers must see the state before or after, and the
next attempt, or the next refresh, must succeed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deltafold.algebra.results.report import Report
from tests.crash.crash_sandbox import KINDS, CrashSandbox, Rows
from tests.crash.points import Killed, Point, Run, Stop, raise_killed, watched


@dataclass(frozen=True)
class Seen:
    """The rows that readers see, None before the first epoch, and the number of finished epochs."""

    rows: Rows | None
    finished: int


Check = Callable[[CrashSandbox, Seen, bool], object]
"""A world after a crash, what was seen before, and whether data arrives before the next refresh, or after it."""


@dataclass(frozen=True)
class Stage:
    """A preparation, the run that is stopped, and the check after it; kinds: to which it applies."""

    prepare: Callable[[CrashSandbox], None]
    run: Callable[[CrashSandbox], object]
    check: Check
    kinds: tuple[str, ...] = tuple(KINDS)


def seen(world: CrashSandbox) -> Seen:
    return Seen(world.answer() if world.finished else None, world.finished)


def begun(world: CrashSandbox) -> None:
    world.view().refresh()


def changed(world: CrashSandbox) -> None:
    begun(world)
    world.change()


def rewritten(world: CrashSandbox) -> None:
    begun(world)
    world.rewrite()


def half_way(world: CrashSandbox) -> None:
    """A crash in the middle of the second epoch: after its first table was written."""
    changed(world)
    stop_when(world, lambda point: point.written)


def lost(world: CrashSandbox) -> None:
    begun(world)
    world.make_again()


def lost_half_way(world: CrashSandbox) -> None:
    """What the interrupted epoch read is lost, too."""
    half_way(world)
    world.make_again()


def almost_there(world: CrashSandbox) -> None:
    """A crash when all tables are written, those of a view below too, and the journal lacks the last report alone."""
    changed(world)
    writes = iter(range(4 if KINDS[world.kind].below else 2, 0, -1))
    stop_when(world, lambda point: str(point).startswith("before Journal._write") and next(writes) == 1)


def lived(world: CrashSandbox) -> None:
    """A rebuilt view with several epochs."""
    begun(world)
    world.view().rebuild()
    for number in (1, 2):
        world.change(number)
        world.view().refresh()


def dropped(world: CrashSandbox) -> None:
    """Days that are landed; then one is corrected, one goes, and one comes."""
    world.drop(a=1, b=2)
    world.warehouse().land("dropped")
    world.drop(a=3, c=4)


def refresh(world: CrashSandbox) -> object:
    return world.view().refresh()


def split_into_parts(world: CrashSandbox) -> object:
    """Every file is a part of its own."""
    return world.view().refresh(chunk=1)


def rebuild(world: CrashSandbox) -> object:
    return world.view().rebuild()


BACK_TO, BACK_AT = 2, 1  # an epoch of `lived`, and its version of the source


def maintain(world: CrashSandbox) -> object:
    return world.view().maintain(0)


def rollback(world: CrashSandbox) -> object:
    return world.view().rollback(BACK_TO)


def branch(world: CrashSandbox) -> object:
    return world.view().branch("dev")


def drop(world: CrashSandbox) -> object:
    world.view().refresh()
    return world.view().drop()


def land(world: CrashSandbox) -> object:
    return world.warehouse().land("dropped")


def refreshed(world: CrashSandbox, before: Seen, late: bool, *, is_lost: bool = False) -> Report:
    """After a refresh that was stopped; is_lost: what the first generation read is gone, an epoch of it too."""
    latest = world.batch()
    assert seen(world).rows == (before.rows if world.finished == before.finished else latest)
    assert world.pointed() in (before.rows, latest)
    unfinished = world.unfinished and not (is_lost and world.generation == 1)
    told = len(world.view().history())
    if late:
        world.change(2)
    report = world.view().refresh()
    verdicts = [entry.verdict for entry in world.view().history()]
    assert ("resumed" in verdicts[told:]) == unfinished, verdicts
    said = ("resumed", "(chunk ", "(chunks ")
    assert not unfinished or any(word in report.sentence for word in said), report.sentence
    assert world.answer() == world.batch()
    leads(world)
    assert world.view().refresh().verdict == "nothing to do"
    if not late:
        world.change(2)
        world.view().refresh()
        assert world.answer() == world.batch()
    return report


def healed(world: CrashSandbox, before: Seen, late: bool) -> None:
    """After a rebuild for a lost source that was stopped: the loss is in the report of what finishes it, and once."""
    was_finished = world.finished > before.finished
    report = refreshed(world, before, late, is_lost=True)
    assert was_finished or report.lost
    losses = [report.lost for report in world.view().history() if report.lost]
    assert len(losses) == 1 and "was dropped and created again" in losses[0]


def kept(world: CrashSandbox, before: Seen, late: bool) -> None:
    """After upkeep or a branch that was stopped."""
    assert seen(world) == before
    assert world.pointed() == before.rows
    goes_on(world)


def went_back(world: CrashSandbox, before: Seen, late: bool) -> None:
    """After a rollback that was stopped."""
    done = Seen(world.batch(BACK_AT), before.finished + 1)
    assert seen(world) == (before if world.unfinished or world.finished == before.finished else done)
    assert world.pointed() in (before.rows, done.rows)
    goes_on(world)


def kept_in_order(world: CrashSandbox, before: Seen, late: bool) -> None:
    """After upkeep that was stopped: it is done once more."""
    maintain(world)
    kept(world, before, late)


def branched(world: CrashSandbox, before: Seen, late: bool) -> None:
    """After a branch that was stopped: there is one, or none."""
    view = world.view()
    dev = view.warehouse.view("dev", view.query, view.policy)
    if not dev.history():
        dev = world.view().branch("dev")
    kept(world, before, late)
    dev.refresh()
    assert dev.verify().ok


def dropped_for_good(world: CrashSandbox, before: Seen, late: bool) -> None:
    """After a view was dropped half: it is dropped once more."""
    world.view().drop()
    assert not world.journal.parent.exists()
    assert not world.spark.catalog.tableExists(world.sql_view)


def leads(world: CrashSandbox) -> None:
    """What never changes its name leads to the latest answer."""
    latest = world.batch()
    assert world.pointed() == latest
    assert not KINDS[world.kind].published or world.shown() == latest


def goes_on(world: CrashSandbox) -> None:
    world.view().refresh()
    assert world.answer() == world.batch()
    world.change(4)
    world.view().refresh()
    leads(world)
    assert world.view().verify().ok


def landed(world: CrashSandbox, before: Seen, late: bool) -> None:
    """After a landing that was stopped; files go back to what they were, or stay."""
    if late:
        world.drop(a=1, b=2)
    world.warehouse().land("dropped")
    expected = {(1, "a"), (2, "b")} if late else {(3, "a"), (4, "c")}
    assert world.landed() == dict.fromkeys(expected, 1)


STAGES = {
    "first load": Stage(lambda _: None, refresh, refreshed),
    "change": Stage(changed, refresh, refreshed),
    "change that cancels out": Stage(rewritten, refresh, refreshed),
    "change in parts": Stage(changed, split_into_parts, refreshed),
    "rebuild": Stage(changed, rebuild, refreshed),
    "healing": Stage(lost, refresh, healed),
    "healing in parts": Stage(lost, split_into_parts, healed, ("join and window", "one state in place")),
    "healing of an interrupted view": Stage(lost_half_way, refresh, healed, ("two nested states", "view over a view")),
    "resume": Stage(half_way, refresh, refreshed),
    "late resume": Stage(almost_there, refresh, refreshed),
    "maintain": Stage(lived, maintain, kept_in_order),
    "rollback": Stage(lived, rollback, went_back),
    "branch": Stage(lived, branch, branched),
    "drop": Stage(lambda _: None, drop, dropped_for_good, ("published",)),
    "landing": Stage(dropped, land, landed, ("one state in place",)),
}
RUNS = [(kind, name) for name, stage in STAGES.items() for kind in stage.kinds]


def stop_when(world: CrashSandbox, wanted: Callable[[Point], bool]) -> None:
    """A refresh killed at the first point that is wanted."""
    with watched() as run:
        reach = run.reach

        def reach_and_stop(point: Point) -> None:
            reach(point)
            if wanted(point):
                raise_killed()

        run.reach = reach_and_stop  # type: ignore[method-assign]
        try:
            refresh(world)
        except Killed:
            return
    raise AssertionError(f"never came to the point: {[str(point) for point in run.passed]}")


def stopped(world: CrashSandbox, stage: Stage, stop: Stop) -> Run:
    """The stage's run, killed at a point within this process."""
    with watched(stop) as run:
        try:
            stage.run(world)
        except Killed:
            return run
    raise AssertionError(f"there is no point {stop} in {[str(point) for point in run.passed]}")
