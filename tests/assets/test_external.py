"""Steps in processes of their own, through Dagster Pipes: the same events, failures and ends as in one process."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from assets import factory, keys
from assets.external import SubmittedSpark, run_group
from assets.partitions import RANGE_END, RANGE_START
from assets.resources import SparkResource, TaskRunner
from assets.steps import landing
from pipelines import catalogue
from tests.assets import sales
from tests.night import in_turns

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

DELTAFOLD = [sys.executable, "-m", "deltafold"]
DAYS = {RANGE_START: "2013-01-01", RANGE_END: "2013-01-03"}
MEASURED = {"seconds", "phases", "cost", "summary", "jobs", "rows read"}
"""What two runs of the same work measure differently; the summary has its seconds."""


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> catalogue.Pipeline:
    monkeypatch.setenv(catalogue.FOLDER_VARIABLE, str(tmp_path))
    return sales.declare(tmp_path)


def run(
    pipeline: catalogue.Pipeline, spark: TaskRunner, job: str, tags: Mapping[str, str] | None = None, **more: Any
) -> dg.ExecuteInProcessResult:
    """Run a job of the pipeline, on an instance of its own unless one is given."""
    defined = factory.build({pipeline.name: pipeline}, {}, spark)
    chosen = defined.resolve_job_def(job)
    return chosen.execute_in_process(tags=tags, raise_on_error=False, **more)


def events(result: dg.ExecuteInProcessResult) -> list[Any]:
    """The materialisations and checks of a run, without what is measured."""
    found: list[Any] = []
    for event in result.all_events:
        if event.is_step_materialization:
            made = event.step_materialization_data.materialization
            found.append((made.asset_key, made.partition, made.description, made.tags, compared(made.metadata)))
        elif event.event_type_value == "ASSET_CHECK_EVALUATION":
            check = event.asset_check_evaluation_data
            found.append((check.asset_key, check.check_name, check.passed, check.severity, compared(check.metadata)))
    return found


def compared(metadata: Mapping[str, dg.MetadataValue]) -> dict[str, object]:
    return {name: type(value) if name in MEASURED else value for name, value in metadata.items()}


def failure(result: dg.ExecuteInProcessResult) -> tuple[str, int]:
    """The sentence of the only failed step, and how often it was tried again."""
    [failed] = result.get_step_failure_events()
    assert failed.step_failure_data.user_failure_data is not None, failed.step_failure_data.error
    again = sum(event.is_step_up_for_retry for event in result.all_events)
    return failed.step_failure_data.user_failure_data.description or "", again


@in_turns
def test_the_same_events_as_in_one_process(pipeline: catalogue.Pipeline, spark: SparkSession) -> None:
    """Protects from a run whose pages show less, or whose assets look outdated, since Spark ran elsewhere."""
    sales.drop(pipeline, "2013-01-01", [(1, "a", 5), (2, "b", 3)])
    sales.drop(pipeline, "2013-01-03", [(3, "a", 9)])
    results: list[list[Any]] = []
    for resource in (SparkResource(), SubmittedSpark(command=DELTAFOLD)):
        shutil.rmtree(pipeline.warehouse, ignore_errors=True)
        result = run(pipeline, resource, "sales_update", DAYS)
        assert result.success
        results.append(events(result))
    assert results[0] == results[1]
    assert [key for key, *_ in results[0]] == [keys.landed("sales", "sales")] * 3 + [
        keys.state("sales"),
        keys.view("sales"),
        keys.view("sales"),
    ]
