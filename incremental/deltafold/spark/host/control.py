"""Start hosts in the background, list them, and stop them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deltafold.spark.cache import SetupError
from deltafold.spark.host.address import Host, check_folder, read_host
from deltafold.spark.host.guests import Guests
from deltafold.spark.host.process import start_of
from deltafold.spark.host.wanted import WantedSpark, list_files

START_SECONDS = 180.0  # the first start of a machine downloads jars
STOP_SECONDS = 30.0
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class RunningHost:
    """A host that serves guests: its file, the content of that, and the number of its guests."""

    file: Path
    host: Host
    guests: int

    @property
    def facts(self) -> dict[str, object]:
        """Its facts for people, without the secret."""
        return {
            "spark": self.host.spark,
            "process": self.host.process,
            "guests": self.guests,
            "most_guests": self.host.most_guests,
            "idle_minutes": self.host.idle_seconds / 60,
            "file": str(self.file),
        }


def _find_host(wanted: WantedSpark) -> RunningHost | None:
    """Return the host that runs for these settings."""
    return next((running for running in list_running() if running.file == wanted.file), None)


def list_running() -> list[RunningHost]:
    """Return the running hosts of this user."""
    running = list[RunningHost]()
    for file in list_files():
        try:
            host = read_host(file)
        except SetupError:
            continue
        if not host.fault:
            running.append(RunningHost(file, host, Guests(file).count()))
    return running


def start_host(wanted: WantedSpark) -> RunningHost:
    """Start a host in the background and wait for it; return the one that runs already, if there is one.

    Raises SetupError with the host's own message if it ends before it serves.
    """
    if running := _find_host(wanted):
        return running
    check_folder(wanted.file)
    log_file = wanted.file.with_suffix(".log")
    with log_file.open("w") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "deltafold.spark.host", str(wanted.file), "--wanted"],
            stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, start_new_session=True, cwd=_find_project(),
        )  # fmt: skip
    assert keeper.stdin is not None
    with suppress(BrokenPipeError), keeper.stdin:
        keeper.stdin.write(wanted.to_json())
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if running := _find_host(wanted):
            return running
        if keeper.poll() is not None:
            last = (log_file.read_text().strip().splitlines() or ["it ended without a message"])[-1]
            raise SetupError(f"Spark host for {wanted.shown}: {last}")
        time.sleep(POLL_SECONDS)
    keeper.terminate()
    raise SetupError(
        f"Spark host for {wanted.shown}: not up after {START_SECONDS:.0f} s. See {log_file}, and try again."
    )


def stop_host(running: RunningHost) -> None:
    """End a host and wait until its Java is gone. Raises SetupError if it does not end."""
    host = running.host
    os.kill(host.keeper, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while start_of(host.process) == host.started:
        if time.monotonic() > deadline:
            raise SetupError(f"Spark host {running.file}: process {host.process} does not end. Kill it.")
        time.sleep(POLL_SECONDS)


def _find_project() -> Path:
    """Return the folder that contains the package, so that the host finds it however this process did."""
    return Path(__file__).resolve().parents[3]
