"""Decide from Dagster's events whether a view is behind its sources, and whether to refresh it now or to wait.

Each landing has an event with the landed table's version; each refresh has one with the versions that it consumed, and
with its own epoch, which is the version of a view that another view reads. After an event of any other table, the
version is that of the table's log: the metadata of a user's asset may use the same names for something else. A view is
behind when these differ. So it does not matter which process landed, when, in how many runs, or whether a refresh was
running with its versions already pinned: an unconsumed version stays visible. While a landing or a refresh of the
pipeline, or a backfill of a landing asset, is running, the sensor waits: a backfill over any range is followed by one
refresh. A refresh is requested once for the same events: after a failure the sensor waits for new ones.

A table that a pipeline reads by its name in the catalog is watched at a path: only Spark can query the catalog. So the
materialisation of a view contains the paths that its refresh found, and the sensors, which start no Spark, read there.
The next refresh detects a table that is dropped, renamed or pointed elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import dagster as dg
from filelock import FileLock, Timeout

from deltafold.dagster import metadata
from deltafold.dagster.dataset_step import Dataset
from deltafold.dagster.folders import delta_version
from deltafold.pipelines.catalogue import Pipeline

if TYPE_CHECKING:
    from deltafold.dagster.project_step import ProjectAssets

_LAST_BACKFILLS = 100  # the newest; a filter by status has no public name
_UNDER_WAY = [status for status in dg.DagsterRunStatus if status.name not in ("SUCCESS", "FAILURE", "CANCELED")]


def update_job(pipeline: str) -> str:
    """Return the name of the job that lands the sources of a pipeline, and then refreshes it."""
    return f"{pipeline}_update"


def refresh_job(pipeline: str) -> str:
    """Return the name of the job that refreshes a pipeline from what has been landed."""
    return f"{pipeline}_refresh"


@dataclass(frozen=True)
class Event:
    """The last event of a source: its number in Dagster's log, and the source's version then (of a view, text)."""

    number: int
    version: int | str


def last_events(dataset: Dataset, instance: dg.DagsterInstance) -> Mapping[str, Event]:
    """Return the last event of every source that has one."""
    events: dict[str, Event] = {}
    for name, key in dataset.sources.items():
        record = last_event(instance, key)
        if record is None:
            continue
        recorded = _version_after(dataset, name, record, instance)
        if recorded is not None:
            events[name] = Event(record.storage_id, recorded)
    return events


def _version_after(
    dataset: Dataset, source: str, record: dg.EventLogRecord, instance: dg.DagsterInstance
) -> int | str | None:
    """Return the version of a source after its last event; None if that is not known."""
    if source in dataset.pipeline.below:
        return _view_version(_metadata(record))
    if source in dataset.pipeline.landed:
        return _table_version(_metadata(record))
    path = find_location(dataset, source, instance)
    return delta_version(path) if path else None


def consumed_versions(dataset: Dataset, instance: dg.DagsterInstance) -> Mapping[str, int | str] | None:
    """Return the versions that the view's last refresh in Dagster consumed, by source; None before the first."""
    versions = last_metadata(instance, dataset.key).get(metadata.CONSUMED)
    return cast(Mapping[str, int | str], versions) if isinstance(versions, Mapping) else None


def behind(events: Mapping[str, Event], versions: Mapping[str, int | str] | None) -> Sequence[str]:
    """Return the sources whose last event the view has not consumed; never those that the query does not read."""
    if versions is None:
        return sorted(events)
    return sorted(name for name, version in versions.items() if name in events and events[name].version != version)


def under_way(dataset: Dataset, instance: dg.DagsterInstance) -> str | None:
    """Name the run, backfill or report that must end before a refresh makes sense; None if there is none."""
    pipeline = dataset.pipeline
    if report_lock(pipeline).exists() and _is_held(report_lock(pipeline)):
        return "a command that is reporting"
    own = {dataset.key, *dataset.sources.values()}
    views = {pipeline.name, *(below.name for below in pipeline.below.values())}
    jobs = {job(view) for view in views for job in (update_job, refresh_job)}
    for record in instance.get_run_records(dg.RunsFilter(statuses=_UNDER_WAY)):
        run = record.dagster_run
        if run.job_name in jobs or own & set(run.asset_selection or ()):
            return f"run {run.run_id}"
    for backfill in instance.get_backfills(limit=_LAST_BACKFILLS):
        if backfill.status.value == "REQUESTED" and own & set(backfill.asset_selection or ()):
            return f"backfill {backfill.backfill_id}"
    return None


def report_lock(pipeline: Pipeline) -> Path:
    """Return the lock that a command holds while it reports, between storing a landing and its refresh."""
    return pipeline.note("reporting.lock")


def _is_held(lock: Path) -> bool:
    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True


def _table_version(recorded: Mapping[str, object]) -> int | None:
    version = recorded.get("version")
    return version if isinstance(version, int) else None


def _view_version(recorded: Mapping[str, object]) -> str | None:
    if "generation" not in recorded or "epoch" not in recorded:
        return None
    return metadata.data_version(recorded["generation"], recorded["epoch"])


def table_version(instance: dg.DagsterInstance, key: dg.AssetKey) -> int | None:
    """Return the version of a table that the last event of its asset shows; None before the first."""
    return _table_version(last_metadata(instance, key))


def view_version(instance: dg.DagsterInstance, key: dg.AssetKey) -> str | None:
    """Return the data version of a view that the last event of its asset shows; None before the first."""
    return _view_version(last_metadata(instance, key))


def last_event(instance: dg.DagsterInstance, key: dg.AssetKey) -> dg.EventLogRecord | None:
    """Return the record of an asset's last materialisation or observation; None before the first."""
    records = [
        *instance.fetch_materializations(key, limit=1).records,
        *instance.fetch_observations(key, limit=1).records,
    ]
    return max(records, key=lambda record: record.storage_id, default=None)


def last_metadata(instance: dg.DagsterInstance, key: dg.AssetKey) -> Mapping[str, object]:
    """Return the metadata of an asset's last event, empty before the first."""
    record = last_event(instance, key)
    return _metadata(record) if record else {}


def _metadata(record: dg.EventLogRecord) -> Mapping[str, object]:
    event = record.asset_materialization or record.asset_observation
    return {name: value.value for name, value in event.metadata.items()} if event else {}


def find_location(dataset: Dataset, source: str, instance: dg.DagsterInstance) -> str | None:
    """Return the path of a Delta source; None for another one, and for a name that no refresh has found yet."""
    declared = dataset.pipeline.declaration.sources[source]
    if declared.delta:
        return declared.delta
    recorded: Any = last_metadata(instance, dataset.key).get(metadata.LOCATIONS)
    return recorded.get(declared.table) if isinstance(recorded, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def find_project_location(project: "ProjectAssets", source: str, instance: dg.DagsterInstance) -> str | None:
    """Return the path of a table that a project reads and others write; None before a refresh has found it."""
    if path := project.project.sources[source].delta:
        return path
    for dataset in project.project.datasets:
        if source in dataset.reads and dataset.relation in project.datasets:
            recorded: Any = last_metadata(instance, project.keys[dataset.relation]).get(metadata.LOCATIONS)
            if isinstance(recorded, dict) and source in recorded:
                return recorded[source]  # pyright: ignore[reportUnknownVariableType]
    return None


def unknown_location(table: str | None, source: str, reader: str) -> str:
    """Return the reason for skipping a source whose path is unknown, and the fix; reader: what has to be refreshed."""
    return (
        f"The location of table {table} (source {source}) is not known. Refresh {reader} once, since only Spark can "
        "query the catalog."
    )
