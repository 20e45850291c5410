"""A warehouse on a real S3 server and on HDFS: two processes at once, kills, a pause longer than a lease, an outage."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
from pyspark.sql import SparkSession

from deltafold.lake.remote.lease import LEASE_VARIABLE
from deltafold.store.journal import Journal
from tests.corpus.test_corpus import SAMPLE
from tests.lake.remote import s3_server
from tests.lake.remote.hdfs_server import HdfsServer
from tests.lake.remote.hurdle import Hurdle
from tests.lake.remote.s3_server import S3Server
from tests.lake.remote.store_child import change, open_view
from tests.night import night
from tests.spark.machine import PROJECT

Server = S3Server | HdfsServer


class Store(Protocol):
    """What a process has to know of a store."""

    @property
    def root(self) -> str: ...
    @property
    def settings(self) -> dict[str, str]: ...


def start_s3(folder: Path) -> S3Server:
    built = s3_server.program()
    if built is None:
        pytest.skip("no Go to build the S3 server with")
    return S3Server(built, folder)


@pytest.fixture(params=[start_s3, HdfsServer], ids=["s3", "hdfs"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    found = request.param(tmp_path)
    yield found
    found.kill()


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    found = start_s3(tmp_path)
    yield found
    found.kill()


class Child:
    """A process that works on the store."""

    def __init__(self, server: Store, work: str, times: int = 1, lease: float = 3) -> None:
        command = [sys.executable, "-m", "tests.lake.remote.store_child", work, server.root, str(times)]
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

    def kill_at_random(self, dice: random.Random, changes: int, seconds: float) -> None:
        """Kill the process after at most so many changes, and then so many seconds."""
        for _ in range(dice.randint(1, changes)):
            self.wait_for("changed")
        time.sleep(dice.random() * seconds)
        self.process.kill()
        self.process.wait()

    def end(self) -> list[str]:
        """Read to the end."""
        assert self.process.stdout is not None
        self.lines += [line.rstrip() for line in self.process.stdout]
        assert self.process.wait() == 0, self.lines
        return self.lines


def look(server: Store) -> list[str]:
    """Refresh and verify in a new process; returns its lines."""
    child = Child(server, "look")
    lines = child.end()
    assert lines[-1] == "verified True", lines
    return lines


@night
def test_two_processes_commit_at_once(server: Server) -> None:
    """Protects from two commits of one version, of which one is lost: Delta's log store for s3a lets both succeed."""
    Child(server, "commit").end()
    children = [Child(server, "commit", 30) for _ in range(2)]
    done = [child.end().count("committed") for child in children]
    assert done == [30, 30]
    assert Child(server, "count").end()[-1] == "61 versions, 61 rows"


@night
def test_two_processes_refresh_at_once(server: Server) -> None:
    """Protects from two refreshes of one view, and from a wrong answer after them."""
    look(server)
    lines = [line for child in [Child(server, "refresh", 5, 60) for _ in range(2)] for line in child.end()]
    assert sum("epoch" in line for line in lines) == 10, lines
    look(server)


