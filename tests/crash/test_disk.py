"""A full disk and a lost right: one sentence, nothing half done, and it goes on when that is mended."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import StorageError
from deltafold.spark import catalyst
from tests.crash.conftest import Prepared
from tests.crash.crash_sandbox import CrashSandbox
from tests.crash.points import Stop, watched
from tests.crash.stages import changed, land, maintain, refresh, seen
from tests.night import night

FULL, DENIED = "no space left on device. Make room there", "permission denied. Let this user read and write there"


def by_python(number: int) -> Callable[[CrashSandbox], None]:
    """What Python says where the system refuses."""

    def fail(world: CrashSandbox) -> None:
        raise OSError(number, os.strerror(number), str(world.folder))

    return fail


def by_spark(number: int) -> Callable[[CrashSandbox], None]:
    """An error of Java's own that says so somewhere among its causes."""

    def fail(world: CrashSandbox) -> None:
        java = catalyst.jvm(world.spark).java
        java.util.concurrent.CompletableFuture.failedFuture(java.io.IOException(os.strerror(number))).get()

    return fail


REFUSED: tuple[tuple[Stop, Callable[[CrashSandbox], None], str], ...] = (
    (("before DeltaTable._write", 1), by_spark(errno.ENOSPC), FULL),
    (("before DeltaTable._write", 2), by_spark(errno.EACCES), DENIED),
    (("before Journal._write", 1), by_python(errno.EACCES), DENIED),  # of the resume
    (("before Journal._write", 2), by_python(errno.ENOSPC), FULL),
)


@night
def test_a_write_that_the_disk_refuses(prepared: Prepared, tmp_path: Path) -> None:
    """Protects from a traceback, from half an epoch that readers see, and from one that cannot be finished."""
    world = prepared("two nested states", "change").copied(tmp_path / "world")
    before = seen(world)
    for stop, fail, says in REFUSED:
        with watched(stop, lambda fail=fail: fail(world)), pytest.raises(StorageError, match=says):
            refresh(world)
        assert seen(world) == before
    assert world.view().refresh().verdict == "resumed"
    assert world.answer() == world.batch()


def test_a_landing_that_the_disk_refuses(prepared: Prepared, tmp_path: Path) -> None:
    """Protects from rows that are neither landed nor asked for again."""
    world = prepared("one state in place", "landing").copied(tmp_path / "world")
    for stop, fail, says in (
        (("before DeltaTable.replace_where", 1), by_spark(errno.ENOSPC), FULL),
        (("before Manifest.remember", 2), by_python(errno.ENOSPC), FULL),
    ):
        with watched(stop, lambda fail=fail: fail(world)), pytest.raises(StorageError, match=says):
            land(world)
    land(world)
    assert world.landed() == {(3, "a"): 1, (4, "c"): 1}


@pytest.fixture
def disk(tmp_path: Path, long: bool) -> Iterator[Path]:
    """A disk of its own, of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if not long or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("run with --long, by a user who may mount a disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("kind", ["one state in place", "two nested states", "bag, merged", "view over a view"])
def test_a_disk_that_is_really_full(spark: SparkSession, disk: Path, kind: str) -> None:
    """Protects from what Java and Delta leave behind and say, as room grows file by file until it suffices."""
    world, ballast = CrashSandbox(spark, disk / "world", kind).create(), disk / "ballast"
    changed(world)
    before, refused = seen(world), 0
    for room in range(0, 1 << 20, 4096):
        fill(ballast, room)
        try:
            refresh(world)
            break
        except StorageError:
            refused += 1
            assert seen(world).rows == before.rows
    assert refused > 2
    assert world.answer() == world.batch()
    ballast.unlink()
    world.change(2)
    maintain(world)
    refresh(world)
    assert world.answer() == world.batch()


def fill(ballast: Path, room: int) -> None:
    """Leave so much room on the disk and no more."""
    ballast.unlink(missing_ok=True)
    free = os.statvfs(ballast.parent)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_bsize - room))


def test_a_disk_that_can_only_be_read(spark: SparkSession, disk: Path) -> None:
    """Protects from a lock that cannot be taken and does not say why."""
    world = CrashSandbox(spark, disk / "world", "one state in place").create()
    changed(world)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(StorageError, match=r"read-only file system. Make it writable"):
        refresh(world)
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    refresh(world)
    assert world.answer() == world.batch()
