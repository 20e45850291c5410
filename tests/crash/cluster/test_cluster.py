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


@night
@pytest.mark.parametrize("kept", [False, True])
def test_rows_outlive_an_executor_in_the_folder_of_checkpoints(tmp_path: Path, kept: bool) -> None:
    """Protects from a folder that is set and not used: without one the rows are lost."""
    with cluster(tmp_path / "cluster") as machines:
        command = [sys.executable, "-m", "tests.crash.cluster.kept", machines.address]
        command += [str(tmp_path / "kept")] if kept else []
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=PROJECT, stdin=pipe, stdout=pipe, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == "computed"
            machines.kill_a_worker()
            told = child.communicate("go on\n")[0].strip()
        assert told == "1000" if kept else "not found" in told
        assert not list(tmp_path.glob("kept/**/part-*"))
