"""`deltafold listen`: no acknowledged line is lost, no file is visible before it is complete, memory is bounded."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deltafold.algebra.errors import BusyError, StorageError
from deltafold.cli import commands as cli
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.listening import Limits, Listener, Spool, address_of, cut_incomplete_line, minute_of, serve

ROOT = Path(__file__).parents[2]


def visible(folder: Path) -> dict[str, list[str]]:
    """The lines of the files that a landing reads, by partition."""
    found = dict[str, list[str]]()
    for path in sorted(folder.glob("minute=*/[!.]*")):
        found.setdefault(path.parent.name, []).extend(path.read_text().splitlines())
    return found


def lines_in(folder: Path) -> list[str]:
    return sorted(line for lines in visible(folder).values() for line in lines)


class Running:
    """A listener in a thread of its own, with a clock that a test moves."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.now, self.port = 1_700_000_000.0, 0
        self.error: Any = None
        self.loop: Any = None
        self.listener: Any = None
        self.spool = Spool(folder)
        self._limits, self._ready = limits, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(10)

    def _run(self) -> None:
        async def serve() -> None:
            self.loop = asyncio.get_running_loop()
            self.listener = Listener(self.spool, self._limits, lambda: self.now)
            await self.listener.serve("127.0.0.1", 0, self._listening)

        try:
            asyncio.run(serve())
        except StorageError as error:
            self.error = error

    def _listening(self, at: str) -> None:
        self.port = int(at.rsplit(":", 1)[1])
        self._ready.set()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.listener.stop)
        self._thread.join(20)
        assert not self._thread.is_alive()
        self.spool.close()


@contextmanager
def running(folder: Path, **limits: Any) -> Iterator[Running]:
    made = Running(folder, Limits(**{"tick": 0.05, **limits}))
    try:
        yield made
    finally:
        made.stop()


def send(port: int, *parts: bytes) -> list[str]:
    """Send parts, end, and return what the listener said."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        for part in parts:
            client.sendall(part)
        client.shutdown(socket.SHUT_WR)
        said = b""
        while read := client.recv(1 << 16):
            said += read
    return said.decode().splitlines()


def test_lines_are_acknowledged_and_appear_when_their_minute_is_over(tmp_path: Path) -> None:
    with running(tmp_path) as listener:
        assert send(listener.port, b"one\ntw", b"o\nthree without an end")[-1] == "ok 2"
        assert visible(tmp_path) == {}
        listener.now += 60
        deadline = time.monotonic() + 10
        while not visible(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert visible(tmp_path) == {"minute=2023-11-14T22%3A13%3A00Z": ["one", "two"]}
        assert send(listener.port, b"three\n")[-1] == "ok 1"
    assert visible(tmp_path)["minute=2023-11-14T22%3A14%3A00Z"] == ["three"]
    assert not list(tmp_path.glob("minute=*/.*"))


def test_many_clients_lose_and_mix_nothing(tmp_path: Path) -> None:
    """Lines of several clients stay whole, through a queue that is always full."""
    wanted = {who: [f"{who}:{i}:{'x' * (i % 700)}" for i in range(2000)] for who in range(8)}
    with running(tmp_path, waiting=2000) as listener:

        def client(who: int) -> None:
            data, chosen = "".join(f"{line}\n" for line in wanted[who]).encode(), random.Random(who)
            cuts = sorted(chosen.sample(range(len(data)), 40))
            parts = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
            assert send(listener.port, *parts)[-1] == "ok 2000"

        threads = [threading.Thread(target=client, args=(who,)) for who in wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert lines_in(tmp_path) == sorted(line for lines in wanted.values() for line in lines)


def test_what_no_landing_could_read_is_refused_at_the_door(tmp_path: Path) -> None:
    """One bad line would stop the landing of a whole partition; the lines before it are kept."""
    with running(tmp_path, longest=100, connections=1) as listener:
        assert send(listener.port, b"good\n\xff\nnever\n") == ["ok 1", "ok 1", "error: line 2 is not UTF-8"]
        assert send(listener.port, b"x" * 101 + b"\n")[-1] == "error: line 1 has more than 100 bytes"
        for _ in range(20):  # what was sent after the fault must not reset the connection before it is read
            assert send(listener.port, b"y" * 2_000_000)[-1] == "error: line 1 has more than 100 bytes"
        assert send(listener.port, b"good\n", b"y" * 200_000)[-1] == "error: line 2 has more than 100 bytes"
        with socket.create_connection(("127.0.0.1", listener.port), timeout=10) as first:
            first.sendall(b"here\n")
            assert first.recv(100) == b"ok 1\n"
            assert send(listener.port)[-1] == "error: 1 clients are connected, which is the limit"
    assert lines_in(tmp_path) == ["good", "good", "here"]


def test_a_client_that_reads_no_acknowledgements_stops_nobody(tmp_path: Path) -> None:
    with running(tmp_path, goodbye=0.5) as listener, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", listener.port))
        for _ in range(3000):
            deaf.sendall(b"a\n" * 40)
        assert send(listener.port, b"b\n")[-1] == "ok 1"
    assert lines_in(tmp_path).count("b") == 1


def test_a_full_disk_ends_the_listener_and_loses_nothing_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a write is taken back, so the file has whole lines; the client hears no acknowledgement."""
    with running(tmp_path) as listener:
        assert send(listener.port, b"safe\n")[-1] == "ok 1"
        write = os.write

        def full(descriptor: int, data: Any) -> int:
            if listener.spool._part is None or descriptor != listener.spool._part.descriptor:
                return write(descriptor, data)
            if len(data) > 3:
                return write(descriptor, data[:3])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        assert "ok 1" not in send(listener.port, b"lost\n")
        monkeypatch.undo()
    assert "No space left on device" in str(listener.error)
    assert lines_in(tmp_path) == ["safe"]


