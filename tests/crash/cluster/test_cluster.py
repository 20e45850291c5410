"""A Spark standalone cluster of two workers, one of which is killed in the middle of a refresh."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.cluster.machines import cluster
from tests.night import night
from tests.spark.machine import PROJECT


@night
@pytest.mark.parametrize("step", ["chunk 2 of", "merge state_1"])
def test_a_worker_is_killed(tmp_path: Path, step: str) -> None:
    """Protects from rows that are lost with the memory of a machine: what it held is computed again."""
    with cluster(tmp_path / "cluster") as machines:
        command = [sys.executable, "-m", "tests.crash.cluster.night", machines.address, str(tmp_path / "night")]
        lines: list[str] = []
        with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as night:
            assert night.stdout is not None
            for line in night.stdout:
                lines.append(line)
                if line.startswith(step) and machines.alive == 2:
                    machines.kill_a_worker()
        assert night.returncode == 0, "".join(lines)
    told = json.loads(lines[-1])
    assert told["ok"], lines
    assert told["executors"] == 1
    assert told["epochs"] == list(range(1, len(told["epochs"]) + 1))
    assert len(told["epochs"]) > 3
