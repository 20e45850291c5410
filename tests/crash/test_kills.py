"""A refresh killed with SIGKILL, in a process of its own: nothing of it can run any more.

Most of these processes are guests of this process's Spark, whose Java goes on with what it was told: the harder case.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import BusyError, DeltafoldError
from deltafold.api import Tuning
from deltafold.spark.host.keeper import publish
from tests.crash.conftest import Prepared
from tests.crash.crash_sandbox import CrashSandbox
from tests.crash.points import Stop
from tests.crash.sample import BY_SIGNAL, Crash
from tests.crash.stages import RUNS, STAGES, seen
from tests.night import night
from tests.spark.machine import PROJECT

POINTS = 24  # more than any run has
FEWEST = 4


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "stop" in metafunc.fixturenames:
        whole: list[Crash] = [(*run, number) for run in RUNS for number in range(POINTS)]
        chosen = whole if metafunc.config.getoption("--long") else BY_SIGNAL
        metafunc.parametrize(("kind", "stage", "stop"), chosen, ids=[f"{k}: {s}, {at}" for k, s, at in chosen])


@pytest.fixture
def host(spark: SparkSession, tmp_path: Path) -> str:
    publish(spark, tmp_path / "host.json")
    return str(tmp_path / "host.json")


def command(host: str, world: CrashSandbox, stage: str, how: str, stop: Stop) -> list[str]:
    told = [host, str(world.folder), world.kind, stage, how, json.dumps(stop)]
    return [sys.executable, "-m", "tests.crash.child", *told]


def killed(host: str, world: CrashSandbox, stage: str, how: str, stop: Stop) -> bool:
    """Run a stage in a process that ends at a point; False where the run has no such point."""
    child = subprocess.run(command(host, world, stage, how, stop), cwd=PROJECT, check=False, capture_output=True)
    assert child.returncode in (0, -signal.SIGKILL), child.stderr.decode()
    return child.returncode != 0


def test_a_kill_is_survived(host: str, prepared: Prepared, tmp_path: Path, kind: str, stage: str, stop: Stop) -> None:
    """Protects from anything that only a `finally` or an exit handler puts right."""
    before = seen(prepared(kind, stage))
    world = prepared(kind, stage).copied(tmp_path / "world")
    if killed(host, world, stage, "kill", stop):
        STAGES[stage].check(world, before, stop % 2 == 1 if isinstance(stop, int) else "after" in stop[0])
    else:
        assert isinstance(stop, int) and stop >= FEWEST


@night
@pytest.mark.parametrize("kind", ["one state in place, merged", "one state in place"])
def test_a_write_that_goes_on_after_its_process_is_dead_does_no_harm(
    spark: SparkSession, host: str, tmp_path: Path, kind: str
) -> None:
    """Protects from a Java that commits after the lock was freed and the next refresh has begun."""
    world = CrashSandbox(spark, tmp_path / "world", kind).create()
    STAGES["change"].prepare(world)
    assert killed(host, world, "change", "during", 2)
    world.change(2)
    until_done(lambda: world.view().refresh())
    time.sleep(2)  # whatever still runs comes to its end
    until_done(lambda: world.view().refresh())
    assert world.answer() == world.batch()
    assert world.view().verify().ok


def until_done(work: Callable[[], object]) -> None:
    """Two writers may meet, and one of them fails then; the next attempt gets through."""
    for attempt in range(3):
        try:
            work()
            return
        except DeltafoldError:
            if attempt == 2:
                raise


@night
def test_a_java_of_its_own_ends_with_its_process(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from a Java left behind, which could go on writing."""
    world = CrashSandbox(spark, tmp_path / "world", "one state in place").create()
    child = subprocess.Popen(command("own", world, "first load", "hold", 3), cwd=PROJECT, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"holding\n"
    javas = children(child.pid)
    assert javas
    child.kill()
    child.wait()
    world.view().refresh()
    assert world.answer() == world.batch()
    assert [report.verdict for report in world.view().history()] == ["resumed"]
    until = time.monotonic() + 60
    while any(alive(process) for process in javas):
        assert time.monotonic() < until
        time.sleep(0.1)


def holding(host: str, world: CrashSandbox, how: str) -> subprocess.Popen[bytes]:
    """A process that is in the middle of a refresh."""
    child = subprocess.Popen(command(host, world, "change", how, 3), cwd=PROJECT, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"holding\n"
    return child


@night
def test_two_processes_refresh_one_after_the_other(
    host: str, prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects from two refreshes of one view at once, and from a dead process that keeps the view locked."""
    world = prepared("one state in place", "change").copied(tmp_path / "world")
    first = holding(host, world, "pause")
    assert world.view().refresh().verdict == "nothing to do"
    assert first.wait() == 0
    assert world.finished == 2
    world.change(2)
    second = holding(host, world, "hold")
    try:
        impatient = world.view()
        impatient.warehouse.tuning = Tuning(lock_seconds=0.2)
        with pytest.raises(BusyError, match=rf"view v: it is being refreshed by process {second.pid} since"):
            impatient.refresh()
    finally:
        second.kill()
        second.wait()
    assert world.view().refresh().verdict == "resumed"
    assert world.answer() == world.batch()


def children(process: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    found: list[int] = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            continue
        if parent == process:
            below = int(status.parent.name)
            found += [below, *children(below)]
    return found


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat")
    return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"
