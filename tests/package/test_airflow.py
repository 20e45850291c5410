"""The DAG file of docs/how-to/airflow.md, parsed and called by Airflow in an environment of its own."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

from deltafold.cli import exit_codes
from tests.night import night
from tests.package.environments import environment
from tests.spark.machine import PROJECT

PAGE = PROJECT / "docs" / "how-to" / "airflow.md"
DAGS = PROJECT / "docs" / "airflow" / "deltafold_dag.py"
CALLED = """
import subprocess
from pathlib import Path
from airflow.exceptions import AirflowFailException
import deltafold_dag

assert set(deltafold_dag.hourly.task_ids) == {"refresh"}, deltafold_dag.hourly.task_ids
assert deltafold_dag.nightly.get_task("verify").downstream_task_ids == {"maintain"}
assert deltafold_dag.hourly.get_task("refresh").retries == 3
for code in (0, 1, 2, 3, 4, 5, 70, 75):
    Path("bin/deltafold").write_text(f'#!/bin/sh\\necho "$@"; exit {code}\\n')
    Path("bin/deltafold").chmod(0o755)
    try:
        deltafold_dag.refresh.function("revenue")
    except AirflowFailException:
        print(code, "fails")
    except subprocess.CalledProcessError:
        print(code, "is tried again")
"""


def test_the_page_and_the_file_have_the_codes_of_the_command() -> None:
    codes = {0, exit_codes.UNEQUAL, exit_codes.USAGE, exit_codes.REFUSED, exit_codes.DATA, exit_codes.BUSY}
    codes |= {exit_codes.UNEXPECTED, exit_codes.LOST}
    rows = re.findall(r"^\| (\d+) \| .* \| (no|yes|–)(?:: .*)? \|$", PAGE.read_text(), re.MULTILINE)
    assert {int(code) for code, _ in rows} == codes
    (refused,) = [
        ast.literal_eval(node.value)
        for node in ast.parse(DAGS.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "NO_RETRY"
    ]
    assert {int(code) for code, again in rows if again == "no"} == refused.keys()


@night
def test_airflow_reads_and_runs_the_file(tmp_path: Path) -> None:
    commands = environment(tmp_path / "env", ["apache-airflow>=3"], pinned=False)
    folder = tmp_path / "dags"
    (folder / "bin").mkdir(parents=True)
    (folder / DAGS.name).write_text(DAGS.read_text())
    variables = {"AIRFLOW_HOME": str(tmp_path / "airflow"), "PATH": f"{folder / 'bin'}:/usr/bin:/bin"}
    program = [str(commands / "python"), "-W", "error::DeprecationWarning:deltafold_dag", "-c", CALLED]
    done = subprocess.run(program, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers = [line for line in done.stdout.splitlines() if line.endswith(("fails", "again"))]
    assert answers == [
        *("1 fails", "2 fails", "3 fails"),
        *(f"{code} is tried again" for code in (4, 5, 70, 75)),
    ]
