"""A refresh stopped before and after each of its writes, in this process; whole with --long, a sample otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash.points import watched
from tests.crash.worlds import KINDS, STAGES, World, check_survived, seen, stopped

FEWEST_POINTS = 6  # every run begins an epoch, writes a table and finishes the epoch
SAMPLE = (3, 1, 5, 4, 2, 3, 0)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All kinds and stages, each at all points; or each kind at one stage and one point, another for each kind."""
    pairs = [(kind, stage, None) for kind in KINDS for stage in STAGES]
    if not metafunc.config.getoption("--long"):
        stages = list(STAGES)
        pairs = [(kind, stages[(i + 1) % len(stages)], SAMPLE[i % len(SAMPLE)]) for i, kind in enumerate(KINDS)]
        pairs.append(("view over a view", "change", 9))  # the view below has ended its epoch, the one above has not
    names = [f"{kind}: {stage}" for kind, stage, _ in pairs]
    metafunc.parametrize(("kind", "stage", "number"), pairs, ids=names)


def test_a_crash_is_survived(spark: SparkSession, tmp_path: Path, kind: str, stage: str, number: int | None) -> None:
    """Protects from changes lost, doubled or half visible after a crash."""
    world = World(spark, tmp_path / "prepared", kind).create()
    with world.settings():
        STAGES[stage].prepare(world)
        before, finished = seen(world), world.finished()
        for point in numbers(world, tmp_path, stage) if number is None else [number]:
            crashed = world.copied(tmp_path / f"point {point}")
            run = stopped(crashed, STAGES[stage], point)
            try:
                check_survived(crashed, before, finished, late=point % 2 == 1)
            except Exception as error:
                error.add_note(f"stopped {run.passed[-1]}")
                raise


def numbers(world: World, folder: Path, stage: str) -> range:
    """All points of a run, counted in a run that is not stopped."""
    with watched() as run:
        STAGES[stage].run(world.copied(folder / "whole"))
    assert len(run.passed) >= FEWEST_POINTS
    return range(len(run.passed))
