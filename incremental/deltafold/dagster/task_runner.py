"""Define what does the part of a step that needs Spark, and turn its errors into failed steps.

This module imports no Spark: definitions are built from it (`resources` has what runs in a step).

Errors become failed steps that show their cause, and no value of a row (pipelines/tasks.py describes them). Dagster
stores a failure with its causes in the event database, so a failure has no cause, unless the pipeline declares
`show_rows_in_errors: true`.
"""

import contextlib
import re
from collections.abc import Generator
from typing import Protocol

import dagster as dg

from deltafold.algebra.errors import DeltafoldError
from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.project_files import ProjectFiles
from deltafold.pipelines.project_tasks import ProjectResult, ProjectTask
from deltafold.pipelines.tasks import Task, TaskFault, TaskResult, explain_fault

StepContext = dg.OpExecutionContext | dg.AssetExecutionContext

RESOURCE_KEY = "deltafold"  # the resource of a step, by default
CRASHES = dg.RetryPolicy(max_retries=2, delay=10, backoff=dg.Backoff.EXPONENTIAL)


REBUILD = "In Dagster, a run rebuilds what it selects if the config of its step has `rebuild: true`"
_ASKS_FOR_REBUILD = re.compile(r"\brebuild (it|the views?)\b", re.IGNORECASE)


class CancelledStepError(dg.DagsterExecutionInterruptedError, dg.DagsterError):
    """A step's run was cancelled. As a DagsterError it ends the run: other interrupts are tried again by CRASHES."""


@contextlib.contextmanager
def end_when_cancelled() -> Generator[None]:
    """Raise CancelledStepError for an interrupt of the body."""
    try:
        yield
    except (dg.DagsterExecutionInterruptedError, KeyboardInterrupt) as interrupt:
        raise CancelledStepError from interrupt


@contextlib.contextmanager
def failures(pipeline: Pipeline) -> Generator[None]:
    """Raise the exceptions of the body as Dagster Failures, without values of rows unless the pipeline shows them.

    Raises:
        dg.Failure: with the traceback of the exception, whose lines are code.
        CancelledStepError: the run was cancelled.
    """
    with explained_failures(show_rows=pipeline.declaration.show_rows_in_errors):
        yield


@contextlib.contextmanager
def explained_failures(*, show_rows: bool) -> Generator[None]:
    """Raise as `failures` does; show_rows: with values of rows."""
    from deltafold.spark.lost import explain_lost_spark

    try:
        with end_when_cancelled(), explain_lost_spark():
            yield
    except CancelledStepError:
        raise
    except Exception as error:
        if show_rows and not isinstance(error, DeltafoldError):
            raise
        failure = failure_of(explain_fault(error, show_rows=show_rows))
        raise failure.with_traceback(error.__traceback__) from (error if show_rows else None)


def failure_of(fault: TaskFault) -> dg.Failure:
    """Return the failure of a step for a fault, which the step's policy tries again if that may help."""
    metadata = {name: dg.MetadataValue.text(text) for name, text in fault.parts.items()}
    sentence = fault.sentence
    if _ASKS_FOR_REBUILD.search(sentence):
        sentence = f"{sentence}\n{REBUILD}." if "\n" in sentence else f"{sentence.rstrip('.')}. {REBUILD}."
    return dg.Failure(sentence, metadata=metadata, allow_retries=fault.again)


class TaskRunner(Protocol):
    """Does the part of a step that needs Spark, in this process or in another one."""

    def run(self, context: StepContext, pipeline: Pipeline, task: Task[TaskResult]) -> TaskResult:
        """Do a task on a pipeline, and log its progress to the run.

        Raises:
            dg.Failure: with the sentence of the error, without values of rows unless the pipeline shows them.
        """
        ...

    def run_project(self, context: StepContext, files: ProjectFiles, task: ProjectTask) -> ProjectResult:
        """Do a task on a project, likewise."""
        ...
