"""Provide the Spark session of a run, started when first needed, from the settings of the resource and pipeline.

SparkResource keeps the contract of dagster-pyspark's LazyPySparkResource (`spark_session`, `spark_context`,
`spark_config`), and starts Spark with Delta Lake as the rest of the project does. Nothing is started where a host
keeps a Spark with these settings (`deltafold host start`): the run attaches to it. `host` names another one's file.
"""

import os
from typing import TYPE_CHECKING, Any, Protocol

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from deltafold.dagster.failures import failures
from deltafold.pipelines import catalogue
from deltafold.pipelines.declaration.declaration import SparkPart
from deltafold.pipelines.tasks import Task, TaskResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltafold.api import View, Warehouse

HOST_VARIABLE = "DELTAFOLD_SPARK_HOST"


StepContext = dg.OpExecutionContext | dg.AssetExecutionContext


class TaskRunner(Protocol):
    """Does the part of a step that needs Spark, in this process or in another one."""

    def run(self, context: StepContext, pipeline: catalogue.Pipeline, task: Task[TaskResult]) -> TaskResult:
        """Do a task on a pipeline, and log its progress to the run.

        Raises:
            dg.Failure: with the sentence of the error, without values of rows unless the pipeline shows them.
        """
        ...


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

    def run(self, context: StepContext, pipeline: catalogue.Pipeline, task: Task[TaskResult]) -> TaskResult:
        """Do a task on a pipeline in this process; see TaskRunner."""
        with failures(pipeline):
            warehouse, view = self.open(pipeline)
            return task.do(pipeline, warehouse, view, context.log.info)

    def open(self, pipeline: catalogue.Pipeline) -> "tuple[Warehouse, View]":
        """Open a pipeline's warehouse and view, on a Spark with the pipeline's settings.

        Raises:
            DeltafoldError: for an invalid declaration or query, or a missing part of this machine's setup.
        """
        from deltafold.spark.lost import was_lost

        if self._spark_session is None or was_lost(self._spark_session):
            self._spark_session = self._start(f"deltafold {pipeline.name}", pipeline.declaration.spark)
        return catalogue.open(pipeline, self._spark_session)

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = self._start("deltafold", SparkPart())

    def _start(self, name: str, wished: SparkPart) -> "SparkSession":
        # Imported here, so that loading the definitions is fast.
        from deltafold.spark import session

        if self.host:
            os.environ[HOST_VARIABLE] = self.host
        known = {"master": wished.master or self.master, "memory": wished.memory or self.memory}
        given: Any = {key: value for key, value in known.items() if value}
        return session.start(name, settings={**self.spark_config, **wished.settings}, warm=wished.warm, **given)
