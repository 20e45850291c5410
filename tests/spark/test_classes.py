"""Spark's classes are written down by one process, read when whole, and given up where Java cannot."""

from __future__ import annotations

import os
import time
from pathlib import Path

import filelock
import pytest

from deltafold.spark.cache import cache_folder
from deltafold.spark.jvm.java import DAY, KEPT_DAYS, MOST_TRIES, Java, class_archive_options


@pytest.fixture
def spark_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("DELTAFOLD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    return tmp_path / "spark"


def asked(spark_home: Path, version: int = 17) -> str:
    return class_archive_options(Java(spark_home, version, "JAVA_HOME"), spark_home, ())


def written(options: str) -> Path:
    return Path(options.split('"')[1])


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[filelock.BaseFileLock]:
    """The locks this process would hold to its end; releasing them stands for the end."""
    held: list[filelock.BaseFileLock] = []
    monkeypatch.setattr("deltafold.spark.jvm.java._first", held)
    return held


def test_first_writes_and_the_next_reads(spark_home: Path, released: list[filelock.BaseFileLock]) -> None:
    first = asked(spark_home)
    assert first.startswith("-XX:ArchiveClassesAtExit=")
    assert asked(spark_home) == "", "one at a time"
    written(first).write_bytes(b"\0\0\0\0 being written")
    assert asked(spark_home) == ""
    written(first).write_bytes(b"head, and the rest")
    assert asked(spark_home).startswith(f'-XX:SharedArchiveFile="{written(first)}"')


def test_another_spark_has_another_file(spark_home: Path, released: list[filelock.BaseFileLock]) -> None:
    old = written(asked(spark_home))
    old.write_bytes(b"head, and the rest")
    (spark_home / "jars" / "new.jar").write_text("")
    new = asked(spark_home)
    assert new.startswith("-XX:ArchiveClassesAtExit=") and written(new) != old
    assert old.exists(), "two Sparks with other jars take turns"


def test_what_no_spark_reads_is_removed(spark_home: Path, released: list[filelock.BaseFileLock]) -> None:
    """Protects a cache from growing by 200 MB with each release of Spark."""
    old = written(asked(spark_home))
    old.write_bytes(b"head, and the rest")
    week = time.time() - (KEPT_DAYS + 1) * DAY
    os.utime(old, (week, week))
    assert asked(spark_home).startswith("-XX:SharedArchiveFile=")
    (spark_home / "jars" / "new.jar").write_text("")
    asked(spark_home)
    assert old.exists(), "it was just read"
    os.utime(old, (week, week))
    released.pop().release()
    asked(spark_home)
    assert not old.exists()


def test_failing_writes_are_given_up(spark_home: Path, released: list[filelock.BaseFileLock]) -> None:
    for _ in range(MOST_TRIES):
        assert asked(spark_home) != ""
        released.pop().release()
    assert asked(spark_home) == ""
    released.pop().release()
    (tries,) = cache_folder("classes").glob("*.tries")
    os.utime(tries, (0, 0))
    assert asked(spark_home) != "", "a day later, as processes that were killed count, too"


def test_only_the_java_that_can(spark_home: Path) -> None:
    assert asked(spark_home, version=21) == ""
