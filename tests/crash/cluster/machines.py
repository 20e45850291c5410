"""Run a Spark standalone cluster on the loopback, whose workers can be killed.

Each process is a group of its own, so that a worker is killed together with its executor, like a machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

from deltafold.spark.jvm.java import launch_environment, provide_java
from tests.ports import free_ports

SECONDS = 90


@dataclass
class Cluster:
    """A running master and its workers."""

    folder: Path
    port: int
    page: int
    started: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    @property
    def address(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    @property
    def alive(self) -> int:
        """How many workers the master knows to be alive; 0 before it answers."""
        try:
            with urlopen(f"http://127.0.0.1:{self.page}/json/", timeout=10) as answer:
                return sum(worker["state"] == "ALIVE" for worker in json.load(answer)["workers"])
        except OSError:
            return 0

    def start(self, role: str, *arguments: str) -> None:
        """A master or a worker, by Spark's own class for it."""
        environment = os.environ | launch_environment(provide_java())
        name = f"org.apache.spark.deploy.{role.lower()}.{role}"
        command = [f"{environment['SPARK_HOME']}/bin/spark-class", name, "--host", "127.0.0.1", *arguments]
        with (self.folder / f"{role}-{len(self.started)}.log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        self.started.append(process)

    def kill_a_worker(self) -> None:
        """Kill the last worker and its executor, without a shutdown."""
        end(self.started.pop())

    def wait(self, workers: int) -> None:
        """Wait until a number of workers is alive; AssertionError after the timeout."""
        deadline = time.monotonic() + SECONDS
        while self.alive != workers:
            assert time.monotonic() < deadline, f"not {workers} workers: see {self.folder}"
            time.sleep(0.5)


@contextlib.contextmanager
def cluster(folder: Path, workers: int = 2, memory: str = "1G") -> Iterator[Cluster]:
    """A master and workers of one core each; all ended with the block."""
    folder.mkdir()
    port, page = free_ports(2)
    found = Cluster(folder, port, page)
    try:
        found.start("Master", "--port", str(found.port), "--webui-port", str(found.page))
        for number in range(workers):
            place = ("--work-dir", str(folder / f"worker-{number}"), "--webui-port", "0")
            found.start("Worker", "--cores", "1", "--memory", memory, *place, found.address)
        found.wait(workers)
        yield found
    finally:
        for process in found.started:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
