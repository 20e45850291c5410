"""Define the job that maintains a pipeline's tables, `maintain_<pipeline>`, and its schedule.

It compacts the tables and removes old files that no reader needs. No row changes, so no asset is materialised unless
the tables were copied into more buckets; the step's output shows the rewritten and removed files. A declared `maintain`
is on from the start; without one there is a weekly schedule, which is off until it is turned on. Ticks are UTC.
"""

import dagster as dg

from deltafold.dagster import keys, metadata
from deltafold.dagster.failures import CRASHES
from deltafold.dagster.resources import TaskRunner
from deltafold.dagster.steps import epochs
from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.tasks import MaintainTask

WEEKLY = "0 3 * * 0"


class UpkeepConfig(dg.Config):
    """Configuration of the maintenance in one run."""

    retention_hours: float = 168


def upkeep_job(pipeline: Pipeline) -> dg.JobDefinition:
    """Return the job with one step that maintains a pipeline's tables, in the pool of the refresh."""

    @dg.op(
        name=keys.maintain_op(pipeline.name),
        out=dg.Out(dg.Nothing),
        pool=pipeline.name,
        retry_policy=CRASHES,
        description=f"Compacts the tables of {pipeline.name} and removes old files that no reader needs.",
    )
    def maintain(context: dg.OpExecutionContext, config: UpkeepConfig, spark: dg.ResourceParam[TaskRunner]) -> None:
        done = spark.run(context, pipeline, MaintainTask(config.retention_hours))
        if done.copied is not None:
            for event in epochs.materialisations(pipeline, done.copied, context.instance):
                context.log_event(event)
        context.log.info(done.upkeep.sentence)
        context.add_output_metadata(dict(metadata.of_upkeep(done.upkeep)))

    @dg.job(
        name=keys.maintain_job(pipeline.name),
        description=f"Maintains the tables of {pipeline.name}: compaction, and removal of old files.",
    )
    def job() -> None:
        maintain()

    return job


def upkeep_schedule(pipeline: Pipeline) -> dg.ScheduleDefinition:
    """Return the schedule of the job: as declared, or weekly once it is turned on."""
    declared = pipeline.declaration.maintain
    running, stopped = dg.DefaultScheduleStatus.RUNNING, dg.DefaultScheduleStatus.STOPPED
    return dg.ScheduleDefinition(
        name=f"{keys.maintain_job(pipeline.name)}_schedule",
        cron_schedule=declared or WEEKLY,
        job_name=keys.maintain_job(pipeline.name),
        execution_timezone="UTC",
        default_status=running if declared else stopped,
        description=f"Maintains the tables of {pipeline.name}: {declared or f'{WEEKLY}, once it is turned on'}.",
    )
