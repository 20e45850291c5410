"""Refresh the pipeline `revenue` every hour, and verify and maintain it every night, by the command `deltafold`."""

from __future__ import annotations

import subprocess
from datetime import datetime, timedelta

from airflow.exceptions import AirflowFailException
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, task

PIPELINE = "revenue"
NO_RETRY = {1: "the answer is wrong", 2: "the call or the declaration is", 3: "the query was refused or has changed"}
"""The exit codes of `deltafold` that another try would give again; 4, 5, 70 and 75 may pass."""


@task(retries=3, retry_delay=timedelta(minutes=5), max_active_tis_per_dag=1)
def refresh(name: str) -> None:
    """Land and refresh a pipeline; the next try finishes what a failed one began."""
    done = subprocess.run(["deltafold", "run", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    if done.returncode in NO_RETRY:
        raise AirflowFailException(f"deltafold ended with {done.returncode}: {NO_RETRY[done.returncode]}")
    done.check_returncode()


with DAG(
    "deltafold_hourly", schedule="@hourly", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1
) as hourly:
    refresh(PIPELINE)

with DAG("deltafold_nightly", schedule="0 3 * * *", start_date=datetime(2026, 1, 1), catchup=False) as nightly:
    verify = BashOperator(task_id="verify", bash_command=f"deltafold verify {PIPELINE} --sample 1%")
    maintain = BashOperator(task_id="maintain", bash_command=f"deltafold maintain {PIPELINE}", retries=1)
    verify >> maintain
