"""Do the part of a step that needs Spark: in the process of the run, or in one of its own through Dagster Pipes.

SparkResource keeps the contract of dagster-pyspark's LazyPySparkResource (`spark_session`, `spark_context`,
`spark_config`), and starts Spark with Delta Lake, at its first use, with the settings of the resource and of the
pipeline. Where a host keeps a Spark with these settings (`deltafold host start`), the run attaches to it. `host` names
another one's file.

PipesSpark starts a process that runs `deltafold step`: under spark-submit, or as a job of a platform. It gets the task,
and sends back the result, from which the step makes the same events as from one of Dagster's own process. Its progress
is logged to the run; its standard output and error are the run's, where the client of the platform shows them.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from deltafold.cli.orchestrator import EXTRA, read_fault
from deltafold.dagster.task_runner import StepContext, end_when_cancelled, explained_failures, failure_of, failures
from deltafold.pipelines import catalogue
from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.declaration.declaration import SparkPart
from deltafold.pipelines.project_files import ProjectFiles
from deltafold.pipelines.project_tasks import ProjectResult, ProjectTask, read_project_result
from deltafold.pipelines.tasks import Task, TaskResult, read_result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltafold.api import View, Warehouse

HOST_VARIABLE = "DELTAFOLD_SPARK_HOST"
SUBMIT_VARIABLE = "DELTAFOLD_SUBMIT"
AGAIN = "What was begun is finished by the next attempt or run."
GRACE_SECONDS = 20.0  # for a process that is asked to end


class SparkResource(LazyPySparkResource):
    """A Spark session with Delta Lake, started at its first use, or attached to a warm host."""

    spark_config: dict[str, str] = Field(
        default_factory=dict, description="Spark settings for every pipeline; a pipeline's own settings win."
    )
    master: str | None = Field(default=None, description="Master URL; a pipeline's own wins.")
    memory: str | None = Field(default=None, description="Heap of the driver, such as 2g; a pipeline's own wins.")
    host: str | None = Field(
        default=None,
        description="File of a warm Spark host: runs attach to that Spark, and start their own only if it is gone.",
    )

    def run(self, context: StepContext, pipeline: Pipeline, task: Task[TaskResult]) -> TaskResult:
        """Do a task on a pipeline in this process; see TaskRunner."""
        with failures(pipeline):
            warehouse, view = self.open(pipeline)
            return task.do(pipeline, warehouse, view, context.log.info)

    def open(self, pipeline: Pipeline) -> "tuple[Warehouse, View]":
        """Open a pipeline's warehouse and view, on a Spark with the pipeline's settings.

        Raises:
            DeltafoldError: for an invalid declaration or query, or a missing part of this machine's setup.
        """
        return catalogue.open(pipeline, self._session_for(pipeline.name, pipeline.declaration.spark))

    def run_project(self, context: StepContext, files: ProjectFiles, task: ProjectTask) -> ProjectResult:
        """Do a task on a project in this process; see TaskRunner."""

        def start(name: str, settings: Mapping[str, str], options: Mapping[str, Any]) -> "SparkSession":
            # not validated as a pipeline.yaml is: the configuration of a Spark pipeline may have any setting
            return self._session_for(name, SparkPart.model_construct(settings=dict(settings), **options))

        with explained_failures(show_rows=task.show_rows):
            return task.do(files.open(start), context.log.info)

    def _session_for(self, name: str, wished: SparkPart) -> "SparkSession":
        from deltafold.spark.lost import was_lost

        session = self._started
        if session is None or was_lost(session):
            self._spark_session = session = self._start(f"deltafold {name}", wished)
        return session

    @property
    def _started(self) -> "SparkSession | None":
        return cast("SparkSession | None", self._spark_session)  # None before the first use, unlike its declared type

    def _init_session(self) -> None:
        if self._started is None:
            self._spark_session = self._start("deltafold", SparkPart())

    def _start(self, name: str, wished: SparkPart) -> "SparkSession":
        # Imported here, so that loading the definitions is fast.
        from deltafold.spark import session

        if self.host:
            os.environ[HOST_VARIABLE] = self.host
        named = {"master": wished.master or self.master, "memory": wished.memory or self.memory}
        options: Any = {name: value for name, value in named.items() if value}
        return session.start(name, settings={**self.spark_config, **wished.settings}, warm=wished.warm, **options)


@dataclass(frozen=True)
class SessionSpark:
    """A Spark session with Delta Lake that another resource of the user's has started."""

    session: "SparkSession"

    def run(self, context: StepContext, pipeline: Pipeline, task: Task[TaskResult]) -> TaskResult:
        """Do a task on a pipeline in this process; see TaskRunner."""
        with failures(pipeline):
            return task.do(pipeline, *catalogue.open(pipeline, self.session), context.log.info)

    def run_project(self, context: StepContext, files: ProjectFiles, task: ProjectTask) -> ProjectResult:
        """Do a task on a project in this process; see TaskRunner."""

        def start(name: str, settings: Mapping[str, str], options: Mapping[str, Any]) -> "SparkSession":
            return self.session

        with explained_failures(show_rows=task.show_rows):
            return task.do(files.open(start), context.log.info)


