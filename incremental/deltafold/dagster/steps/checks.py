"""Define the blocking asset check of a pipeline: its view equals the batch query.

The check runs the batch query at the versions of the view's last epoch and compares every row, duplicates counted. It
is blocking: in a run that refreshes, nothing downstream starts before the view has been found equal. It costs what the
batch query costs; if that is too much for every refresh, `check: {sample: 1%}` compares that share of the keys, another
one after each epoch, and `check: {schedule: ...}` compares all of it on schedule, in the job `check_<pipeline>`.
"""

import dagster as dg
from pydantic import Field

from deltafold.dagster import keys, metadata
from deltafold.dagster.failures import CRASHES, failures
from deltafold.dagster.jobs import AssetJob
from deltafold.dagster.resources import TaskRunner
from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.declaration import sizes
from deltafold.pipelines.tasks import VerifyTask

CHECK = "equals_batch"
WHOLE_SHARE = "100%"


class CheckConfig(dg.Config):
    """Configuration of the check in one run."""

    sample: str | None = Field(
        default=None, description="The share of keys to compare, such as 1%; by default as the pipeline declares."
    )


def equality_check(pipeline: Pipeline) -> dg.AssetChecksDefinition:
    """Return the check that a pipeline's view equals its batch query."""

    @dg.asset_check(
        asset=keys.view(pipeline.name),
        name=CHECK,
        blocking=True,
        description="The view equals the batch query on the same source versions, row for row, duplicates counted.",
        pool=pipeline.name,
        retry_policy=CRASHES,
    )
    def equals_batch(
        context: dg.AssetCheckExecutionContext, config: CheckConfig, spark: dg.ResourceParam[TaskRunner]
    ) -> dg.AssetCheckResult:
        with failures(pipeline):
            share = sizes.share_of(config.sample or pipeline.declaration.check.sample)
        found = spark.run(context.op_execution_context, pipeline, VerifyTask(share))
        return dg.AssetCheckResult(
            passed=found.ok,
            description=found.sentence,
            metadata=metadata.of_verification(found, pipeline.declaration.show_rows_in_errors),
        )

    return equals_batch


def check_job(pipeline: Pipeline) -> AssetJob:
    """Return the job that only compares all of a view with the batch query."""
    return dg.define_asset_job(
        keys.check_job_name(pipeline.name),
        selection=dg.AssetSelection.checks(dg.AssetCheckKey(keys.view(pipeline.name), CHECK)),
        config={"ops": {keys.check_op(pipeline.name, CHECK): {"config": {"sample": WHOLE_SHARE}}}},
        description=f"Compares all of {pipeline.name} with the batch query.",
    )


def check_schedule(pipeline: Pipeline) -> dg.ScheduleDefinition | None:
    """Return the declared schedule of the job, which is on from the start."""
    declared = pipeline.declaration.check.schedule
    if declared is None:
        return None
    return dg.ScheduleDefinition(
        name=f"{keys.check_job_name(pipeline.name)}_schedule",
        cron_schedule=declared,
        job_name=keys.check_job_name(pipeline.name),
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Compares all of {pipeline.name} with the batch query, as declared: {declared}.",
    )
