"""A pipeline on a warm Spark: faster runs, and a host that dies in the middle of one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.night import night
from tests.spark.machine import PROJECT

SPARK = "\nspark: {memory: 701m, warm: required}\n"  # a heap that no other host has


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a pipeline that needs a host; hosts that the test leaves are stopped."""
    monkeypatch.setenv("DELTAFOLD_PIPELINES", str(tmp_path / "pipelines"))
    monkeypatch.delenv("DELTAFOLD_SPARK_HOST", raising=False)
    done = call("new", "shop")
    assert done.returncode == 0, done.stderr
    home = tmp_path / "pipelines" / "shop"
    (home / "pipeline.yaml").write_text((home / "pipeline.yaml").read_text() + SPARK)
    yield home
    call("host", "stop", "shop", "--now")


def begin(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "deltafold", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=PROJECT)


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    process = begin(*arguments)
    said, complained = process.communicate(timeout=300)
    return subprocess.CompletedProcess(arguments, process.returncode, said, complained)


def hosts() -> list[dict[str, object]]:
    found = json.loads(call("host", "status", "--json").stdout)
    return [each for each in found if each["spark"] == "local[*], 701m"]


@night
def test_a_host_serves_runs_and_its_death_loses_nothing(home: Path) -> None:
    """Protects from a run on a Spark that nobody asked for, and from an epoch that nobody can finish."""
    without = call("run", "shop")
    assert without.returncode != 0 and "there is no such file" in without.stderr
    assert call("host", "start", "shop").stdout.startswith("Spark host: local[*], 701m runs as process ")
    assert "epoch 1 applied" in call("run", "shop").stdout
    (started,) = hosts()
    assert started["guests"] == 0
    (home / "data" / "sales" / "day=2024-05-09").mkdir()
    (home / "data" / "sales" / "day=2024-05-09" / "new.csv").write_text("id,shop,product,amount\n99,s1,tea,3.30\n")
    running = begin("run", "shop")
    while running.poll() is None and hosts()[0]["guests"] == 0:
        time.sleep(0.1)
    busy = call("host", "stop", "shop")
    assert (busy.returncode, "has 1 guests" in busy.stderr) == (5, True)
    os.kill(int(str(started["process"])), signal.SIGKILL)
    _, said = running.communicate(timeout=60)
    assert (running.returncode, said.splitlines()[-1][:40]) == (75, "Spark ended during the work: its process"), said
    assert hosts() == []
    assert call("host", "start", "shop").returncode == 0
    again = call("run", "shop")
    assert again.returncode == 0, again.stderr
    assert call("verify", "shop").returncode == 0
    assert call("host", "stop", "shop").stdout.endswith("has ended.\n")
    assert hosts() == []
