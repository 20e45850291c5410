"""Whom a guest of a warm Spark talks to, and when a host's file goes: with small processes instead of Sparks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from incremental.algebra.errors import DeltafoldWarning
from incremental.spark import session
from incremental.spark.cache import SetupError
from incremental.spark.host import address, guest, keeper, process
from incremental.spark.host.address import COMMAND, Host, NoHostError, read_host, withdraw, write_host
from incremental.spark.host.guest import greet
from incremental.spark.host.process import listens, start_of
from incremental.spark.host.wanted import WantedSpark
from pipelines.commands import progress
from tests.spark.machine import PROJECT, run

LISTEN = """
import socket, sys
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen(5)
print(server.getsockname()[1], flush=True)
while True:
    link = server.accept()[0]
    if sys.argv[1] == "silent":
        kept = link  # and says nothing
        continue
    told = link.recv(100)
    link.sendall(b"!yv\\n" if told == b"A\\ns3cret\\n" else b"!x\\n")
"""


class Listener:
    """A process that listens on a port, as a host's Java does."""

    def __init__(self, options: str) -> None:
        command = [sys.executable, "-c", LISTEN, options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    @property
    def host(self) -> Host:
        return Host(self.process.pid, start_of(self.process.pid) or "", self.port, "s3cret")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def listener() -> Iterator[Callable[[str], Listener]]:
    made: list[Listener] = []

    def make(options: str) -> Listener:
        made.append(Listener(options))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture
def stranger() -> Iterator[tuple[int, list[bytes]]]:
    """A port that this process listens on, and what is sent there."""
    server, heard = socket.create_server(("127.0.0.1", 0)), list[bytes]()

    def hear() -> None:
        while True:
            try:
                heard.append(server.accept()[0].recv(100))
            except OSError:
                return

    threading.Thread(target=hear, daemon=True).start()
    yield server.getsockname()[1], heard
    server.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "host.json"


@pytest.fixture(params=["proc", "ps and lsof"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both ways to ask the system."""
    if request.param != "proc":
        if not (shutil.which("ps") and shutil.which("lsof")):
            pytest.skip("this machine has no ps or no lsof")
        monkeypatch.setattr(process, "PROC", tmp_path / "no proc")
    elif not process.PROC.exists():
        pytest.skip("this system has no /proc")


@pytest.mark.usefixtures("system")
def test_a_process_is_known_by_its_start(listener: Callable[[str], Listener], monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from taking a later process with the same number for the host."""
    one = listener("answers").process
    began = start_of(one.pid)
    assert began and began == start_of(one.pid) and start_of(os.getpid()) != began
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "geteuid", lambda: 12345)
        assert start_of(one.pid) is None, "another user's process is never ours"
    one.kill()
    os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
    assert start_of(one.pid) is None, "a dead process whose parent has not looked yet is dead"
    one.wait()
    assert start_of(one.pid) is None


@pytest.mark.usefixtures("system")
def test_a_port_is_owned_by_who_listens_there(listener: Callable[[str], Listener]) -> None:
    """Protects from sending to whoever else has the port by now."""
    one, other = listener("answers"), listener("answers")
    assert listens(one.process.pid, one.port)
    assert not listens(one.process.pid, other.port)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert not listens(os.getpid(), bound.getsockname()[1]), "nobody listens there"
    if socket.has_dualstack_ipv6():
        with socket.create_server(("::ffff:127.0.0.1", 0), family=socket.AF_INET6, dualstack_ipv6=True) as java:
            assert listens(os.getpid(), java.getsockname()[1])


def test_a_system_that_does_not_answer_owns_no_port(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Protects from attaching where nobody can tell to whom."""
    monkeypatch.setattr(process, "PROC", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert start_of(os.getpid()) is None
        assert not listens(os.getpid(), server.getsockname()[1])


def test_a_host_that_answers_is_greeted(listener: Callable[[str], Listener], file: Path) -> None:
    greet(file, listener("answers").host)


def test_a_stranger_on_the_port_of_a_dead_host_hears_nothing(
    listener: Callable[[str], Listener], stranger: tuple[int, list[bytes]], file: Path
) -> None:
    """Protects from telling whoever listens there the secret, and then believing what he answers."""
    port, heard = stranger
    dead, alive = listener("answers"), listener("answers")
    left, moved = replace(dead.host, port=port), replace(alive.host, port=port)
    dead.end()
    for host, said in (
        (left, "is gone"),
        (replace(alive.host, started="the day before"), "is gone"),
        (moved, "does not listen on its port"),
    ):
        with pytest.raises(NoHostError, match=f"{said}. Start it with python -m"):
            greet(file, host)
    assert heard == []


def test_a_host_that_ends_while_it_is_greeted_is_not_told_the_secret(
    stranger: tuple[int, list[bytes]], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects from a stranger who takes the port between the look and the connection."""
    port, heard = stranger
    looks = iter([True, False])
    monkeypatch.setattr(address, "listens", lambda *_: next(looks))
    with pytest.raises(NoHostError, match="does not listen"):
        greet(file, Host(os.getpid(), start_of(os.getpid()) or "", port, "s3cret"))
    deadline = time.monotonic() + 10
    while not heard and time.monotonic() < deadline:
        time.sleep(0.01)
    assert heard == [b""]


def test_a_silent_host_is_not_waited_for(
    listener: Callable[[str], Listener], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects from a guest that waits for ever, be the host stopped, full or another kind of program."""
    monkeypatch.setattr(guest, "ANSWER_SECONDS", 0.2)
    with pytest.raises(NoHostError, match="does not answer"):
        greet(file, listener("silent").host)
    with pytest.raises(NoHostError, match="rejects the secret"):
        greet(file, replace(listener("answers").host, secret="another"))


HOST = Host(1, "then", 2, "s3cret")


def spoil(file: Path, how: str) -> None:
    match how:
        case "open file":
            file.chmod(0o640)
        case "open folder":
            file.parent.chmod(0o750)
        case "link":
            file.rename(file.with_name("real.json"))
            file.symlink_to("real.json")
        case "linked folder":
            file.parent.rename(file.parent.with_name("real"))
            file.parent.symlink_to("real")
        case "pipe":
            file.unlink()
            os.mkfifo(file, 0o600)
        case _:
            file.write_text(how)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("open file", "others may read or write it"), ("open folder", "others may enter it"),
        ("link", "cannot be opened"), ("linked folder", "cannot be opened"),
    ],
)  # fmt: skip
def test_a_file_that_others_could_have_written_is_refused(tmp_path: Path, how: str, said: str) -> None:
    """Protects from attaching to the Spark of somebody else, who then sees every row and answers as he likes."""
    file = tmp_path / "private" / "host.json"
    write_host(file, HOST)
    assert read_host(file) == HOST
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]
    spoil(file, how)
    with pytest.raises(SetupError, match=rf"^Spark host .*{said}.*\. .* start .*host with python -m") as caught:
        read_host(file)
    assert not isinstance(caught.value, NoHostError)


@pytest.mark.parametrize("how", ["pipe", "", "{}", "[1]", '{"port": 9, "secret": "s", "process": 1}', '{"port": '])
def test_a_damaged_file_means_a_cold_start(tmp_path: Path, how: str) -> None:
    """Protects from no Spark at all after a full disk or an upgrade: the file is the user's own, and names no host."""
    file = tmp_path / "private" / "host.json"
    write_host(file, HOST)
    spoil(file, how)
    with pytest.raises(NoHostError, match="it is not a host's file"):
        read_host(file)


def test_another_users_file_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_host(file, HOST)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(SetupError, match="belongs to another user"):
        read_host(file)


def test_no_secret_is_written_where_others_may_enter(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(SetupError, match="others may enter it"):
        write_host(tmp_path / "host.json", HOST)
    assert not list(tmp_path.iterdir())
    assert "s3cret" not in repr(HOST)


def test_a_host_removes_its_own_file_alone(file: Path) -> None:
    """Protects from taking the file of the host that came after it."""
    write_host(file, HOST)
    withdraw(file, replace(HOST, port=3))
    assert file.exists()
    withdraw(file, HOST)
    withdraw(file, HOST)
    assert not file.exists()


def test_without_a_host_a_process_starts_cold_and_says_so_in_one_line(
    file: Path, stranger: tuple[int, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects from an error, or from waiting for ever, where a host ended uncleanly."""
    spark: Any = object()
    monkeypatch.setattr(session, "_launch", lambda settings: spark)
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    monkeypatch.setenv("DELTAFOLD_SPARK_HOST", str(file))
    with pytest.warns(DeltafoldWarning, match="there is no such file.*Starting a new Spark instead"):
        assert session.start() is spark
    write_host(file, Host(os.getpid(), "then", stranger[0], "s3cret"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert session.start() is spark
    progress.show_warnings()
    line = warnings.formatwarning(caught[0].message, caught[0].category, "a.py", 1)
    assert line.startswith(f"Spark host {file}: its process") and line.endswith("Starting a new Spark instead.\n")
    assert warnings.formatwarning("of others", UserWarning, "a.py", 1) == "a.py:1: UserWarning: of others\n"
    assert stranger[1] == []


KEEP = """
import subprocess, sys
from pathlib import Path
from types import SimpleNamespace
from incremental.spark import session
from incremental.spark.host import keeper
from incremental.spark.host.address import Host, write_host
from incremental.spark.host.guests import Guests
from incremental.spark.host.wanted import WantedSpark
def publish(spark, file, wanted):
    write_host(file, HOST)
    print(java.pid, flush=True)
    return HOST
HOST = Host(1, "then", 2, "s", idle_seconds=float(sys.argv[2]))
java = subprocess.Popen(["sleep", "60"])
session.start = lambda name, **_: SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=java)))
keeper.publish, keeper.WATCH_SECONDS = publish, 0.05
file = Path(sys.argv[1])
code = keeper.keep(file, WantedSpark())
java.kill()
sys.exit(code)
"""


@pytest.mark.parametrize("ends", ["told", "hung up", "its Java", "idle"])
def test_a_host_that_ends_removes_its_file(file: Path, ends: str) -> None:
    """Protects from a file that names a Spark which is no more, for as long as its Python lives."""
    command = [sys.executable, "-c", KEEP, str(file), "0.3" if ends == "idle" else "0"]
    host = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=PROJECT)
    assert host.stdout is not None
    java = int(host.stdout.readline())
    assert file.exists()
    if ends == "its Java":
        os.kill(java, signal.SIGKILL)
    elif ends != "idle":
        host.send_signal(signal.SIGTERM if ends == "told" else signal.SIGHUP)
    _, said = host.communicate(timeout=30)
    assert not file.exists()
    expected = (1, f"Spark host {file}: its Java ended. Start it again with {COMMAND} {file}\n")
    assert (host.returncode, said) == (expected if ends == "its Java" else (0, ""))


def test_a_second_host_does_not_hide_the_first(
    listener: Callable[[str], Listener], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects from a Spark that nobody finds, and that goes on."""
    monkeypatch.setenv("DELTAFOLD_SPARK_HOST", "")
    write_host(file, listener("answers").host)
    with pytest.raises(SetupError, match=r"is running with it already\. Use it, or name another file"):
        keeper.keep(file, WantedSpark())


def test_a_host_says_in_one_sentence_what_is_wrong_with_its_file(tmp_path: Path) -> None:
    program = "import runpy, sys; sys.argv[1:] = ['s3a://b/host.json']\n"
    program += "runpy.run_module('incremental.spark.host', run_name='__main__')"
    done = run(program, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Spark host s3a://b/host.json: s3a: is not a folder of this machine.")
    assert json.dumps(done.stderr).count("\\n") == 1