@night
def test_a_crash_on_hdfs_is_survived(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a warehouse that no longer works on a store; by day test_remote_warehouse.py does, on viewfs."""
    server = HdfsServer(tmp_path)
    try:
        view = open_view(spark, server.root)
        view.refresh()
        change(spark, f"{server.root}/sales", 1)
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Journal, "finish", interrupt)
            view.refresh()
        assert open_view(spark, server.root).refresh().verdict == "resumed"
        assert view.verify().ok
    finally:
        server.kill()


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@night
def test_kills_are_survived(server: Server) -> None:
    """Protects from an answer that is wrong, or a view that stays busy, after a process died."""
    look(server)
    dice = random.Random(7)
    for _ in range(6):
        Child(server, "refresh", 50).kill_at_random(dice, 3, 1.5)
        look(server)


@night
def test_a_stream_is_landed_once(server: Server) -> None:
    """Protects from records that are lost or landed twice, where a landing died."""
    dice, counted = random.Random(7), r"(\d+) rows in files, \1 landed"
    for _ in range(5):
        Child(server, "land", 20).kill_at_random(dice, 2, 3)
        lines = Child(server, "clicks").end()
        assert re.fullmatch(counted, lines[-1]), lines


@night
def test_input_files_are_landed(server: Server) -> None:
    """Protects from files of a day that are lost, stay, or are landed twice, where a landing died."""
    dice = random.Random(7)
    for _ in range(4):
        Child(server, "drop", 20).kill_at_random(dice, 3, 2)
        lines = Child(server, "orders").end()
        assert re.fullmatch(r"[1-9]\d* rows landed, 0 differ", lines[-1]), lines
    assert Child(server, "orders").end()[-2] == "landed ()"


@night
def test_a_paused_process_finds_its_lease_gone(server: Server) -> None:
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
def test_an_outage_gets_a_sentence(server: Server) -> None:
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


@night
@pytest.mark.parametrize("stream", ["classic", "default"])
def test_a_replaced_object_is_read_anew(s3: S3Server, monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
    """Protects from the content that an object had before, which Hadoop's default stream of S3 keeps."""
    kind = {"spark.hadoop.fs.s3a.input.stream.type": stream}
    look(s3)
    monkeypatch.setenv("DISK", str(next(s3.folder.rglob("sales")).parent))
    lines = Child(Elsewhere(s3.root, s3.settings | kind), "replace", 12).end()
    assert lines.count("old False") == 12, lines


@dataclass
class Elsewhere:
    """The same store, or another, with other settings."""

    root: str
    settings: dict[str, str]


@night
def test_a_refusal_says_what_to_correct(s3: S3Server) -> None:
    """Protects from one advice for everything, and from Java's text alone."""
    own, key = s3.settings, "spark.hadoop.fs.s3a.secret.key"
    without = {name: value for name, value in own.items() if "key" not in name}
    provider = "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
    mistakes = [
        (Elsewhere("s3a://nowhere/team", own), "Correct the bucket, or the endpoint"),
        (Elsewhere(s3.root, own | {key: "other"}), "Correct Spark's credentials"),
        (
            Elsewhere(s3.root, without | {"spark.hadoop.fs.s3a.aws.credentials.provider": provider}),
            "Give Spark credentials",
        ),
    ]
    for mistake, advice in mistakes:
        lines = Child(mistake, "orders").end()
        assert re.fullmatch(rf"StorageError: s3a://.*\. {advice}.*nothing is half written\.", lines[-1]), lines


class BehindHurdle:
    """A server as it is met through a hurdle."""

    def __init__(self, server: S3Server, share: float) -> None:
        self.root, self.hurdle = server.root, Hurdle(server.port, share)
        patience = {"attempts.maximum": "6", "retry.limit": "8", "retry.throttle.interval": "100ms"}
        self.settings = server.settings | {f"spark.hadoop.fs.s3a.{name}": value for name, value in patience.items()}
        self.settings["spark.hadoop.fs.s3a.endpoint"] = f"http://127.0.0.1:{self.hurdle.server_port}"


@night
def test_a_busy_store_and_lost_replies(s3: S3Server) -> None:
    """Protects from an epoch that is taken for another process's, since the reply to its own first request was lost."""
    behind = BehindHurdle(s3, 0.03)
    look(behind)
    lines = Child(behind, "refresh", 8, 60).end()
    assert sum("epoch" in line for line in lines) == 8, lines
    look(s3)
    assert behind.hurdle.refused > 5 and behind.hurdle.lost > 5


@night
def test_a_sample_of_the_corpus(server: Server) -> None:
    """Protects from an answer that depends on where the tables are."""
    command = [sys.executable, "-m", "tests.corpus.on_store", f"{server.root}/corpus"]
    variables = os.environ | {"STORE": json.dumps(server.settings)}
    done = subprocess.run(command, cwd=PROJECT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count("checked") == sum(map(len, SAMPLE.values()))
