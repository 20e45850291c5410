"""Upkeep, rollback and branching stopped before and after each of their writes; a sample of the points without --long.

After a crash readers see what they saw, or all of it; the next attempt, or the next refresh, ends well.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash.points import Killed, watched
from tests.crash.worlds import World, seen

KIND = "state and view table, merged"


def maintain(world: World) -> object:
    return world.view().maintain(0)


def rollback(world: World) -> object:
    return world.view().rollback(2)


def branch(world: World) -> object:
    return world.view().branch("dev")


WORK: dict[str, tuple[Callable[[World], object], tuple[int, ...]]] = {
    "maintain": (maintain, (1, 3)),
    "rollback": (rollback, (1, 3)),
    "branch": (branch, (4,)),
}


def prepared(world: World) -> None:
    """A rebuilt view with several epochs."""
    world.view().refresh()
    world.view().rebuild()
    for number in (1, 2, 3):
        world.change(number)
        world.view().refresh()


@pytest.fixture(scope="module")
def lived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(spark, tmp_path_factory.mktemp("lived") / "world", KIND).create()
    with world.settings():
        prepared(world)
    return world


@pytest.mark.parametrize("work", WORK)
def test_a_crash_is_survived(lived: World, tmp_path: Path, work: str, long: bool) -> None:
    run, sample = WORK[work]
    before = seen(lived)
    with lived.settings():
        whole = moved(lived, tmp_path / "whole")
        with watched() as all_points:
            run(whole)
        done = seen(whole)
        assert len(all_points.passed) > max(sample)
        for number in range(len(all_points.passed)) if long else sample:
            world = moved(lived, tmp_path / f"point {number}")
            with watched(number) as stopped, pytest.raises(Killed):
                run(world)
            try:
                assert seen(world) in (before, done)
                check_survived(world, work, run)
            except Exception as error:
                error.add_note(f"stopped {stopped.passed[-1]}")
                raise


def check_survived(world: World, work: str, run: Callable[[World], object]) -> None:
    if work == "maintain":
        run(world)
    if work == "branch":
        dev = world.view().warehouse.view("dev", world.view().query)
        if not dev.history():
            dev = world.view().branch("dev")
        world.change(4)
        dev.refresh()
        assert dev.verify().ok
    world.view().refresh()
    assert world.answer() == world.batch()
    world.change(5)
    world.view().refresh()
    assert world.answer() == world.batch()
    assert world.view().verify().ok


def moved(world: World, folder: Path) -> World:
    """A copy whose tables nobody has read under this path."""
    shutil.copytree(world.folder, folder)
    return World(world.spark, folder, world.kind)
