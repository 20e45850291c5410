"""Ports of the loopback for the servers that tests start: find free ones, and wait until a server answers."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from pathlib import Path


def free_ports(number: int) -> list[int]:
    """Ports of the loopback that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path, seconds: float) -> None:
    """Wait until a process listens on a port; AssertionError, with the end of its log, if it ends or takes longer."""
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert process.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < until
            time.sleep(0.1)
