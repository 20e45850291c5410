"""How errors become failed steps: the sentence, whether it is retried, and which values Dagster stores."""

from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterExecutionInterruptedError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from deltafold.algebra.errors import BusyError, DeltafoldError, Refusal, RefusedError, SourceError
from deltafold.algebra.results.report import Verification
from deltafold.dagster import metadata
from deltafold.dagster.task_runner import CRASHES, failures
from deltafold.pipelines.catalogue import Pipeline
from tests.dagster import sales

SECRET = "4111-1111"
SHOWN = "show_rows_in_errors: true\n"
FAULT = SourceError(
    f"sales was not landed: {SECRET} in card is not a valid INT. Correct the file", "sales was not landed"
)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return sales.declare(tmp_path)


def stored(pipeline: Pipeline, error: Exception) -> list[str]:
    """All that an instance stores of a run whose step raises the error, event by event."""

    @dg.op(retry_policy=dg.RetryPolicy(max_retries=1))
    def step() -> None:
        with failures(pipeline):
            try:
                raise ValueError(f"the value {SECRET} cannot be cast")  # as Spark does, below an error of ours
            except ValueError as cause:
                raise error from cause

    @dg.job
    def job() -> None:
        step()

    with dg.DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(instance=instance, raise_on_error=False)
        assert not done.success
        return [dg.serialize_value(entry) for entry in instance.all_logs(done.run_id)]


@pytest.mark.parametrize("error", [FAULT, RuntimeError(f"no {SECRET}"), KeyError(SECRET)], ids=repr)
def test_no_value_of_a_row_reaches_the_event_database(pipeline: Pipeline, error: Exception) -> None:
    """Protects those whose data it is from all who may open Dagster's pages: messages, causes, retries, tracebacks."""
    events = stored(pipeline, error)
    assert not [event for event in events if SECRET in event]
    told = "".join(events)
    assert "show_rows_in_errors" in told
    assert "sales was not landed" in told if error is FAULT else type(error).__name__ in told
    assert "raise error from cause" in told  # where it happened


def test_a_crash_of_spark_has_its_name_of_the_error_alone(pipeline: Pipeline, spark: SparkSession) -> None:
    """Protects from what Spark itself says of a value, in its message and in Java's stack trace."""
    with pytest.raises(PySparkException) as raised:
        spark.createDataFrame([(SECRET,)], "card STRING").selectExpr("CAST(card AS INT)").collect()
    assert SECRET in str(raised.value)
    events = "".join(stored(pipeline, raised.value))
    assert SECRET not in events
    assert "NumberFormatException [CAST_INVALID_INPUT]" in events


def test_a_pipeline_may_show_values(tmp_path: Path) -> None:
    pipeline = sales.declare(tmp_path, sales.DAILY + SHOWN)
    assert f"sales was not landed: {SECRET} in card" in "".join(stored(pipeline, FAULT))
    assert f"no {SECRET}" in "".join(stored(pipeline, RuntimeError(f"no {SECRET}")))


def test_a_failed_check_shows_rows_only_where_the_pipeline_says_so() -> None:
    found = Verification(
        view="sales",
        ok=False,
        missing=1,
        extra=0,
        rows=3,
        versions={"sales": 2},
        sample=(f"missing {{'card': '{SECRET}'}}",),
        sentence="sales differs.",
    )
    assert "sample" not in metadata.of_verification(found, show_rows=False)
    assert SECRET in str(metadata.of_verification(found, show_rows=True)["sample"].value)


@pytest.mark.parametrize(
    ("error", "again"), [(SourceError("sales is not there; drop its files."), False), (BusyError("Wait."), True)]
)
def test_the_sentence_is_the_description_and_only_waiting_helps(
    pipeline: Pipeline, error: DeltafoldError, again: bool
) -> None:
    with pytest.raises(dg.Failure) as raised, failures(pipeline):
        raise error
    assert raised.value.description == str(error)
    assert raised.value.allow_retries is again


def test_a_refusal_tells_its_parts(pipeline: Pipeline) -> None:
    with pytest.raises(dg.Failure) as raised, failures(pipeline):
        raise RefusedError((Refusal("limit 5", "it is not stable", "order the rows"),))
    told = {name: value.value for name, value in raised.value.metadata.items()}
    assert told == {
        "error": "RefusedError",
        "node": "limit 5",
        "because": "it is not stable",
        "instead": "order the rows",
    }


def test_a_crash_is_retried_and_names_what_the_system_says(pipeline: Pipeline) -> None:
    with pytest.raises(dg.Failure) as raised, failures(pipeline):
        raise PermissionError(13, "Permission denied", "/lake/sales")
    assert raised.value.description == "PermissionError: Permission denied: /lake/sales"
    assert raised.value.allow_retries
    assert CRASHES.max_retries > 0


def test_a_cancelled_step_is_not_tried_again(pipeline: Pipeline) -> None:
    """Protects from a run that goes on after it was cancelled: Dagster tries interrupted steps again, by the policy."""
    attempts: list[int] = []

    @dg.op(retry_policy=dg.RetryPolicy(max_retries=1))
    def step() -> None:
        with failures(pipeline):
            attempts.append(1)
            raise KeyboardInterrupt

    @dg.job
    def job() -> None:
        step()

    with pytest.raises(DagsterExecutionInterruptedError):
        job.execute_in_process()
    assert len(attempts) == 1
