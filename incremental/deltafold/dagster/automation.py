"""Define what starts the runs of a pipeline: its jobs, schedules and sensors. None of them starts a JVM.

    <name>_update     job: lands the run's partition, or range of partitions, then refreshes and checks, in one run and
                      one Spark. A backfill of it over many partitions is one run for each unbroken range.
    <name>_refresh    job: refreshes from the landed tables, and checks
    check_<name>      job: compares all of the view with the batch query
    <name>_folders    sensor of new, changed or removed partition folders of Files sources, and of files of streams: one
                      run that lands and refreshes
    <name>_tables     sensor of new versions of external Delta tables: an event on that table's asset; a table declared
                      by its name in the catalog is watched at the path that the last refresh found
    <name>_follow     sensor of a view that is behind its sources' events: one refresh

Partitioned and unpartitioned assets share a run: it contains the refresh step once, however many partitions it lands. A
pipeline that lands nothing has no update job. `maintain_<name>` is defined with its step (`steps`).

The sensors of folders and of tables are off until they are switched on (Dagster's pages, Automation). `<name>_follow`
is on from the start: it starts the refresh that follows a landing or a backfill started by hand.

Ticks of schedules and days are UTC. With daily partitions a tick lands yesterday's, the last complete day, and
refreshes. With dynamic partitions it lands every folder whose files changed. Without partitions, or without landings,
it refreshes from the sources. A declared schedule is on from the start.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from deltafold.dagster import checks, epochs, following, keys
from deltafold.dagster.folders import delta_version, partition_signatures
from deltafold.dagster.partitions import can_be, partitions_of, range_tags, yesterday
from deltafold.landing.folder import UNPARTITIONED
from deltafold.pipelines.catalogue import Pipeline

INTERVAL = 30  # seconds between two ticks of a sensor
WEEKLY = "0 3 * * 0"
AssetJob = Any
"""What dg.define_asset_job returns: its class has no public name."""


def jobs_of(pipeline: Pipeline) -> Sequence[AssetJob]:
    """Return the jobs of a pipeline; their steps run in one process, so that they share one Spark."""
    name = pipeline.name
    refreshed = dg.AssetSelection.assets(keys.view(name)).required_multi_asset_neighbors()
    refresh: AssetJob = dg.define_asset_job(  # pyright: ignore[reportUnknownMemberType]
        keys.refresh_job(name),
        selection=refreshed,
        description=f"Refreshes {name} from the landed tables, and checks it.",
    )
    check: AssetJob = dg.define_asset_job(  # pyright: ignore[reportUnknownMemberType]
        keys.check_job_name(name),
        selection=dg.AssetSelection.checks(dg.AssetCheckKey(keys.view(name), checks.CHECK)),
        config={"ops": {keys.check_op(name, checks.CHECK): {"config": {"sample": checks.WHOLE_SHARE}}}},
        description=f"Compares all of {name} with the batch query.",
    )
    if not pipeline.landed:
        return [refresh, check]
    landed = dg.AssetSelection.assets(*(keys.landed(name, source) for source in pipeline.landed))
    update: AssetJob = dg.define_asset_job(  # pyright: ignore[reportUnknownMemberType]
        keys.update_job(name),
        selection=landed | refreshed,
        description=f"Lands files for {name}, then refreshes and checks it.",
    )
    return [refresh, update, check]


def _landing_config(pipeline: Pipeline, sources: Sequence[str]) -> Mapping[str, Any]:
    """Return run config with which landing steps land changed partitions only, instead of all of the run."""
    return {"ops": {keys.landing_op(pipeline.name, source): {"config": {"changed_only": True}} for source in sources}}


Signatures = Mapping[str, Mapping[str, str]]
"""source → partition key → signature"""


@dataclass(frozen=True)
class Arrivals:
    """The reaction to changed folders: a run, and the dynamic partitions to register before it."""

    request: dg.RunRequest
    new_keys: Sequence[str]


def signatures_of(pipeline: Pipeline, now: datetime) -> Signatures:
    """Return the signatures of partition folders by source and key, without future days."""
    signatures: dict[str, Mapping[str, str]] = {}
    for name, (path, column) in pipeline.folders.items():
        signatures[name] = {
            key: signature
            for key, signature in partition_signatures(path, column).items()
            if key == UNPARTITIONED or can_be(pipeline, key, now)
        }
    return signatures


def changed_keys(before: Signatures, after: Signatures) -> Sequence[str]:
    """Return the keys of all sources whose signatures differ between two ticks, in order."""
    changed = {
        key
        for source in before.keys() | after.keys()
        for key in before.get(source, {}).keys() | after.get(source, {}).keys()
        if before.get(source, {}).get(key) != after.get(source, {}).get(key)
    }
    return sorted(changed)


def request_landing(
    pipeline: Pipeline, changed: Sequence[str], refreshed: Sequence[dg.AssetKey], instance: dg.DagsterInstance
) -> Arrivals:
    """Return the run that lands the changed partitions and refreshes.

    Args:
        pipeline: the pipeline, which lands at least one source.
        changed: keys that changed, at least one.
        refreshed: the assets of its refresh step.
        instance: knows the dynamic partitions so far.
    """
    job = keys.update_job(pipeline.name)
    partitions = [key for key in changed if key != UNPARTITIONED]
    if not partitions and pipeline.partitioned:
        whole = [source for source in pipeline.landed if source not in pipeline.partitioned]
        selection = [*(keys.landed(pipeline.name, source) for source in whole), *refreshed]
        config = _landing_config(pipeline, whole)
        return Arrivals(dg.RunRequest(job_name=job, asset_selection=selection, run_config=config), [])
    order, new_keys = _order(pipeline, partitions, instance)
    tags = range_tags(partitions, order) if partitions else None
    config = _landing_config(pipeline, pipeline.landed)
    return Arrivals(dg.RunRequest(job_name=job, tags=tags, run_config=config), new_keys)


def _order(
    pipeline: Pipeline, changed: Sequence[str], instance: dg.DagsterInstance
) -> tuple[Sequence[str], Sequence[str]]:
    """Return all partition keys in Dagster's order, and those of the changed ones that Dagster does not have yet."""
    partitions = partitions_of(pipeline)
    if isinstance(partitions, dg.DynamicPartitionsDefinition):
        existing = instance.get_dynamic_partitions(pipeline.name)
        new_keys = [key for key in changed if key not in existing]
        return [*existing, *new_keys], new_keys
    return (partitions.get_partition_keys(datetime.now(UTC)) if partitions else []), []


