"""A run stopped before and after each of its writes, in this process; whole with --long, a sample otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltafold.lake.protocol import Lake
from tests.crash.conftest import Prepared
from tests.crash.crash_sandbox import KINDS, CrashSandbox
from tests.crash.points import Stop, watched
from tests.crash.sample import IN_MEMORY, ON_DELTA
from tests.crash.stages import RUNS, STAGES, seen, stopped

pytestmark = [
    pytest.mark.usefixtures("uncompiled"),
    pytest.mark.filterwarnings("ignore:view .* is rebuilt, as on_lost asks for"),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All kinds and stages, each at all points; or the sample. A SQL view shows a Delta table alone."""
    on_delta = metafunc.function is test_a_crash_on_delta_is_survived
    runs = [(kind, stage, None) for kind, stage in RUNS if on_delta or not KINDS[kind].published]
    sample = ON_DELTA if on_delta else IN_MEMORY
    chosen = runs if metafunc.config.getoption("--long") else sample
    metafunc.parametrize(("kind", "stage", "stop"), chosen, ids=[f"{kind}: {stage}" for kind, stage, _ in chosen])


def test_a_crash_is_survived(
    prepared: Prepared, memory: Lake, tmp_path: Path, kind: str, stage: str, stop: Stop | None
) -> None:
    """Protects from changes lost, doubled or half visible after a crash."""
    survived(prepared(kind, stage, memory), tmp_path, stage, stop)


def test_a_crash_on_delta_is_survived(
    prepared: Prepared, tmp_path: Path, kind: str, stage: str, stop: Stop | None
) -> None:
    """The same, where Delta's own commits are what is there or not."""
    survived(prepared(kind, stage), tmp_path, stage, stop)


def survived(world: CrashSandbox, tmp_path: Path, stage: str, stop: Stop | None) -> None:
    """Crashes at one point, or at all, each in a copy of the world."""
    before = seen(world)
    for number, point in enumerate(numbers(world, tmp_path, stage) if stop is None else [stop]):
        crashed = world.copied(tmp_path / f"point {number}")
        run = stopped(crashed, STAGES[stage], point)
        try:
            STAGES[stage].check(crashed, before, run.passed[-1].side == "after")
        except Exception as error:
            error.add_note(f"stopped {run.passed[-1]}")
            raise


def numbers(world: CrashSandbox, folder: Path, stage: str) -> range:
    """All points of a run, counted in a run that is not stopped."""
    with watched() as run:
        STAGES[stage].run(world.copied(folder / "whole"))
    assert run.passed
    return range(len(run.passed))
