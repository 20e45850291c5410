"""Seconds from a click in Dagster to the end of a small update, with a Spark of its own and with a warm one.

A click is the request that Dagster's pages send to launch the job `sales_update`; one file is dropped before each. The
parts: in the queue and until the run's process has loaded the code, then its steps: landing, and refresh with the
check of the whole answer. The processes keep compiled modules, as Python does by itself
unless PYTHONDONTWRITEBYTECODE is set.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from deltafold.pipelines import catalogue
from deltafold.spark.cache import cache_folder
from tests.dagster import sales
from tests.dagster.web.server import LOCATION, REPOSITORY, Server, dagster_dev

CLICKS = 6  # of each kind; the first is not counted
LAUNCH = """mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
RUN = """query($id: ID!) { runOrError(runId: $id) { ... on Run { status startTime endTime
  stepStats { stepKey startTime endTime } } } }"""


@dataclass(frozen=True)
class Click:
    """The seconds of one update: until its first step, by step, and in all."""

    before: float
    steps: dict[str, float]
    whole: float


def run() -> None:
    """Some clicks cold, then some on a warm Spark."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    folder = cache_folder("benchmarks", "click")
    shutil.rmtree(folder)
    folder.mkdir()
    pipeline = sales.declare(folder)
    laps: dict[str, list[Click]] = {}
    with dagster_dev(folder, folder) as server:
        laps["cold"] = clicks(server, pipeline, 0)
        host(folder, "start", "sales")
        try:
            laps["warm"] = clicks(server, pipeline, CLICKS)
        finally:
            host(folder, "stop", "sales")
    show(laps)


def host(folder: Path, *arguments: str) -> None:
    """Start or stop the warm Spark."""
    environment = os.environ | {"DELTAFOLD_PIPELINES": str(folder)}
    subprocess.run([sys.executable, "-m", "deltafold", "host", *arguments], check=True, env=environment)


def clicks(server: Server, pipeline: catalogue.Pipeline, first: int) -> list[Click]:
    """Drop a file and click, several times, without the first."""
    laps: list[Click] = []
    for number in range(first, first + CLICKS):
        day = f"2013-01-{number + 1:02}"
        sales.drop(pipeline, day, [(number, "abc"[number % 3], number)])
        laps.append(click(server, pipeline.name, day))
        Console().print(laps[-1])
    return laps[1:]


def click(server: Server, name: str, day: str) -> Click:
    """Launch the update of a day and wait for its end."""
    job = {"repositoryLocationName": LOCATION, "repositoryName": REPOSITORY, "pipelineName": f"{name}_update"}
    tags = [{"key": "dagster/partition", "value": day}]
    begin = time.time()
    launched = server.ask(LAUNCH, params={"selector": job, "executionMetadata": {"tags": tags}})["launchRun"]
    assert launched["__typename"] == "LaunchRunSuccess", launched
    server.wait("the run ends", lambda: state(server, launched)["status"] in ("SUCCESS", "FAILURE"), 300)
    ended = state(server, launched)
    assert ended["status"] == "SUCCESS", server.log.read_text()[-4000:]
    times = {step["stepKey"]: (step["startTime"], step["endTime"]) for step in ended["stepStats"]}
    before = min(start for start, _ in times.values()) - begin
    steps = {step: end - start for step, (start, end) in times.items()}
    return Click(before, steps, ended["endTime"] - begin)


def state(server: Server, launched: dict[str, Any]) -> dict[str, Any]:
    """The run of a click as Dagster shows it."""
    return server.ask(RUN, id=launched["run"]["runId"])["runOrError"]


def show(measured: dict[str, list[Click]]) -> None:
    """Print medians."""
    titles = ("Spark", "until the first step", "steps", "whole")
    table = Table(*titles, title="seconds from a click, medians")
    for kind, laps in measured.items():
        steps = ", ".join(f"{s} {statistics.median(lap.steps[s] for lap in laps):.1f}" for s in laps[0].steps)
        before, whole = statistics.median(lap.before for lap in laps), statistics.median(lap.whole for lap in laps)
        table.add_row(kind, f"{before:.1f}", steps, f"{whole:.1f}")
    Console(width=160).print(table)
