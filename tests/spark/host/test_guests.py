"""Which host serves which settings, how many guests it takes, and what a process does without it."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deltafold.algebra.errors import DeltafoldWarning
from deltafold.spark import session
from deltafold.spark.cache import SetupError
from deltafold.spark.host import control, guest
from deltafold.spark.host.address import Host, NoHostError, write_host
from deltafold.spark.host.guests import FullError, Guests
from deltafold.spark.host.keeper import Idle
from deltafold.spark.host.wanted import WantedSpark
from tests.spark.machine import PROJECT

ENTER = """
import sys, time
from pathlib import Path
from deltafold.spark.host.guests import Guests
Guests(Path(sys.argv[1])).enter(2)
print("in", flush=True)
time.sleep(60)
"""
Enter = Callable[[], subprocess.Popen[str]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "host.json"


@pytest.fixture
def enter(file: Path) -> Iterator[Enter]:
    """Start a process that is a guest until it ends."""
    made: list[subprocess.Popen[str]] = []

    def other() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", ENTER, str(file)]
        made.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT))
        assert made[-1].stdout is not None and made[-1].stdout.readline() == "in\n"
        return made[-1]

    yield other
    for each in made:
        each.kill()
        each.communicate()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTAFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DELTAFOLD_SPARK_HOST", raising=False)


def test_a_guest_counts_until_its_process_ends(file: Path, enter: Enter) -> None:
    """Protects from a host that is full of the dead, and from one that takes more than its heap does."""
    guests = Guests(file)
    assert guests.count() == 0
    first = enter()
    guests.enter(2)
    guests.enter(2)  # this process is one guest, however often it attaches
    assert guests.count() == 2
    first.kill()
    first.wait()
    assert guests.count() == 1
    enter()
    guests.leave()
    enter()
    with pytest.raises(FullError):
        guests.enter(2)


def test_a_full_host_is_left_alone(file: Path, enter: Enter) -> None:
    write_host(file, Host(1, "then", 2, "s", most_guests=1))
    enter()
    with pytest.raises(NoHostError, match=r"it has 1 guests, as many as its heap takes. Wait for one to end"):
        guest.attach(file)


def test_a_guest_of_a_dead_host_leaves(file: Path) -> None:
    """Protects from a cold process that takes the place of a guest of the next host."""
    write_host(file, Host(1, "then", 2, "s"))
    with pytest.raises(NoHostError, match="its process 1 is gone"):
        guest.attach(file)
    assert Guests(file).count() == 0


def test_idle_is_the_time_since_the_last_guest(file: Path, enter: Enter) -> None:
    idle = Idle(Guests(file), 0.2)
    assert not idle.is_over()
    other = enter()
    time.sleep(0.3)
    assert not idle.is_over(), "it has a guest"
    other.kill()
    other.wait()
    assert not idle.is_over()
    time.sleep(0.3)
    assert idle.is_over()
    assert not Idle(Guests(file), 0).is_over()


@pytest.mark.usefixtures("cache")
def test_a_host_serves_what_differs_in_settings_of_sessions_alone() -> None:
    """Protects from a Spark with another heap or another file system, and from a host for every pipeline."""
    one = WantedSpark("local[2]", "2g", {"spark.hadoop.a": "1"})
    same = replace(one, settings={"spark.hadoop.a": "1", "spark.sql.shuffle.partitions": "3"}, idle_seconds=5)
    assert same.file == one.file
    others = [
        replace(one, master="local[3]"),
        replace(one, memory="3g"),
        replace(one, settings={"spark.hadoop.a": "2"}),
    ]
    assert len({each.file for each in [one, *others]}) == 4
    assert WantedSpark.of_json(same.to_json()) == same
    assert [WantedSpark(memory=each).most_guests for each in ("2g", "1500m", "300m", "1gb", "4096")] == [4, 2, 1, 2, 1]
    conf = SimpleNamespace(isModifiable=lambda name: name != "spark.x", get=lambda *_: "1")
    assert replace(one, settings={"spark.x": "1", "spark.sql.y": "7"}).find_misfit(conf) == ""
    assert replace(one, settings={"spark.x": "2"}).find_misfit(conf).startswith("its spark.x is another one")


@pytest.mark.usefixtures("cache")
def test_a_process_uses_a_host_as_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a cold start where none is allowed, and from a warning where nobody wants a host."""
    spark: Any = object()
    monkeypatch.setattr(session, "_launch", lambda settings: spark)
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session.start(warm="auto") is session.start(warm="off") is spark
    with pytest.raises(
        NoHostError, match=r"there is no such file\. Start it with deltafold host start NAME, or let .* `warm: auto`\.$"
    ):
        session.start(warm="required")
    write_host(WantedSpark().file, Host(1, "then", 2, "s"))
    assert control.list_running() == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session.start(warm="off") is session.start(memory="3g", warm="auto") is spark
    with pytest.warns(DeltafoldWarning, match="its process 1 is gone.*Starting a new Spark instead"):
        assert session.start(warm="auto") is spark


@pytest.mark.usefixtures("cache")
def test_a_host_that_does_not_come_up_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control.sys, "executable", "/bin/false")
    with pytest.raises(SetupError, match=r"^Spark host for local\[\*\], 2g: it ended without a message"):
        control.start_host(WantedSpark())
