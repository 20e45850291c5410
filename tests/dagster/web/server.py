"""Run a real `dagster dev` over a folder of pipelines, and call its GraphQL API on the loopback.

The server is a process group of its own, ended by its id. Its home is set up from the project's own dagster.yaml.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import dagster as dg

PROJECT = Path(__file__).parents[3]
LOCATION, REPOSITORY = "deltafold", "__repository__"

LAUNCH = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on PythonError { message } } }"""
BACKFILLS = """{ partitionBackfillsOrError { ... on PartitionBackfills { results { status } } } }"""
RUNS = """{ runsOrError { ... on Runs { results {
  runId status jobName assetSelection { path } tags { key value } } } } }"""


@dataclass(frozen=True)
class Server:
    """A running `dagster dev`."""

    port: int
    log: Path

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """The data of a GraphQL query's answer."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = Request(f"http://127.0.0.1:{self.port}/graphql", body, {"Content-Type": "application/json"})
        with urlopen(request, timeout=120) as answer:
            found = json.load(answer)
        assert "errors" not in found, found["errors"]
        return found["data"]

    def backfill(self, **params: Any) -> None:
        """Launches a backfill."""
        launched = self.ask(LAUNCH, params=params)["launchPartitionBackfill"]
        assert launched["__typename"] == "LaunchBackfillSuccess", launched

    def backfills(self) -> list[str]:
        """Return the status of all backfills, the newest first."""
        return [each["status"] for each in self.ask(BACKFILLS)["partitionBackfillsOrError"]["results"]]

    def runs(self) -> list[dict[str, Any]]:
        """All runs, oldest first."""
        return self.ask(RUNS)["runsOrError"]["results"][::-1]

    def wait(self, what: str, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until a condition is true; AssertionError, with the end of the log, after the timeout."""
        deadline = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < deadline, f"{what}: not in {seconds} s\n{self.log.read_text()[-4000:]}"
            time.sleep(1)


@contextlib.contextmanager
def dagster_dev(folder: Path, pipelines: Path, location: Path | None = None) -> Iterator[Server]:
    """Start `dagster dev`, and end it with all of its processes; location: a Python file, else this project's own."""
    target = ["-f", str(location)] if location else ["-w", str(PROJECT / "workspace.yaml")]
    home = folder / "home"
    home.mkdir()
    shutil.copy(PROJECT / "dagster.yaml", home)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "DELTAFOLD_PIPELINES": str(pipelines),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    command = ["-m", "dagster", "dev", *target, "-h", "127.0.0.1", "-p", str(port)]
    log = folder / "dagster.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, *command],
            env=environment,
            cwd=PROJECT,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = Server(port, log)
    try:
        server.wait("the server answers", lambda: _answers(server, process), 120)
        yield server
    finally:
        _end(process)


def instance_of(folder: Path) -> dg.DagsterInstance:
    """The instance that a server of this folder writes to."""
    return dg.DagsterInstance.from_config(str(folder / "home"))


def _answers(server: Server, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, server.log.read_text()[-4000:]
    try:
        return bool(server.ask("{ version }")["version"])
    except (URLError, OSError):
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process group, code servers and runs included, and kill it after a while."""
    for number, patience in ((signal.SIGINT, 30), (signal.SIGKILL, 30)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # kills processes that have not ended
        return
