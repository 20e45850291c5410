"""A warehouse on a real S3 server: two processes at once, kills, a pause longer than a lease, an outage."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from incremental.lake.remote.lease import LEASE_VARIABLE
from tests.lake.remote import s3_server
from tests.lake.remote.s3_server import BUCKET, S3Server
from tests.night import night
from tests.spark.machine import PROJECT

ROOT = f"s3a://{BUCKET}/team"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    built = s3_server.program()
    if built is None:
        pytest.skip("no Go to build the S3 server with")
    found = S3Server(built, tmp_path)
    yield found
    found.kill()


class Child:
    """A process that works on the store."""

    def __init__(self, server: S3Server, work: str, times: int = 1, lease: float = 3) -> None:
        command = [sys.executable, "-m", "tests.lake.remote.s3_child", work, ROOT, str(times)]
        variables = os.environ | {"STORE": json.dumps(server.settings), LEASE_VARIABLE: str(lease)}
        self.process = subprocess.Popen(command, cwd=PROJECT, env=variables, stdout=subprocess.PIPE, text=True)
        self.lines = list[str]()

    def wait_for(self, start: str) -> str:
        """Read until a line begins so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith(start):
                return line
        raise AssertionError(f"ended without {start!r}: {self.lines}")

    def end(self) -> list[str]:
        """Read to the end."""
        assert self.process.stdout is not None
        self.lines += [line.rstrip() for line in self.process.stdout]
        assert self.process.wait() == 0, self.lines
        return self.lines


def look(server: S3Server) -> list[str]:
    """Refresh and verify in a new process; returns its lines."""
    child = Child(server, "look")
    lines = child.end()
    assert lines[-1] == "verified True", lines
    return lines


@night
def test_two_processes_commit_at_once(server: S3Server) -> None:
    """Protects from two commits of one version, of which one is lost: Delta's log store for s3a lets both succeed."""
    Child(server, "commit").end()
    children = [Child(server, "commit", 30) for _ in range(2)]
    done = [child.end().count("committed") for child in children]
    assert done == [30, 30]
    log = sorted((server.folder / "data" / BUCKET / "team" / "raced" / "_delta_log").glob("*[0-9].json"))
    added = sum('"add"' in line for path in log for line in path.read_text().splitlines())
    assert (len(log), added) == (61, 61)


@night
def test_two_processes_refresh_at_once(server: S3Server) -> None:
    """Protects from two refreshes of one view, and from a wrong answer after them."""
    look(server)
    lines = [line for child in [Child(server, "refresh", 5, 60) for _ in range(2)] for line in child.end()]
    assert sum("epoch" in line for line in lines) == 10, lines
    look(server)


@night
def test_kills_are_survived(server: S3Server) -> None:
    """Protects from an answer that is wrong, or a view that stays busy, after a process died."""
    look(server)
    dice = random.Random(7)
    for _ in range(6):
        child = Child(server, "refresh", 50)
        for _ in range(dice.randint(1, 3)):
            child.wait_for("changed")
        time.sleep(dice.random() * 1.5)
        child.process.kill()
        child.process.wait()
        look(server)


@night
def test_a_paused_process_finds_its_lease_gone(server: S3Server) -> None:
    """Protects from a process that goes on after another one took over, and overwrites what that wrote."""
    look(server)
    for pause in (0.2, 0.7, 1.2):
        child = Child(server, "refresh", 2)
        child.wait_for("changed")
        time.sleep(pause)
        group = [child.process.pid, *java_of(child.process.pid)]
        for each in group:
            os.kill(each, signal.SIGSTOP)
        time.sleep(4)
        look(server)
        for each in group:
            os.kill(each, signal.SIGCONT)
        child.end()
        look(server)


def java_of(process: int) -> list[int]:
    """Return the processes that a process started."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False)
    return [int(each) for each in listed.stdout.split()]


@night
def test_an_outage_gets_a_sentence(server: S3Server) -> None:
    """Protects from a page of Java, and from a lost epoch, where the store stops answering in the middle."""
    look(server)
    child = Child(server, "refresh", 2, 60)
    child.wait_for("changed")
    time.sleep(0.7)
    server.kill()
    time.sleep(8)
    server.start()
    lines = child.end()
    assert not any("Traceback" in line or "\tat " in line for line in lines), lines
    look(server)
