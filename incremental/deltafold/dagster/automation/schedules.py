"""Make a pipeline's schedule from its cron text.

Ticks and days are UTC. With daily partitions a tick lands yesterday's, the last complete day, and refreshes. With
dynamic partitions it lands every folder whose files changed. Without partitions, or without landings, it refreshes from
the sources. A declared schedule is on from the start.
"""

from collections.abc import Sequence

import dagster as dg

from deltafold.dagster import keys
from deltafold.dagster.automation import arrivals
from deltafold.dagster.partitions import can_be, yesterday
from deltafold.pipelines.catalogue import Pipeline


def schedule_of(pipeline: Pipeline, refreshed: Sequence[dg.AssetKey]) -> dg.ScheduleDefinition | None:
    """Return the schedule of a pipeline that declares one.

    Args:
        pipeline: the pipeline.
        refreshed: the assets of its refresh step.
    """
    if pipeline.declaration.schedule is None:
        return None

    @dg.schedule(
        name=f"{pipeline.name}_schedule",
        cron_schedule=pipeline.declaration.schedule,
        job_name=keys.update_job(pipeline.name) if pipeline.landed else keys.refresh_job(pipeline.name),
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Keeps {pipeline.name} up to date as declared: {pipeline.declaration.schedule}.",
    )
    def tick(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        return _due(pipeline, refreshed, context)

    return tick


def _due(
    pipeline: Pipeline, refreshed: Sequence[dg.AssetKey], context: dg.ScheduleEvaluationContext
) -> dg.RunRequest | dg.SkipReason:
    """Return the run that a tick starts, or the reason for none."""
    now = context.scheduled_execution_time
    if not pipeline.partitioned:
        return dg.RunRequest()
    if pipeline.declaration.cut.kind == "daily":
        day = yesterday(now)
        if can_be(pipeline, day, now):
            return dg.RunRequest(partition_key=day)
        return dg.SkipReason(f"Yesterday, {day}, is outside the partitions that {pipeline.name} declares.")
    present = arrivals.changed_keys({}, arrivals.look(pipeline, now))
    if not present:
        return dg.SkipReason(f"There are no files yet for {', '.join(pipeline.landed)}.")
    found = arrivals.request(pipeline, present, refreshed, context.instance)
    if found.new_keys:
        context.instance.add_dynamic_partitions(pipeline.name, found.new_keys)
    return found.request
