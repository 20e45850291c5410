"""Whom a guest of a warm Spark talks to, and when a host's file goes: with small processes instead of Sparks."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deltafold.spark.host import address, guest, process
from deltafold.spark.host.address import Host, NoHostError
from deltafold.spark.host.guest import greet
from deltafold.spark.host.process import listens, start_of
from tests.spark.host.listener import Listener


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
    monkeypatch.setattr(address, "listens", lambda *_, **__: next(looks))
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