def schedules_of(pipeline: Pipeline, refreshed: Sequence[dg.AssetKey]) -> Sequence[dg.ScheduleDefinition]:
    """Return the declared schedules of a pipeline, and that of its maintenance, which is weekly if none is declared.

    Args:
        pipeline: the pipeline.
        refreshed: the assets of its refresh step.
    """
    name = pipeline.name
    declared = pipeline.declaration
    cron, is_on = (declared.maintain, True) if declared.maintain else (WEEKLY, False)
    maintenance = f"Maintains the tables of {name}: {cron}{'' if is_on else ', once it is turned on'}."
    schedules = [_schedule(keys.maintain_job(name), cron, maintenance, on=is_on)]
    if declared.check.schedule:
        checking = f"Compares all of {name} with the batch query, as declared: {declared.check.schedule}."
        schedules.append(_schedule(keys.check_job_name(name), declared.check.schedule, checking, on=True))
    if declared.schedule:
        schedules.append(_updates(pipeline, declared.schedule, refreshed))
    return schedules


def _schedule(job: str, cron: str, description: str, *, on: bool) -> dg.ScheduleDefinition:
    """Return the schedule of a job that needs no configuration."""
    return dg.ScheduleDefinition(
        name=f"{job}_schedule",
        cron_schedule=cron,
        job_name=job,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING if on else dg.DefaultScheduleStatus.STOPPED,
        description=description,
    )


