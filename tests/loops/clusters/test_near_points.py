"""The log of points: how few old ones are read, crashes between its commit and the loop's, upkeep and rollback."""

from __future__ import annotations

import random
from typing import Any

import pytest

from deltafold.api import Report, View
from tests.lake.memory.log import MemoryLog
from tests.loops import queries
from tests.loops.clusters.clouds import POINTS, SEEDS, STEPS, check, table
from tests.night import night, sampled
from tests.sandbox import DeltaSandbox, MemorySandbox, Sandbox, confirm

STOPS = [(commits, share) for commits in (0, 1, 2) for share in (9, 0)]


def uniform(number: int, seed: int) -> list[tuple[int, float, float]]:
    rng = random.Random(seed)
    return [(seed * 100_000 + i, rng.uniform(0, 16), rng.uniform(0, 16)) for i in range(number)]


def prepare(sandbox: Sandbox, points: int, centers: int = 8) -> View:
    """A view over uniform points whose log is written."""
    sandbox.source("points", POINTS, uniform(points, 1))
    sandbox.source("seeds", SEEDS, [(x, y) for _, x, y in uniform(centers, 2)])
    view = sandbox.view(queries.clusters)
    first = view.refresh()
    assert first.paths["loop_1_points"] == "first load" and table(sandbox, view, "loop_1_points").isEmpty()
    sandbox.insert("points", POINTS, uniform(3, 3))
    second = view.refresh()
    assert second.paths["loop_1"] == "renewed" and second.paths["loop_1_points"] == "rewritten"
    return view


def looked_at(report: Report) -> int:
    return sum(report.rounds["loop_1"]["points"])


@night
def test_few_old_points_are_read(sandbox: MemorySandbox) -> None:
    """Of uniform points, where some are near the border of two clusters in every step, under two per cent."""
    view = prepare(sandbox, 5_000)
    sandbox.insert("points", POINTS, uniform(10, 4))
    report = view.refresh()
    assert report.paths == {"loop_1": "changed", "loop_1_points": "appended", "view": "changed"}
    assert 0 < looked_at(report) < 0.02 * STEPS * 5_000
    assert 10 <= report.change_rows < 0.1 * 5_000
    check(sandbox, view)


@night
def test_too_many_old_points(sandbox: MemorySandbox) -> None:
    """All points are read, and have new margins, once more than a tenth of them would have to be read."""
    view = prepare(sandbox, 200)
    sandbox.insert("points", POINTS, uniform(150, 4))
    report = view.refresh()
    assert report.paths["loop_1"] == "renewed" and report.paths["loop_1_points"] == "rewritten"
    check(sandbox, view)


@night
def test_a_log_of_removed_points(sandbox: MemorySandbox) -> None:
    """A log that is more than twice as long as there are points is written again."""
    sandbox.tune(reread_share=9)
    view, lengths = prepare(sandbox, 40, 2), list[int]()
    for number in range(4, 8):
        sandbox.sql("update {points} set x = x + 0.01 where id % 2 = 0")
        report = view.refresh()
        assert report.paths["loop_1"] == "changed", number
        lengths.append(table(sandbox, view, "loop_1_points").count())
        check(sandbox, view)
    assert sorted(lengths) != lengths and max(lengths) <= 3 * 43


@night
@pytest.mark.parametrize("stop", sampled(STOPS, lambda stop: stop == (1, 0)))
def test_a_crash_between_the_commits(
    sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch, stop: tuple[int, float]
) -> None:
    """The log follows the references of the epoch, whether the points are appended or written again."""
    sandbox.tune(reread_share=9)
    view = prepare(sandbox, 60, 3)
    sandbox.sql("update {points} set x = x + 0.5 where id % 7 = 0")
    (commits, share), advance = stop, MemoryLog.advance
    left = [commits]

    def stopping(self: MemoryLog, *given: Any, **named: Any) -> Any:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return advance(self, *given, **named)

    sandbox.tune(reread_share=share)
    with monkeypatch.context() as patched:
        patched.setattr(MemoryLog, "advance", stopping)
        with pytest.raises(KeyboardInterrupt):
            view.refresh()
    sandbox.tune(reread_share=9 - share)  # another decision than that of the first attempt must do no harm
    assert view.refresh().verdict == "resumed"
    check(sandbox, view)
    sandbox.insert("points", POINTS, uniform(2, 5))
    sandbox.tune(reread_share=9)
    assert view.refresh().paths["loop_1"] == "changed"
    check(sandbox, view)


@night
def test_a_start_that_changes(sandbox: MemorySandbox) -> None:
    """Centers that start elsewhere are compared with references, later too; one more center has no reference."""
    sandbox.tune(reread_share=9)
    view = prepare(sandbox, 80, 4)
    for statement, path in (
        ("update {seeds} set x = x + 1 where y > 8", "changed"),
        ("insert into {points} values (1, 3.0, 9.0)", "changed"),
        ("insert into {seeds} values (8.0, 8.0)", "renewed"),
        ("delete from {points} where x > 3", "renewed"),
        ("delete from {points}", "renewed"),
    ):
        sandbox.sql(statement)
        assert view.refresh().paths["loop_1"] == path, statement
        check(sandbox, view)
    sandbox.insert("points", POINTS, uniform(30, 5))
    view.refresh()
    check(sandbox, view)


@night
def test_both_tables_on_delta(delta: DeltaSandbox) -> None:
    """Upkeep, rollback, a branch and other buckets know the log; the refreshes after them go on from it."""
    delta.tune(reread_share=0.5, small_files=2)
    view = prepare(delta, 1_000)

    def refresh(seed: int, of: View = view) -> None:
        delta.insert("points", POINTS, uniform(4, seed))
        report = of.refresh()
        assert report.paths["loop_1_points"] == "appended" and 0 < looked_at(report) < 0.5 * STEPS * 1_000
        confirm(of)

    refresh(4)
    assert view.maintain().tables["loop_1_points"].partitions
    refresh(5)
    view.rollback(3)
    refresh(6, view.branch("dev"))
    refresh(7)
    check(delta, view)
