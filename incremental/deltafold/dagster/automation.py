"""Define what starts the runs of datasets, for a project that wants it: jobs, schedules and sensors. None starts a JVM.

    <name>_update     job: lands the run's partition, or range of partitions, then refreshes and checks, in one run and
                      one Spark. A backfill of it over many partitions is one run for each unbroken range.
    <name>_refresh    job: refreshes from the landed tables, and checks
    check_<name>      job: compares all of the dataset with the batch query
    maintain_<name>   job: compacts the tables, and removes old files that no reader needs
    <name>_folders    sensor of new, changed or removed partition folders of Files sources, and of files of streams: one
                      run that lands and refreshes
    <name>_tables     sensor of new versions of Delta tables that no asset writes: an observation of that table's asset;
                      a table declared by its name in the catalog is watched at the path that the last refresh found
    <name>_follow     sensor of a dataset that is behind its sources' events: one refresh

Partitioned and unpartitioned assets share a run: it contains the refresh step once, however many partitions it lands. A
pipeline that lands nothing has no update job.

The sensors of folders and of tables are off until they are switched on (Dagster's pages, Automation). `<name>_follow`
is on from the start: it starts the refresh that follows a landing or a backfill started by hand.

Ticks of schedules and days are UTC. With daily partitions a tick lands yesterday's, the last complete day, and
refreshes. With dynamic partitions it lands every folder whose files changed. Without partitions, or without landings,
it refreshes from the sources. A declared schedule is on from the start.
That of a selection (`selection_schedule`) is not, and lands only what a project lands for its datasets.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from deltafold.algebra.errors import UsageError
from deltafold.algebra.results.formats import list_first
from deltafold.dagster import following, metadata
from deltafold.dagster.dataset_step import CHECK, Dataset, Step, find_runner, materialisation, step_of
from deltafold.dagster.folders import changed_version, partition_signatures
from deltafold.dagster.following import refresh_job, update_job
from deltafold.dagster.partitions import can_be, partitions_by_folder, partitions_of, range_tags, yesterday
from deltafold.dagster.project_step import ProjectAssets, check_name, maintain_project
from deltafold.dagster.task_runner import CRASHES
from deltafold.landing.folder import UNPARTITIONED
from deltafold.pipelines.catalogue import DeclarationError, Pipeline
from deltafold.pipelines.selection import Nodes, find_pipelines, read_texts
from deltafold.pipelines.tasks import MaintainTask

INTERVAL = 30  # seconds between two ticks of a sensor
WEEKLY = "0 3 * * 0"
AssetJob = Any
"""What dg.define_asset_job returns: its class has no public name."""


def pipeline_jobs(*assets: dg.AssetsDefinition) -> Sequence[AssetJob | dg.JobDefinition]:
    """Return the jobs of datasets: `<name>_update`, `<name>_refresh`, `check_<name>` and `maintain_<name>`.

    Args:
        assets: results of `deltafold_assets`, `pipeline_steps` or `maintained_view`.

    Raises:
        UsageError: for assets of any other kind.
    """
    return [job for each in assets for dataset in step_of(each).datasets for job in _jobs(each, dataset)]


def _jobs(assets: dg.AssetsDefinition, dataset: Dataset) -> list[AssetJob | dg.JobDefinition]:
    name, step = dataset.name, step_of(assets)
    refreshed = dg.AssetSelection.assets(dataset.key)
    jobs = [_define(refresh_job(name), refreshed, f"Refreshes {name} from the landed tables, and checks it.")]
    if dataset.landed:
        landed = dg.AssetSelection.assets(*dataset.landed.values())
        text = f"Lands files for {name}, then refreshes and checks it."
        jobs.append(_define(update_job(name), landed | refreshed, text))
    if dataset.is_checked:
        checked = dg.AssetSelection.checks(dg.AssetCheckKey(dataset.key, CHECK))
        config = {"ops": {assets.op.name: {"config": {"sample": "100%"}}}}
        jobs.append(_define(_check_job(name), checked, f"Compares all of {name} with the batch query.", config))
    return [*jobs, _maintain(_maintain_job(name), f"{name}__maintain", [replace(step, datasets=(dataset,))], CRASHES)]


def _define(
    name: str, selection: dg.AssetSelection, description: str | None, config: Any = None, **more: Any
) -> AssetJob:
    return dg.define_asset_job(name, selection=selection, config=config, description=description, **more)  # pyright: ignore[reportUnknownMemberType]


def _check_job(pipeline: str) -> str:
    return f"check_{pipeline}"


def _maintain_job(pipeline: str) -> str:
    return f"maintain_{pipeline}"


class UpkeepConfig(dg.Config):
    """Configuration of the maintenance in one run."""

    retention_hours: float = 168


def maintenance_job(
    *assets: dg.AssetsDefinition, name: str = "maintain_deltafold", retry_policy: dg.RetryPolicy | None = CRASHES
) -> dg.JobDefinition:
    """Return a job that compacts the tables of datasets, and removes old files that no reader needs; schedule it.

    No row changes, so no asset is materialised unless its tables were copied into more buckets.

    Args:
        assets: results of `maintained_view`, `deltafold_assets` or `pipeline_steps`.
        name: of the job.
        retry_policy: of its step.

    Raises:
        UsageError: for assets of any other kind.
    """
    return _maintain(name, f"{name}__step", [step_of(each) for each in assets], retry_policy)


def _maintain(name: str, op: str, steps: Sequence[Step], retry_policy: dg.RetryPolicy | None) -> dg.JobDefinition:
    names = [dataset.name for step in steps for dataset in step.datasets]
    names += [step.project.project.name for step in steps if step.project]

    @dg.op(
        name=op,
        out=dg.Out(dg.Nothing),
        required_resource_keys={step.resource_key for step in steps if step.resource_key},
        retry_policy=retry_policy,
        pool=steps[0].pool if len(steps) == 1 else None,
    )
    def maintain(context: dg.OpExecutionContext, config: UpkeepConfig) -> None:
        shown: dict[str, dg.MetadataValue] = {}
        for step in steps:
            if step.project is not None:
                shown |= maintain_project(context, step.project, step.resource_key, config.retention_hours)
            spark = find_runner(context, step.resource_key)
            for dataset in step.datasets:
                done = spark.run(context, dataset.pipeline, MaintainTask(config.retention_hours))
                if done.copied is not None:
                    context.log_event(materialisation(dataset, done.copied, {}))
                context.log.info(f"{dataset.name}: {done.upkeep.sentence}")
                of_dataset = metadata.of_upkeep(done.upkeep).items()
                shown |= {f"{dataset.name}: {what}" if len(names) > 1 else what: value for what, value in of_dataset}
        context.add_output_metadata(shown)

    @dg.job(  # pyright: ignore[reportUnknownMemberType]
        name=name, description=f"Maintains the tables of {', '.join(names)}: compaction, and removal of old files."
    )
    def job() -> None:
        maintain()

    return job


def _landing_config(dataset: Dataset, sources: Sequence[str]) -> Mapping[str, Any]:
    """Return run config with which landing steps land changed partitions only, instead of all of the run."""
    changed_only = {"config": {"changed_only": True}}
    return {"ops": {dataset.landings[source]: changed_only for source in sources}}


Signatures = Mapping[str, Mapping[str, str]]
"""source → partition key → signature"""


@dataclass(frozen=True)
class Arrivals:
    """The reaction to changed folders: a run, and the dynamic partitions, of a definition, to register before it."""

    request: dg.RunRequest
    new_keys: Sequence[str]
    definition: str = ""


def _landed_partitions(
    dataset: Dataset, repository: dg.RepositoryDefinition | None
) -> dg.PartitionsDefinition[str] | None:
    """Return the partitions that the landings of a dataset have in a code location."""
    graph = repository.asset_graph if repository else None
    for source in dataset.pipeline.partitioned:
        key = dataset.sources[source]
        if graph and graph.has(key) and (found := graph.get(key).partitions_def) is not None:
            return found
    return partitions_of(dataset.pipeline)


def signatures_of(
    pipeline: Pipeline, now: datetime, partitions: dg.PartitionsDefinition[str] | None = None
) -> Signatures:
    """Return the signatures of partition folders by source and key, without those that no partition lands yet.

    partitions: those of the landings; None: of the pipeline. A future day, or one of a week that is not over, is left
    out until there is its partition.
    """
    return _divide_signatures(pipeline, now, partitions)[0]


def _divide_signatures(
    pipeline: Pipeline, now: datetime, partitions: dg.PartitionsDefinition[str] | None
) -> tuple[Signatures, Sequence[str]]:
    """Return what `signatures_of` does, and the keys of the folders that it leaves out, in order."""
    found = {name: partition_signatures(path, column) for name, (path, column) in pipeline.folders.items()}
    keys = {key for each in found.values() for key in each if key != UNPARTITIONED}
    outside = keys.difference(partitions_by_folder(pipeline, partitions, keys, now))
    inside = {name: {key: each[key] for key in each if key not in outside} for name, each in found.items()}
    return inside, sorted(outside)


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
    dataset: Dataset,
    changed: Sequence[str],
    instance: dg.DagsterInstance,
    definition: dg.PartitionsDefinition[str] | None,
) -> Arrivals:
    """Return the run that lands the changed partitions and refreshes.

    Args:
        dataset: of a pipeline that lands at least one source.
        changed: keys of folders that changed, at least one.
        instance: knows the dynamic partitions so far.
        definition: the partitions of the landings.
    """
    pipeline, job = dataset.pipeline, update_job(dataset.name)
    partitions = [key for key in changed if key != UNPARTITIONED]
    if not partitions and pipeline.partitioned:
        whole = [source for source in pipeline.landed if source not in pipeline.partitioned]
        selection = [*(dataset.landed[source] for source in whole), dataset.key]
        config = _landing_config(dataset, whole)
        return Arrivals(dg.RunRequest(job_name=job, asset_selection=selection, run_config=config), [])
    config = _landing_config(dataset, pipeline.landed)
    now = datetime.now(UTC)
    by_folder = partitions_by_folder(pipeline, definition, partitions, now)
    keys = list(dict.fromkeys(by_folder.values()))
    order, new_keys, name = keys, list[str](), ""
    if isinstance(definition, dg.DynamicPartitionsDefinition):
        name = definition.name or pipeline.name
        existing = instance.get_dynamic_partitions(name)
        new_keys = [key for key in keys if key not in existing]
        order = [*existing, *new_keys]
    elif definition is not None:
        order = definition.get_partition_keys(now)
    tags = range_tags(keys, order) if keys else None
    return Arrivals(dg.RunRequest(job_name=job, tags=tags, run_config=config), new_keys, name)


def pipeline_schedules(*assets: dg.AssetsDefinition) -> Sequence[dg.ScheduleDefinition]:
    """Return the schedules of datasets that their pipelines declare, for the jobs of `pipeline_jobs`.

    That of maintenance is weekly, and off, if none is declared.

    Args:
        assets: results of `deltafold_assets`, `pipeline_steps` or `maintained_view`.

    Raises:
        UsageError: for assets of any other kind.
    """
    return [schedule for each in assets for dataset in step_of(each).datasets for schedule in _schedules(dataset)]


def select_datasets(
    *assets: dg.AssetsDefinition, select: str | Sequence[str] | None = None, exclude: str | Sequence[str] = ()
) -> dg.AssetSelection:
    """Return the datasets that a selection in dbt's grammar selects, for a job, a sensor or a schedule.

    Of a project, the sources that it lands for them are selected, too, and their tests that are not excluded.

    Args:
        assets: results of `deltafold_assets`, `pipeline_steps` or `maintained_view`; or a project alone.
        select: which datasets (docs/reference/selections.md): names, `tag:nightly`, `+orders`; by default all.
        exclude: which of these not.

    Raises:
        DeclarationError: the selection matches nothing.
        UsageError: for assets of any other kind; two datasets have one name; a project is not alone.
    """
    steps = [step_of(each) for each in assets]
    wanted = read_texts(select, exclude)
    for project in (step.project for step in steps if step.project):
        if len(steps) > 1:
            raise UsageError(
                f"project {project.project.name}: its names are its own. Select from it alone, and combine "
                "selections by `|`."
            )
        return _select_project(project, *wanted)
    datasets: dict[str, Dataset] = {}
    for dataset in (dataset for step in steps for dataset in step.datasets):
        if datasets.setdefault(dataset.name, dataset) is not dataset:
            raise UsageError(
                f"dataset {dataset.name}: another step has one of this name. Select from each step, and combine "
                "selections by `|`."
            )
    pipelines = {name: dataset.pipeline for name, dataset in datasets.items()}
    names = Nodes.of(find_pipelines(pipelines), dashes="").select(*wanted)
    return dg.AssetSelection.assets(*(datasets[name].key for name in names))


def _select_project(project: ProjectAssets, select: Sequence[str], exclude: Sequence[str]) -> dg.AssetSelection:
    if not (select or exclude):
        return dg.AssetSelection.assets(*(project.keys[name] for name in (*project.landings, *project.datasets)))
    nodes = Nodes.of(project.project.selectable, dashes="")
    names, left_out = nodes.select(select, exclude), nodes.find_excluded(exclude)
    chosen = [each for each in project.project.datasets if each.relation in names and each.relation in project.datasets]
    if not chosen:
        text = " ".join(select) or "without the excluded ones"
        raise DeclarationError(
            f"select {text}: the step of {project.project.name} has none of these datasets. Select others, or add them "
            "to the step."
        )
    landed = {name for each in chosen for name in each.reads if name in project.landings}
    selected = dg.AssetSelection.assets(
        *(project.keys[name] for name in (*landed, *(each.relation for each in chosen)))
    )
    checks = {(check.asset_key, check.name) for check in project.checks}  # a step may leave tests out, too
    tests = [
        dg.AssetCheckKey(project.keys[each.relation], check_name(test))
        for each in chosen
        for test in each.tests
        if test.id in left_out and (project.datasets[each.relation].key, check_name(test)) in checks
    ]
    return selected - dg.AssetSelection.checks(*tests) if tests else selected


def selection_schedule(
    *assets: dg.AssetsDefinition,
    name: str,
    cron_schedule: str,
    select: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] = (),
    config: dg.RunConfig | Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    execution_timezone: str = "UTC",
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
) -> dg.ScheduleDefinition:
    """Return a schedule that refreshes and checks the datasets that a selection selects; it brings its job.

    Args:
        assets: as of `select_datasets`, as are `select` and `exclude`.
        name: of the job; the schedule is `<name>_schedule`.
        cron_schedule: when.
        config: of the runs.
        tags: of the runs.
        execution_timezone: of the times.
        default_status: off, by default, until it is switched on.

    Raises:
        DeclarationError, UsageError: as `select_datasets`.
    """
    selection = select_datasets(*assets, select=select, exclude=exclude)
    return dg.ScheduleDefinition(
        job=_define(name, selection, None, config, tags=tags),
        cron_schedule=cron_schedule,
        execution_timezone=execution_timezone,
        default_status=default_status,
    )


def _schedules(dataset: Dataset) -> list[dg.ScheduleDefinition]:
    name, declared = dataset.name, dataset.pipeline.declaration
    cron, is_on = (declared.maintain, True) if declared.maintain else (WEEKLY, False)
    maintenance = f"Maintains the tables of {name}: {cron}{'' if is_on else ', once it is turned on'}."
    schedules = [_schedule(_maintain_job(name), cron, maintenance, on=is_on)]
    if declared.check.schedule and dataset.is_checked:
        checking = f"Compares all of {name} with the batch query, as declared: {declared.check.schedule}."
        schedules.append(_schedule(_check_job(name), declared.check.schedule, checking, on=True))
    if declared.schedule:
        schedules.append(_updates(dataset, declared.schedule))
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


def _updates(dataset: Dataset, cron: str) -> dg.ScheduleDefinition:
    """Return the schedule that lands and refreshes."""

    @dg.schedule(  # pyright: ignore[reportUnknownMemberType]
        name=f"{dataset.name}_schedule",
        cron_schedule=cron,
        job_name=(update_job if dataset.landed else refresh_job)(dataset.name),
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Keeps {dataset.name} up to date as declared: {cron}.",
    )
    def tick(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        return _due(dataset, context)

    return tick


def _due(dataset: Dataset, context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """Return the run that a tick starts, or the reason for none."""
    pipeline = dataset.pipeline
    now = context.scheduled_execution_time
    if not pipeline.partitioned:
        return dg.RunRequest()
    definition = _landed_partitions(dataset, context.repository_def)
    if pipeline.declaration.partitioning.kind == "daily":
        day = yesterday(now)
        if not can_be(pipeline, day, now):
            return dg.SkipReason(f"Yesterday, {day}, is outside the partitions that {pipeline.name} declares.")
        key = partitions_by_folder(pipeline, definition, [day], now).get(day)
        return dg.RunRequest(partition_key=key) if key else dg.SkipReason(f"The partition of {day} is not over yet.")
    present = changed_keys({}, signatures_of(pipeline, now, definition))
    if not present:
        return dg.SkipReason(f"There are no files yet for {', '.join(pipeline.landed)}.")
    arrivals = request_landing(dataset, present, context.instance, definition)
    if arrivals.new_keys:
        context.instance.add_dynamic_partitions(arrivals.definition, arrivals.new_keys)
    return arrivals.request


def pipeline_sensors(*assets: dg.AssetsDefinition) -> Sequence[dg.SensorDefinition]:
    """Return the sensors of datasets, for the jobs of `pipeline_jobs`.

    `<name>_follow` refreshes, `<name>_folders` lands new files, and `<name>_tables` observes the Delta tables that no
    asset of the code location writes.

    Args:
        assets: results of `deltafold_assets`, `pipeline_steps` or `maintained_view`.

    Raises:
        UsageError: for assets of any other kind.
    """
    return [sensor for each in assets for dataset in step_of(each).datasets for sensor in _sensors(dataset)]


def _sensors(dataset: Dataset) -> list[dg.SensorDefinition]:
    sensors = [_follow_sensor(dataset)]
    if dataset.pipeline.folders:
        sensors.append(_folder_sensor(dataset))
    if watched := _watched_tables(dataset.pipeline):
        sensors.append(_table_sensor(dataset, watched))
    return sensors


def _folder_sensor(dataset: Dataset) -> dg.SensorDefinition:
    """Watch the folders of a pipeline's Files sources, and of its streams of files on this machine."""
    pipeline = dataset.pipeline

    @dg.sensor(  # pyright: ignore[reportUnknownMemberType]
        name=f"{pipeline.name}_folders",
        job_name=update_job(pipeline.name),
        minimum_interval_seconds=INTERVAL,
        description=f"Lands new and changed files for {pipeline.name}, then refreshes, in one run.",
    )
    def folders(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        before: Signatures = json.loads(context.cursor or "{}")
        definition = _landed_partitions(dataset, context.repository_def)
        now = datetime.now(UTC)
        after, outside = _divide_signatures(pipeline, now, definition)
        differing = changed_keys(before, after)
        landed = partitions_by_folder(pipeline, definition, [key for key in differing if key != UNPARTITIONED], now)
        changed = [key for key in differing if key == UNPARTITIONED or key in landed]
        if not changed:
            return dg.SkipReason(_explain_skip(pipeline, outside))
        arrivals = request_landing(dataset, changed, context.instance, definition)
        added = [dg.AddDynamicPartitionsRequest(arrivals.definition, arrivals.new_keys)] if arrivals.new_keys else []
        return dg.SensorResult(
            run_requests=[arrivals.request], dynamic_partitions_requests=added, cursor=json.dumps(after, sort_keys=True)
        )

    return folders


def _explain_skip(pipeline: Pipeline, outside: Sequence[str]) -> str:
    """Return why there is nothing to land; outside: the keys of folders that no partition lands yet."""
    text = f"No files were added, changed or removed for {', '.join(pipeline.folders)}"
    if not outside:
        return f"{text}."
    return f"{text} in folders that a partition lands. No partition so far lands those of {list_first(outside)}."


def _table_sensor(dataset: Dataset, watched: Sequence[str]) -> dg.SensorDefinition:
    """Watch Delta tables that a pipeline reads, by the names of their sources."""
    pipeline = dataset.pipeline
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
        graph = context.repository_def.asset_graph if context.repository_def else None
        others = [name for name in watched if not (graph and dataset.sources[name] in graph.materializable_asset_keys)]
        paths = {name: following.find_location(dataset, name, context.instance) for name in others}
        seen = {name: changed_version(path) for name, path in paths.items() if path is not None}
        after = {name: version for name, version in seen.items() if version is not None}
        events = [
            metadata.table_version(dataset.sources[name], version, "was found in the table's log")
            for name, version in after.items()
            if before.get(name) != version
        ]
        if not events:
            tables = {name: pipeline.declaration.sources[name].table for name in others if name not in seen}
            unknown = [following.unknown_location(table, name, pipeline.name) for name, table in tables.items()]
            return dg.SkipReason(" ".join([*([f"No new version of {', '.join(seen)}."] if seen else []), *unknown]))
        return dg.SensorResult(asset_events=events, cursor=json.dumps(before | after, sort_keys=True))

    return tables


def _follow_sensor(dataset: Dataset) -> dg.SensorDefinition:
    """Refresh a dataset that is behind its sources, once no run that changes them is under way."""
    name = dataset.name

    @dg.sensor(  # pyright: ignore[reportUnknownMemberType]
        name=f"{name}_follow",
        job_name=refresh_job(name),
        minimum_interval_seconds=INTERVAL,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Refreshes {name} after a landing, a backfill or a new version of what it reads.",
    )
    def follow(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        # Queried first: work that ends between the two queries is then found at the next tick.
        waiting = following.under_way(dataset, context.instance)
        events = following.last_events(dataset, context.instance)
        if not events:
            return dg.SkipReason(f"Nothing that {name} reads has been landed, or seen by Dagster, yet.")
        late = following.behind(events, following.consumed_versions(dataset, context.instance))
        if not late:
            return dg.SkipReason(f"{name} is up to date with its sources.")
        if waiting:
            return dg.SkipReason(f"{name} is behind {', '.join(late)}; {waiting} must end first.")
        return dg.RunRequest(run_key=" ".join(f"{source}:{events[source].number}" for source in sorted(events)))

    return follow


def _watched_tables(pipeline: Pipeline) -> Sequence[str]:
    """Return the Delta sources that may get new versions."""
    sources = pipeline.declaration.sources.items()
    return [name for name, source in sources if (source.delta or source.table) and not source.invariant]