def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """SIGKILL while lines arrive; the next listener completes the hidden file."""
    command = [sys.executable, "-m", "deltafold.cli.commands", "listen", "127.0.0.1:0", str(tmp_path / "in")]
    for round_ in range(3):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert process.stdout is not None
        port = int(process.stdout.readline().rsplit(":", 1)[1])
        acknowledged, sent = 0, 0
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            while acknowledged < 20 * (round_ + 1):
                client.sendall(f"{round_}:{sent}\n{round_}:{sent + 1}\n".encode())
                sent += 2
                acknowledged = int(client.recv(1 << 16).decode().split()[-1])
            client.sendall(f"{round_}:half".encode())
            process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        Spool(tmp_path / "in").close()
        found = [line for line in lines_in(tmp_path / "in") if line.startswith(f"{round_}:")]
        assert {f"{round_}:{n}" for n in range(acknowledged)} <= set(found) <= {f"{round_}:{n}" for n in range(sent)}


def test_being_asked_to_end_completes_the_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deltafold.cli.commands", "listen", "0", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    said = process.stdout.readline()
    assert said.startswith(f"{tmp_path}: listening on 127.0.0.1:")
    assert send(int(said.rsplit(":", 1)[1]), b"kept\n")[-1] == "ok 1"
    assert visible(tmp_path) == {} or lines_in(tmp_path) == ["kept"]  # where a minute ended just now
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    process.stdout.close()
    assert lines_in(tmp_path) == ["kept"]


def test_one_listener_a_folder(tmp_path: Path) -> None:
    """A second one would complete files that the first still writes."""
    spool = Spool(tmp_path)
    with pytest.raises(BusyError, match="another listener"):
        Spool(tmp_path)
    assert CliRunner().invoke(cli.app, ["listen", "0", str(tmp_path)]).exit_code == 5
    spool.close()
    Spool(tmp_path).close()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("")
    for place in (path, path / "below"):
        with pytest.raises(StorageError, match=r"it is a file, or is below one\. Give a folder"):
            serve("127.0.0.1:0", place, remote=False, ready=lambda _: None)


def test_large_minutes_are_several_files(tmp_path: Path) -> None:
    spool = Spool(tmp_path, largest=10)
    for line in (b"0123456789\n", b"abc\n", b"def\n"):
        spool.append(line, minute_of(0))
    spool.close()
    names = sorted(path.name for path in (tmp_path / "minute=1970-01-01T00%3A00%3A00Z").iterdir())
    assert len(names) == 2 and all(name.endswith(".txt") for name in names)
    assert lines_in(tmp_path) == ["0123456789", "abc", "def"]


def test_recovery_cuts_a_line_that_was_not_finished(tmp_path: Path) -> None:
    partition = tmp_path / "minute=x"
    partition.mkdir()
    (partition / ".a.part").write_bytes(b"one\ntwo\nthr")
    (partition / ".b.part").write_bytes(b"nothing whole")
    Spool(tmp_path).close()
    assert visible(tmp_path) == {"minute=x": ["one", "two"]}
    assert [path.name for path in partition.iterdir()] == ["a.txt"]
    long = tmp_path / "long"
    long.write_bytes(b"a\n" + b"b" * (3 << 20))
    cut_incomplete_line(long)
    assert long.read_bytes() == b"a\n"


@pytest.mark.parametrize("text", ["nonsense", "host:", "1.2.3.4:x", "127.0.0.1:70000", "127.0.0.1:²"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(DeclarationError, match="HOST:PORT"):
        address_of(text, remote=True)


def test_other_machines_only_on_request() -> None:
    """Whoever connects can write: no address of the network by a slip."""
    assert address_of("9999", remote=False) == ("127.0.0.1", 9999)
    assert address_of("localhost:9999", remote=False) == ("localhost", 9999)
    assert address_of("[::1]:9999", remote=False) == ("::1", 9999)
    for host in ("0.0.0.0", "[::]", "10.1.2.3"):
        with pytest.raises(DeclarationError, match="--remote"):
            address_of(f"{host}:9999", remote=False)
    assert address_of("0.0.0.0:9999", remote=True) == ("0.0.0.0", 9999)