class PipesAnswers(Protocol):
    """What a client of Dagster Pipes returns; a `dg.PipesSession` is one, too."""

    def get_custom_messages(self) -> Sequence[Any]:
        """Return the messages that the process sent."""
        ...


class PipesSpark(dg.ConfigurableResource[Any], ABC):
    """Spark in another process for each step; a subclass starts it by a client of Dagster Pipes."""

    @abstractmethod
    def launch(self, context: StepContext, extras: Mapping[str, Any]) -> PipesAnswers:
        """Run `deltafold step` on the platform to its end, by `client.run(context=context, extras=extras, …)`."""

    def run(self, context: StepContext, pipeline: Pipeline, task: Task[TaskResult]) -> TaskResult:
        """Do a task on a pipeline in another process; see TaskRunner."""
        if not pipeline.in_folder:
            raise dg.Failure(
                f"{pipeline.name}: another process cannot load a view that is declared in Python or defs.yaml. Declare "
                "it in a folder of pipelines, or use SparkResource.",
                allow_retries=False,
            )
        asked = {"pipeline": pipeline.name, "task": asdict(task)}  # pyright: ignore[reportArgumentType]
        return read_result(task, self._ask(context, pipeline.name, asked))

    def run_project(self, context: StepContext, files: ProjectFiles, task: ProjectTask) -> ProjectResult:
        """Do a task on a project in another process, which finds its files at the same path; see TaskRunner."""
        asked = {"project": {**asdict(files), "path": str(files.path)}, "task": asdict(task)}
        return read_project_result(self._ask(context, files.name, asked))

    def _ask(self, context: StepContext, name: str, asked: Mapping[str, Any]) -> Any:
        """Return the result of a task that another process does."""
        with end_when_cancelled():
            answers = self.launch(context, {EXTRA: asked}).get_custom_messages()
        if not answers:
            raise dg.Failure(
                f"{name}: the process of this step ended without a result: it does not run `deltafold step`, "
                f"or its messages did not arrive. See its output and the logs of this run, and correct how it is "
                f"started. {AGAIN}"
            )
        if fault := read_fault(answers[-1]):
            raise failure_of(fault)
        return answers[-1]["result"]


class SubmittedSpark(PipesSpark):
    """Spark in a process that a command on this machine starts, such as spark-submit in client mode."""

    command: str = Field(
        description="The command line of Deltafold, such as: spark-submit --master yarn job.py; `step` is added. "
        "Quotes are those of a shell."
    )

    def launch(self, context: StepContext, extras: Mapping[str, Any]) -> PipesAnswers:
        """Run the command to its end.

        Raises:
            dg.Failure: it cannot be started, or it ended with an error before it sent a result.
        """
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            why = (
                f"{SUBMIT_VARIABLE}: {str(error).lower()} in {self.command}. Correct it, and reload the code location."
            )
            raise dg.Failure(why, allow_retries=False) from error
        with dg.open_pipes_session(
            context=context,
            context_injector=dg.PipesTempFileContextInjector(),
            message_reader=dg.PipesTempFileMessageReader(),
            extras=extras,
        ) as session:
            try:
                code = run_group([*words, "step"], os.environ | session.get_bootstrap_env_vars())
            except OSError as error:
                why = f"{words[0]}: it cannot be started: {error.strerror}. Correct {SUBMIT_VARIABLE}."
                raise dg.Failure(why, allow_retries=False) from error
        if code and not session.get_custom_messages():
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
            raise dg.Failure(
                f"{self.command} ended {how} before it sent a result. See its output, which is that of the run, and "
                f"correct {SUBMIT_VARIABLE} if it is wrong. {AGAIN}"
            )
        return session


def spark_resource() -> SparkResource | SubmittedSpark:
    """Return the Spark that the environment asks for: of the command DELTAFOLD_SUBMIT, else in the step's process."""
    command = os.environ.get(SUBMIT_VARIABLE, "").strip()
    return SubmittedSpark(command=command) if command else SparkResource()


def run_group(command: Sequence[str], environment: Mapping[str, str], grace: float = GRACE_SECONDS) -> int:
    """Run a command to its end, and return its exit code, or -number of the signal that ended it.

    If this process is interrupted, the command is ended, too, with all processes that it started: asked by SIGINT, and
    killed after `grace` seconds. Raises OSError if it cannot be started.
    """
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait()
    except BaseException:
        try:
            end_group(process, grace)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        raise


def end_group(process: subprocess.Popen[bytes], grace: float) -> None:
    """Ask all processes of a group to end, and wait for it at most `grace` seconds."""
    deadline = time.monotonic() + grace
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
        while time.monotonic() < deadline:
            process.poll()
            os.killpg(process.pid, 0)  # raises once none is left
            time.sleep(0.2)