def _updates(pipeline: Pipeline, cron: str, refreshed: Sequence[dg.AssetKey]) -> dg.ScheduleDefinition:
    """Return the schedule that lands and refreshes."""

    @dg.schedule(  # pyright: ignore[reportUnknownMemberType]
        name=f"{pipeline.name}_schedule",
        cron_schedule=cron,
        job_name=keys.update_job(pipeline.name) if pipeline.landed else keys.refresh_job(pipeline.name),
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Keeps {pipeline.name} up to date as declared: {cron}.",
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
    if pipeline.declaration.partitioning.kind == "daily":
        day = yesterday(now)
        if can_be(pipeline, day, now):
            return dg.RunRequest(partition_key=day)
        return dg.SkipReason(f"Yesterday, {day}, is outside the partitions that {pipeline.name} declares.")
    present = changed_keys({}, signatures_of(pipeline, now))
    if not present:
        return dg.SkipReason(f"There are no files yet for {', '.join(pipeline.landed)}.")
    arrivals = request_landing(pipeline, present, refreshed, context.instance)
    if arrivals.new_keys:
        context.instance.add_dynamic_partitions(pipeline.name, arrivals.new_keys)
    return arrivals.request


def folder_sensor(pipeline: Pipeline, refreshed: Sequence[dg.AssetKey]) -> dg.SensorDefinition:
    """Watch the folders of a pipeline's Files sources, and of its streams of files on this machine.

    Args:
        pipeline: the pipeline, which lands at least one source.
        refreshed: the assets of its refresh step.
    """

    @dg.sensor(  # pyright: ignore[reportUnknownMemberType]
        name=f"{pipeline.name}_folders",
        job_name=keys.update_job(pipeline.name),
        minimum_interval_seconds=INTERVAL,
        description=f"Lands new and changed files for {pipeline.name}, then refreshes, in one run.",
    )
    def folders(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        before: Signatures = json.loads(context.cursor or "{}")
        after = signatures_of(pipeline, datetime.now(UTC))
        changed = changed_keys(before, after)
        if not changed:
            return dg.SkipReason(f"No files were added, changed or removed for {', '.join(pipeline.folders)}.")
        arrivals = request_landing(pipeline, changed, refreshed, context.instance)
        new = [dg.AddDynamicPartitionsRequest(pipeline.name, arrivals.new_keys)] if arrivals.new_keys else []
        return dg.SensorResult(
            run_requests=[arrivals.request], dynamic_partitions_requests=new, cursor=json.dumps(after, sort_keys=True)
        )

    return folders


def table_sensor(pipeline: Pipeline) -> dg.SensorDefinition:
    """Watch the external Delta tables that a pipeline reads, without `invariant` ones, which never change."""
    watched = watched_tables(pipeline)
    by_name = [name for name in watched if pipeline.declaration.sources[name].table]
    named = (
        f" The location of {', '.join(by_name)} is the one that the last refresh found in the catalog."
        if by_name
        else ""
    )

    @dg.sensor(  # pyright: ignore[reportUnknownMemberType]
        name=f"{pipeline.name}_tables",
        minimum_interval_seconds=INTERVAL,
        description=f"Reports new versions of the Delta tables that {pipeline.name} reads; a refresh follows.{named}",
    )
    def tables(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        before: dict[str, int] = json.loads(context.cursor or "{}")
        paths = {name: following.find_location(pipeline, name, context.instance) for name in watched}
        seen = {name: delta_version(path) for name, path in paths.items() if path is not None}
        after = {name: version for name, version in seen.items() if version is not None}
        events = [
            epochs.table_version(keys.external(pipeline.name, name), version, "was found in the table's log")
            for name, version in after.items()
            if before.get(name) != version
        ]
        if not events:
            unknown = [following.unknown_location(pipeline, name) for name in watched if name not in seen]
            return dg.SkipReason(" ".join([*([f"No new version of {', '.join(seen)}."] if seen else []), *unknown]))
        return dg.SensorResult(asset_events=events, cursor=json.dumps(before | after, sort_keys=True))

    return tables


def follow_sensor(pipeline: Pipeline) -> dg.SensorDefinition:
    """Refresh a view that is behind its sources, once no run that changes them is under way."""

    @dg.sensor(  # pyright: ignore[reportUnknownMemberType]
        name=f"{pipeline.name}_follow",
        job_name=keys.refresh_job(pipeline.name),
        minimum_interval_seconds=INTERVAL,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Refreshes {pipeline.name} after a landing, a backfill or a new version of what it reads.",
    )
    def follow(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        # Queried first: work that ends between the two queries is then found at the next tick.
        waiting = following.under_way(pipeline, context.instance)
        events = following.last_events(pipeline, context.instance)
        if not events:
            return dg.SkipReason(f"Nothing that {pipeline.name} reads has been landed, or seen by Dagster, yet.")
        late = following.behind(events, following.consumed_versions(pipeline, context.instance))
        if not late:
            return dg.SkipReason(f"{pipeline.name} is up to date with its sources.")
        if waiting:
            return dg.SkipReason(f"{pipeline.name} is behind {', '.join(late)}; {waiting} must end first.")
        return dg.RunRequest(run_key=" ".join(f"{name}:{events[name].number}" for name in sorted(events)))

    return follow


def watched_tables(pipeline: Pipeline) -> Sequence[str]:
    """Return the Delta sources that may get new versions."""
    sources = pipeline.declaration.sources.items()
    return [name for name, source in sources if (source.delta or source.table) and not source.invariant]
