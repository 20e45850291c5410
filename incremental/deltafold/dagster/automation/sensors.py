"""Start a run when data arrives: the sensors of all pipelines. None of them starts a JVM.

    <name>_folders    new, changed or removed partition folders of the Files sources, and files of streams: one run that
                      lands and refreshes
    <name>_tables     a new version of an external Delta table: an event on that table's asset; a table
                      declared by its name in the catalog is watched at the location that the last refresh found, since
                      only Spark can query the catalog
    <name>_follow     a view that is behind its sources' events: one refresh

The first two watch the outside and are off until they are switched on (Dagster's pages, Automation). The third one is
on from the start: it starts the refresh that follows a landing or a backfill started by hand.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import dagster as dg

from deltafold.dagster import following, keys, locations
from deltafold.dagster.automation import arrivals
from deltafold.dagster.automation.folders import delta_version
from deltafold.dagster.steps import epochs
from deltafold.pipelines.catalogue import Pipeline

INTERVAL = 30  # seconds between two ticks


def folder_sensor(pipeline: Pipeline, refreshed: Sequence[dg.AssetKey]) -> dg.SensorDefinition:
    """Watch the folders of a pipeline's Files sources, and of its streams of files on this machine.

    Args:
        pipeline: the pipeline, which lands at least one source.
        refreshed: the assets of its refresh step.
    """

    @dg.sensor(
        name=f"{pipeline.name}_folders",
        job_name=keys.update_job(pipeline.name),
        minimum_interval_seconds=INTERVAL,
        description=f"Lands new and changed files for {pipeline.name}, then refreshes, in one run.",
    )
    def folders(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        before: arrivals.Seen = json.loads(context.cursor or "{}")
        after = arrivals.look(pipeline, datetime.now(UTC))
        changed = arrivals.changed_keys(before, after)
        if not changed:
            return dg.SkipReason(f"No files were added, changed or removed for {', '.join(pipeline.folders)}.")
        found = arrivals.request(pipeline, changed, refreshed, context.instance)
        new = [dg.AddDynamicPartitionsRequest(pipeline.name, found.new_keys)] if found.new_keys else []
        return dg.SensorResult(
            run_requests=[found.request], dynamic_partitions_requests=new, cursor=json.dumps(after, sort_keys=True)
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

    @dg.sensor(
        name=f"{pipeline.name}_tables",
        minimum_interval_seconds=INTERVAL,
        description=f"Reports new versions of the Delta tables that {pipeline.name} reads; a refresh follows.{named}",
    )
    def tables(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        before: dict[str, int] = json.loads(context.cursor or "{}")
        paths = {name: locations.find_location(pipeline, name, context.instance) for name in watched}
        seen = {name: delta_version(path) for name, path in paths.items() if path is not None}
        after = {name: version for name, version in seen.items() if version is not None}
        events = [
            epochs.table_version(keys.external(pipeline.name, name), version, "was found in the table's log")
            for name, version in after.items()
            if before.get(name) != version
        ]
        if not events:
            unknown = [locations.unknown_location(pipeline, name) for name in watched if name not in seen]
            return dg.SkipReason(" ".join([*([f"No new version of {', '.join(seen)}."] if seen else []), *unknown]))
        return dg.SensorResult(asset_events=events, cursor=json.dumps(before | after, sort_keys=True))

    return tables


def follow_sensor(pipeline: Pipeline) -> dg.SensorDefinition:
    """Refresh a view that is behind its sources, once no run that changes them is under way."""

    @dg.sensor(
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
