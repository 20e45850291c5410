"""Work with Dagster: report the work of a command to it, and do a step for it that it started through Dagster Pipes.

Commands work without Dagster, and this package does not import it: the reporter in `deltafold.dagster` is imported by
name, only if DAGSTER_HOME names an instance. If reporting fails, there is one warning; landings and refreshes are
complete anyway, and the next command reports them.

In a step, task and result are messages of Pipes, whose own materialisations have neither tags nor metadata by
partition: Dagster's side makes the same events of a result as of one of its own process. A fault is sent, too, and the
process then ends with 0: an attempt of the platform would repeat what Dagster decides to try again or not.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from deltafold.algebra.errors import UsageError, explain_missing_packages
from deltafold.cli import rendering
from deltafold.pipelines import catalogue, descriptions
from deltafold.pipelines.project_files import ProjectFiles
from deltafold.pipelines.project_tasks import ProjectTask
from deltafold.pipelines.tasks import TaskFault, explain_fault, read_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltafold.api import Landing, Report, Verification, View
    from deltafold.pipelines.catalogue import Pipeline

HOME_VARIABLE = "DAGSTER_HOME"
REPORTER = "deltafold.dagster.runless"
EXTRA = "deltafold"
"""The name, among the extras of a Pipes session, of a pipeline's name and its task."""


@dataclass(frozen=True)
class Landed:
    """Files of one source were landed, or found unchanged."""

    pipeline: Pipeline
    landing: Landing


@dataclass(frozen=True)
class Refreshed:
    """A view was refreshed, rebuilt, rolled back, rebucketed or branched; below: because a view above was refreshed."""

    pipeline: Pipeline
    view: View
    report: Report
    below: bool = False


@dataclass(frozen=True)
class Verified:
    """A view was compared with its batch query."""

    pipeline: Pipeline
    view: View
    verification: Verification


ReportedWork = Landed | Refreshed | Verified


def report_refresh(pipeline: Pipeline, view: View, report: Report) -> list[Refreshed]:
    """Report a refresh with those of the views below, the lowest first."""
    if not report.below:
        return [Refreshed(pipeline, view, report)]
    opened = descriptions.chain(pipeline, view)
    reports = {below.view: replace(below, below=report.below) for below in report.below}
    first = [Refreshed(*opened[name], reports[name], below=True) for name in opened if name in reports]
    return [*first, Refreshed(pipeline, view, report)]


def send(works: Sequence[ReportedWork], progress: Callable[[str], None] | None = None) -> bool:
    """Report to Dagster, and return whether it succeeded; a failure is one line on standard error."""
    home = os.environ.get(HOME_VARIABLE)
    if not works or not home:
        return False
    if progress:
        progress("reporting to Dagster")  # SQLite takes 10 ms or more for a partition
    try:
        with explain_missing_packages():
            importlib.import_module(REPORTER).report(works)
    except Exception as error:  # no failure of the orchestrator may fail the command: its work is done
        why = f"{type(error).__name__}: {rendering.first_line_of(error)}".rstrip(".")
        print(
            f"not reported to Dagster in {home}: {why}. The data is complete; the next command reports again, "
            f"or unset {HOME_VARIABLE}.",
            file=sys.stderr,
        )
        return False
    return True


def answer_pipes() -> None:
    """Do one step of a Dagster run, which has started this process by Dagster Pipes."""
    try:
        import dagster_pipes as pipes
    except ImportError:
        raise UsageError("step: the package dagster-pipes is not installed here. Install it.") from None
    loaders = (pipes.PipesEnvVarParamsLoader(), pipes.PipesCliArgsParamsLoader())
    loader = next((loader for loader in loaders if loader.is_dagster_pipes_process()), None)
    if loader is None and not pipes.PipesContext.is_initialized():
        raise UsageError("step: Dagster Pipes did not start this process. Run it by Dagster, or `deltafold run NAME`.")
    with pipes.open_dagster_pipes(params_loader=loader) as step:  # pyright: ignore[reportUnknownMemberType]
        step.report_custom_message(_answer(step.get_extra(EXTRA), step.log.info, step.log.error))


def _answer(asked: Mapping[str, Any], progress: Callable[[str], None], complain: Callable[[str], None]) -> Any:
    """Do a task, and return its result or its fault as JSON; complain: gets the lines of code of a fault."""
    from deltafold.spark.lost import explain_lost_spark

    shown = False
    try:
        if "project" in asked:
            files = TypeAdapter(ProjectFiles).validate_python(asked["project"])
            project_task = TypeAdapter(ProjectTask).validate_python(asked["task"])
            shown = project_task.show_rows
            with explain_lost_spark():
                return {"result": asdict(project_task.do(files.open(_start_spark), progress))}
        pipeline = catalogue.load(asked["pipeline"])
        task = read_task(asked["task"])
        shown = pipeline.declaration.show_rows_in_errors
        with explain_lost_spark():
            warehouse, view = catalogue.open(pipeline, catalogue.start_spark(pipeline))
            return {"result": asdict(task.do(pipeline, warehouse, view, progress))}
    except Exception as error:
        complain("".join(["The step failed at:\n", *traceback.format_tb(error.__traceback__)]))
        return {"fault": asdict(explain_fault(error, show_rows=shown))}


def _start_spark(name: str, settings: Mapping[str, str], options: Mapping[str, Any]) -> SparkSession:
    """Start the Spark of a project."""
    from deltafold.spark import session

    return session.start(f"deltafold {name}", settings=settings, **options)


def read_fault(answer: Mapping[str, Any]) -> TaskFault | None:
    """Return the fault of an answer, None if it is a result."""
    return TaskFault(**answer["fault"]) if "fault" in answer else None
