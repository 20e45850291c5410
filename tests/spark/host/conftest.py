"""Fixtures: listening processes, a host's file, and the ways to ask the system for processes."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deltafold.spark.host import process
from tests.spark.host.listener import Listener


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
