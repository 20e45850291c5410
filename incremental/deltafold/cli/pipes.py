"""Do the task of a Dagster step in this process, which was started through Dagster Pipes, and send back its result.

Task and result are messages of Pipes, whose own materialisations have neither tags nor metadata by partition: Dagster's
side makes the same events of a result as of one of its own process. A fault is sent, too, and the process then ends
with 0: an attempt of the platform would repeat what Dagster decides to try again or not.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from deltafold.algebra.errors import UsageError
from deltafold.pipelines import catalogue
from deltafold.pipelines.faults import TaskFault, explain_fault
from deltafold.pipelines.tasks import read_task

EXTRA = "deltafold"
"""The name, among the extras of a Pipes session, of a pipeline's name and its task."""


def answer_pipes() -> None:
    """Do one step of a Dagster run, which has started this process by Dagster Pipes."""
    try:
        from dagster_pipes import PipesCliArgsParamsLoader, PipesContext, PipesEnvVarParamsLoader, open_dagster_pipes
    except ImportError:
        raise UsageError("step: the package dagster-pipes is not installed here. Install it.") from None
    loaders = (PipesEnvVarParamsLoader(), PipesCliArgsParamsLoader())
    loader = next((each for each in loaders if each.is_dagster_pipes_process()), None)
    if loader is None and not PipesContext.is_initialized():
        raise UsageError("step: Dagster Pipes did not start this process. Run it by Dagster, or `deltafold run NAME`.")
    with open_dagster_pipes(params_loader=loader) as pipes:
        pipes.report_custom_message(_answer(pipes.get_extra(EXTRA), pipes.log.info, pipes.log.error))


def _answer(asked: Mapping[str, Any], progress: Callable[[str], None], complain: Callable[[str], None]) -> Any:
    """Do a task, and return its result or its fault as JSON; complain: gets the lines of code of a fault."""
    from deltafold.spark.lost import explain_lost_spark

    shown = False
    try:
        pipeline, task = catalogue.load(asked["pipeline"]), read_task(asked["task"])
        shown = pipeline.declaration.show_rows_in_errors
        with explain_lost_spark():
            warehouse, view = catalogue.open(pipeline, catalogue.start_spark(pipeline))
            return {"result": asdict(task.do(pipeline, warehouse, view, progress))}
    except Exception as error:
        complain("".join(["The step failed at:\n", *traceback.format_tb(error.__traceback__)]))
        return {"fault": asdict(explain_fault(error, shown))}


def read_fault(answer: Mapping[str, Any]) -> TaskFault | None:
    """Return the fault of an answer, None if it is a result."""
    return TaskFault(**answer["fault"]) if "fault" in answer else None
