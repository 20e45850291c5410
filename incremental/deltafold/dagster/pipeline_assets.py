"""Define assets for the Dagster project of a user: maintained views, pipelines of a folder, landed and watched tables.

Nothing else comes along: no job, schedule, sensor, executor or resource. Building the definitions reads texts only, and
imports no Spark.
"""

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack, cast

import dagster as dg

from deltafold.algebra.errors import DeltafoldWarning, UsageError
from deltafold.dagster import following
from deltafold.dagster.dataset_step import Dataset, Step, refresh_step, register, step_of, survey_datasets, translate
from deltafold.dagster.describing import describe_project
from deltafold.dagster.folders import changed_version
from deltafold.dagster.landing_step import landing_step
from deltafold.dagster.project_step import ProjectAssets, project_step, translate_project
from deltafold.dagster.step_body import Body
from deltafold.dagster.task_runner import CRASHES
from deltafold.dagster.translator import (
    DeltafoldTranslator,
    KeyLike,
    asset_key,
    derive_name,
    find_lander,
    refuse_partitions,
    replace_attributes,
)
from deltafold.pipelines import catalogue, folder_project
from deltafold.pipelines.catalogue import DeclarationError, Pipeline
from deltafold.pipelines.declaration.cron import longest_pause
from deltafold.pipelines.declaration.parsing import suggest_nearest
from deltafold.pipelines.declaration.values import check_share
from deltafold.pipelines.described_project import DescribedDataset
from deltafold.pipelines.inline import declare_pipeline
from deltafold.pipelines.project_files import find_project
from deltafold.pipelines.selection import Nodes, find_pipelines, read_texts

if TYPE_CHECKING:
    from deltafold.pipelines.inline import Query

RESOURCE_KEY = "deltafold"
UNDECLARED = "not_declared_well"
"""The group of pipelines whose declarations are invalid."""


@dataclass(frozen=True)
class TableSource(dg.Resolvable):
    """A Delta table that a maintained view reads, and the asset that writes it.

    delta: its path or URI; table: or its name in Spark's catalog; asset: the key of the asset, or in Python the asset
    itself, by default the name of the source; invariant, primary_key and append_only: as in `deltafold.Delta`.
    """

    delta: str | None = None
    table: str | None = None
    asset: Annotated[KeyLike | None, dg.Resolver.default(model_field_type=str | None)] = None
    invariant: bool = False
    primary_key: Sequence[str] = ()
    append_only: bool = False

    @property
    def declaration(self) -> Mapping[str, Any]:
        """What a pipeline.yaml would have for it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value and name != "asset"}


class _OneAsset(DeltafoldTranslator):
    """Gives the one dataset of `maintained_view` the key and the attributes that are asked for."""

    def __init__(self, asked: dg.AssetSpec, source_assets: Mapping[str, KeyLike], views: Mapping[str, Dataset]) -> None:
        super().__init__(source_assets)
        self._asked = asked
        self._views = views

    def get_source_key(self, pipeline: Pipeline, source: str) -> dg.AssetKey:
        view = self._views.get(source)
        return view.spec.key if view else super().get_source_key(pipeline, source)

    def get_asset_key(self, pipeline: Pipeline | DescribedDataset) -> dg.AssetKey:
        return self._asked.key

    def get_asset_spec(self, pipeline: Pipeline | DescribedDataset) -> dg.AssetSpec:
        own = super().get_asset_spec(pipeline)
        return replace_attributes(
            self._asked,
            deps={dep.asset_key: dep for dep in (*own.deps, *self._asked.deps)}.values(),
            description=self._asked.description or own.description,
            group_name=self._asked.group_name or own.group_name,
            owners=self._asked.owners or own.owners,
            tags={**_without_kinds(own.tags), **_without_kinds(self._asked.tags)},
            code_version=self._asked.code_version or own.code_version,
            kinds=self._asked.kinds or own.kinds,
            metadata={**own.metadata, **self._asked.metadata},
        )


def _without_kinds(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags without those that Dagster makes of the kinds of an asset."""
    return {name: value for name, value in tags.items() if not name.startswith("dagster/kind/")}


def maintained_view(
    asset: KeyLike | dg.AssetSpec,
    query: "Query",
    *,
    sources: Mapping[str, str | TableSource | dg.AssetsDefinition],
    warehouse: str,
    name: str | None = None,
    equals_batch: str | bool | None = None,
    resource_key: str | None = RESOURCE_KEY,
    retry_policy: dg.RetryPolicy | None = CRASHES,
    pool: str | None = None,
    op_name: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    body: Body | None = None,
    folder: str | Path | None = None,
    **options: Any,
) -> dg.AssetsDefinition:
    """Return the asset of one maintained view.

    Args:
        asset: its key, such as `marts/revenue`; or its spec, with group, owners, tags, kinds, automation condition and
            whatever else you set. Its dependencies are added.
        query: SQL, the path of a file that ends in .sql, .mrql or .py, a function, or a program of MRQL.
        sources: what it reads, by the names that it uses: a Delta table, as a path or a TableSource, or another
            maintained view, which is refreshed to the same versions first.
        warehouse: the folder or URI below which its state and answer are kept, in a folder of their own.
        name: of the view and of that folder; by default made of the key: `marts__revenue`, or of one with other
            characters than small letters, digits and single _, such as `Marts/Revenue`, `marts__revenue_b5ac2a32`.
        equals_batch: the share of keys that a blocking check compares with the query after each refresh, such as
            `100%` or `1%`; True: all; None or False: no check.
        resource_key: the resource with the Spark: a SparkResource, one of dagster-pyspark, or another one that has a
            `spark_session`. None: Spark in the process of the step.
        retry_policy: of its step; by default a crash is tried twice again.
        pool: of its step.
        op_name: of its step, by default that of its key: `marts__revenue__refresh`.
        op_tags: of its step.
        body: of its step, as of `maintained_assets`.
        folder: the one that relative paths start at; by default the working directory.
        options: as in pipeline.yaml: policy, publish, publish_as, on_change, on_lost, chunk, monoids, spark,
            show_rows_in_errors.

    Raises:
        DeclarationError: for an invalid option.
        UsageError: for a source that is something else.
    """
    spec = refuse_partitions(asset) if isinstance(asset, dg.AssetSpec) else dg.AssetSpec(asset_key(asset))
    views = {name: _only(source) for name, source in sources.items() if isinstance(source, dg.AssetsDefinition)}
    tables = {
        name: TableSource(source) if isinstance(source, str) else source
        for name, source in sources.items()
        if not isinstance(source, dg.AssetsDefinition)
    }
    for source, table in tables.items():
        if not isinstance(cast(object, table), TableSource):
            raise UsageError(
                f"source {source}: {type(table).__name__} is no table and no maintained view. Give the path of a Delta "
                "table, TableSource(PATH, asset=…), or the assets that `maintained_view` returned."
            )
    declared = {
        **options,
        "sources": {
            **{source: table.declaration for source, table in tables.items()},
            **{source: {"view": view.pipeline.name} for source, view in views.items()},
        },
        "warehouse": warehouse,
        **({"check": {"sample": "100%" if equals_batch is True else equals_batch}} if equals_batch else {}),
    }
    home = Path(folder).absolute() if folder else Path.cwd()
    below = {source: view.pipeline for source, view in views.items()}
    derived = derive_name(spec.key)
    pipeline = declare_pipeline(name or derived, query, declared, home, below)
    translator = _OneAsset(spec, {source: table.asset for source, table in tables.items() if table.asset}, views)
    return refresh_step(
        op_name or f"{derived}__refresh",
        translate([pipeline], translator, checked=bool(equals_batch)),
        resource_key=resource_key,
        retry_policy=retry_policy,
        pool=pool,
        op_tags=op_tags,
        body=body,
        below=tuple(views.values()),
    )


def _only(view: dg.AssetsDefinition) -> Dataset:
    """Return the dataset of a maintained view; raises UsageError for other assets."""
    step = step_of(view)
    if step.project is not None:
        raise UsageError(
            f"project {step.project.project.name}: a maintained view cannot read its datasets. Declare the view as "
            "another dataset of the project."
        )
    first, *others = step.datasets
    if others:
        raise UsageError(f"asset {first.spec.key.to_user_string()}: its step has {len(others)} more. Name one view.")
    return first


def deltafold_assets(
    pipelines: str | Path | None = None,
    *,
    name: str | None = None,
    tables: str | None = None,
    select: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] = (),
    translator: DeltafoldTranslator | None = None,
    equals_batch: bool | str = True,
    retry_policy: dg.RetryPolicy | None = CRASHES,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    resource_key: str | None = RESOURCE_KEY,
    body: Body | None = None,
) -> dg.AssetsDefinition:
    """Return the datasets of a folder of pipelines, or of a project, as one step; any subset can be materialised.

    Args:
        pipelines: the folder of their folders; by default DELTAFOLD_PIPELINES, else ./pipelines. Or a project: a
            pipeline's folder whose pipeline.yaml has `datasets`, a dbt project or its manifest.json, a
            spark-pipeline.yml or its folder.
        name: of the step, by default that of the folder, marked where a part of it is selected.
        tables: of a dbt project, the folder or URI of the Delta tables that are in no catalog.
        select: which datasets, in dbt's grammar (docs/reference/selections.md): names, `tag:nightly`, `+orders`;
            by default all. One that they read is no asset: it is refreshed with them, in a project read as it is.
        exclude: which of these not.
        translator: names the assets, and maps sources to assets.
        equals_batch: whether each has the blocking check `equals_batch`, of the share that it declares, or of this one,
            such as `1%`.
        retry_policy: of the step; by default a crash is tried twice again.
        pool: of the step.
        op_tags: of the step.
        resource_key: as of `maintained_view`.
        body: of the step, as of `maintained_assets`.

    Raises:
        DeclarationError: for an invalid pipeline that is selected, or a selection that matches nothing.
    """
    folder, translator = _folder(pipelines), translator or DeltafoldTranslator()
    if files := find_project(folder, tables):
        described = describe_project(files)
        assets = translate_project(
            files,
            replace(described, share=_check_share(described.share, asked=equals_batch)),
            *read_texts(select, exclude),
            translator,
            checked=bool(equals_batch),
        )
        translator.check_source_assets(folder, described.sources)
        return project_step(
            name or f"{files.name}__refresh{_mark(select, exclude)}",
            assets,
            resource_key=resource_key,
            retry_policy=retry_policy,
            pool=pool,
            op_tags=op_tags,
            body=body,
        )
    surveyed = _survey(folder)
    loaded = [_with_share(each, asked=equals_batch) for each in _load(folder, surveyed, select, exclude)]
    datasets = translate(loaded, translator, checked=bool(equals_batch))
    translator.check_source_assets(folder, _list_sources(surveyed))
    return refresh_step(
        name or f"{folder.name}__refresh{_mark(select, exclude)}",
        datasets,
        resource_key=resource_key,
        retry_policy=retry_policy,
        pool=pool,
        op_tags=op_tags,
        body=body,
    )


def _mark(select: str | Sequence[str] | None, exclude: str | Sequence[str]) -> str:
    """Return the end of a step's name that tells its selection from others of the same folder; empty without one."""
    chosen, excluded = read_texts(select, exclude)
    texts = (*chosen, "", *excluded)
    return f"_{sha256(repr(texts).encode()).hexdigest()[:6]}" if any(texts) else ""


class StepOptions(TypedDict, total=False):
    """Arguments of `deltafold_assets`."""

    tables: str | None
    select: str | Sequence[str] | None
    exclude: str | Sequence[str]
    translator: DeltafoldTranslator | None
    equals_batch: bool | str
    retry_policy: dg.RetryPolicy | None
    pool: str | None
    op_tags: Mapping[str, Any] | None
    resource_key: str | None


def maintained_assets(
    pipelines: str | Path | None = None, *, name: str | None = None, **options: Unpack[StepOptions]
) -> Callable[[Body], dg.AssetsDefinition]:
    """Decorate the body of a step whose datasets are those of a folder of pipelines, or of a project.

        @maintained_assets("pipelines", select="tag:nightly")
        def nightly(context: dg.AssetExecutionContext, slack: SlackResource):
            yield from refresh_assets(context)
            slack.get_client().chat_postMessage(...)

    The first parameter of the body is `context`; others are resources, by their keys. A `config` is of a class derived
    from RefreshConfig. The lines after the refresh are reached if no dataset failed.

    Args:
        pipelines: as of `deltafold_assets`.
        name: of the step, by default that of the function.
        options: those of `deltafold_assets`.

    Raises:
        DeclarationError: as `deltafold_assets`.
        UsageError: the first parameter is not `context`, or `config` is of another class.
    """
    if callable(pipelines):
        raise UsageError("maintained_assets: it decorates without brackets. Write @maintained_assets(PIPELINES).")

    def decorate(body: Body) -> dg.AssetsDefinition:
        return deltafold_assets(pipelines, name=name or body.__name__, body=body, **options)

    return decorate


def pipeline_steps(
    pipelines: str | Path | None = None,
    *,
    tables: str | None = None,
    translator: DeltafoldTranslator | None = None,
    equals_batch: bool | str = True,
    retry_policy: dg.RetryPolicy | None = CRASHES,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    resource_key: str | None = RESOURCE_KEY,
) -> Sequence[dg.AssetsDefinition]:
    """Return the datasets of a folder as one step each, `<name>__refresh`, by default in pools of their own.

    So two of them can be refreshed at once, and with `in_process_executor` share a Spark nevertheless. A pipeline with
    an invalid declaration, or with an asset that Dagster rejects, becomes an asset that shows the error, and fails with
    it; the others still load. A pipeline with a schedule has a freshness policy: it warns when one refresh is missing,
    and fails when two in a row are.

    A project is one step, that of `deltafold_assets`, whose arguments these are.
    """
    folder, translator = _folder(pipelines), translator or DeltafoldTranslator()
    if files := find_project(folder, tables):
        whole = deltafold_assets(
            folder,
            tables=tables,
            translator=translator,
            equals_batch=equals_batch,
            retry_policy=retry_policy,
            pool=pool or files.name,
            op_tags=op_tags,
            resource_key=resource_key,
        )
        return [whole]
    surveyed = _survey(folder)
    valid = [_with_share(each, asked=equals_batch) for each in surveyed.values() if isinstance(each, Pipeline)]
    translated = survey_datasets(valid, translator, checked=bool(equals_batch))
    translator.check_source_assets(folder, _list_sources(surveyed))
    datasets = {name: _with_freshness(each) for name, each in translated.items() if isinstance(each, Dataset)}

    def project(name: str) -> dg.AssetsDefinition:
        try:
            return deltafold_assets(
                folder / name,
                translator=translator,
                equals_batch=equals_batch,
                retry_policy=retry_policy,
                pool=pool or name,
                op_tags=op_tags,
                resource_key=resource_key,
            )
        except (DeclarationError, dg.DagsterInvalidDefinitionError) as error:
            return _show_error(dg.AssetKey([name]), str(error))

    def step(name: str) -> dg.AssetsDefinition:
        pipeline = surveyed[name]
        if isinstance(pipeline, DeclarationError):
            if folder_project.is_project(folder / name):
                return project(name)
            return _show_error(dg.AssetKey([name]), str(pipeline))
        rejected = translated[name]
        if isinstance(rejected, DeclarationError):
            return _show_error(dg.AssetKey([name]), str(rejected))
        if isinstance(rejected, dg.DagsterInvalidDefinitionError):
            return _show_error(dg.AssetKey([name]), _explain_rejection(pipeline, rejected))
        try:
            return refresh_step(
                f"{name}__refresh",
                [datasets[name]],
                resource_key=resource_key,
                retry_policy=retry_policy,
                pool=pool or name,
                op_tags=op_tags,
                below=[datasets[below.name] for below in pipeline.chain if below.name in datasets],
            )
        except dg.DagsterInvalidDefinitionError as error:  # a name that Dagster reserves, such as `type`
            why = f"{pipeline.folder}: Dagster rejects this name ({error}). Rename the folder."
            return _show_error(dg.AssetKey([name]), why)

    return [step(name) for name in surveyed]


def _with_freshness(dataset: Dataset) -> Dataset:
    """Return a dataset that is expected after every tick of its declared schedule, unless it has a policy."""
    schedule = dataset.pipeline.declaration.schedule
    if schedule is None or dataset.spec.freshness_policy:
        return dataset
    return replace(dataset, spec=replace_attributes(dataset.spec, freshness_policy=freshness_of(schedule)))


def freshness_of(schedule: str) -> dg.FreshnessPolicy:
    """Return the freshness policy of a dataset that is refreshed on a schedule (cron text, in UTC)."""
    pause = longest_pause(schedule)
    return dg.FreshnessPolicy.time_window(fail_window=2 * pause, warn_window=1.25 * pause)


def _explain_rejection(pipeline: Pipeline, error: dg.DagsterInvalidDefinitionError) -> str:
    return f"{pipeline.folder}: Dagster rejects the asset ({error}). Correct it in pipeline.yaml, or in the translator."


def _show_error(key: dg.AssetKey, why: str) -> dg.AssetsDefinition:
    """Return an asset for an invalid pipeline or landing: it shows the error, and fails with it when run."""
    shown = dg.AssetOut(
        key=key,
        group_name=UNDECLARED,
        description=f"Invalid declaration. {why}",
        dagster_type=dg.Nothing,
    )

    # The folder may have any name, but an op may not.
    @dg.multi_asset(name=f"{UNDECLARED}_{sha256(key.to_user_string().encode()).hexdigest()[:8]}", outs={"view": shown})
    def undeclared() -> None:
        raise dg.Failure(description=why, allow_retries=False)

    return register(undeclared, Step((), None, None))


def landing_assets(
    pipelines: str | Path | None = None,
    *,
    select: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] = (),
    translator: DeltafoldTranslator | None = None,
    retry_policy: dg.RetryPolicy | None = CRASHES,
    backfill_policy: dg.BackfillPolicy | None = None,
    pool: str | None = None,
    resource_key: str | None = RESOURCE_KEY,
    skip_invalid: bool = False,
) -> Sequence[dg.AssetsDefinition]:
    """Return an asset for each source that the pipelines of a folder land, partitioned as they declare.

    Args:
        pipelines: as of `deltafold_assets`, as are the others.
        select, exclude: which pipelines, as of `deltafold_assets`.
        translator: names the assets, and may give a partitioned one other partitions.
        retry_policy: of each step.
        backfill_policy: of partitioned ones; by default a backfill over a range is one run.
        pool: of all their steps; by default each has one of its own.
        resource_key: as of `maintained_view`.
        skip_invalid: leave out pipelines with an invalid declaration, which `pipeline_steps` shows. A source whose
            asset Dagster rejects becomes an asset that shows the error.

    Raises:
        DeclarationError: for an invalid pipeline, unless they are skipped.
    """
    translator = translator or DeltafoldTranslator()
    folder = _folder(pipelines)

    def step(pipeline: Pipeline, source: str) -> dg.AssetsDefinition:
        try:
            return landing_step(
                pipeline,
                source,
                translator.get_landing_spec(pipeline, source),
                retry_policy=retry_policy,
                backfill_policy=backfill_policy,
                pool=pool,
                resource_key=resource_key,
            )
        except dg.DagsterInvalidDefinitionError as error:
            if not skip_invalid:
                raise
            return _show_error(translator.get_source_key(pipeline, source), _explain_rejection(pipeline, error))

    if find_project(folder):
        return []  # its step lands them
    surveyed = _survey(folder)
    translator.check_source_assets(folder, _list_sources(surveyed))
    if skip_invalid:
        surveyed = {name: each for name, each in surveyed.items() if isinstance(each, Pipeline)}
    loaded = _load(folder, surveyed, select, exclude)
    return [step(pipeline, source) for pipeline in loaded for source in pipeline.landed]


def get_asset_key_for_dataset(assets: dg.AssetsDefinition | Sequence[dg.AssetsDefinition], name: str) -> dg.AssetKey:
    """Return the key of a dataset, to depend on it, as `get_asset_key_for_model` of dagster-dbt does.

    Args:
        assets: results of `deltafold_assets`, `pipeline_steps` or `maintained_view`.
        name: of the dataset, or of the pipeline.

    Raises:
        UsageError: for a name that none of them has, and for assets of any other kind.
    """
    keys = dict[str, dg.AssetKey]()
    for step in map(step_of, [assets] if isinstance(assets, dg.AssetsDefinition) else assets):
        keys |= {dataset.name: dataset.key for dataset in step.datasets}
        if (project := step.project) is not None:
            described = (each for each in project.project.datasets if each.relation in project.datasets)
            keys |= {each.name: project.keys[each.relation] for each in described}
    if name not in keys:
        raise UsageError(f"dataset {name}: these assets have none of this name. {suggest_nearest(name, list(keys))}")
    return keys[name]


def get_asset_key_for_source(assets: dg.AssetsDefinition | Sequence[dg.AssetsDefinition], name: str) -> dg.AssetKey:
    """Return the key of the asset of a source, to write it, as `get_asset_key_for_source` of dagster-dbt does.

    Args:
        assets: results of `deltafold_assets`, `pipeline_steps` or `maintained_view`.
        name: of the source, as the pipelines declare it; of a dbt project `SOURCE.TABLE`, or that of a seed.

    Raises:
        UsageError: for a name that none of them reads, or that stands for several assets, and for assets of any other
            kind.
    """
    keys = dict[str, set[dg.AssetKey]]()
    for step in map(step_of, [assets] if isinstance(assets, dg.AssetsDefinition) else assets):
        read = [
            (source, key)
            for each in step.datasets
            for source, key in each.sources.items()
            if source not in each.pipeline.below
        ]
        if (project := step.project) is not None:
            read += [(source, project.keys[source]) for source in project.project.sources]
        for source, key in read:
            keys.setdefault(source, set()).add(key)
    if name not in keys:
        fix = suggest_nearest(name, list(keys))
        with contextlib.suppress(UsageError):
            get_asset_key_for_dataset(assets, name)
            fix = "It is a dataset: get_asset_key_for_dataset has its key."
        raise UsageError(f"source {name}: these assets read none of this name. {fix}")
    key, *others = sorted(keys[name])
    if others:
        named = ", ".join(each.to_user_string() for each in (key, *others))
        raise UsageError(f"source {name}: it stands for several assets ({named}). Name one, or ask for one dataset.")
    return key


def source_tables(
    *assets: dg.AssetsDefinition, automation_condition: dg.AutomationCondition[Any] | None = None
) -> Sequence[dg.AssetsDefinition]:
    """Return the Delta tables that datasets read and others write, as `watched_table` does.

    A table that is declared by its name in the catalog is observed at the path that the last refresh found.

    Args:
        assets: results of `deltafold_assets`, `pipeline_steps` or `maintained_view`.
        automation_condition: when they are observed, such as `AutomationCondition.on_cron("* * * * *")`.

    Raises:
        UsageError: for assets of any other kind.
    """
    tables: dict[dg.AssetKey, dg.AssetsDefinition] = {}
    steps = [step_of(each) for each in assets]
    for project in (step.project for step in steps if step.project):
        read = {name for each in project.project.datasets if each.relation in project.datasets for name in each.reads}
        for name, source in project.project.sources.items():
            if name in read and not source.lands:
                spec = dg.AssetSpec(project.keys[name], automation_condition=automation_condition)
                address = {"dagster/uri": source.delta} if source.delta else {"dagster/table_name": source.table}
                locate = partial(_locate_of_project, project, name)
                tables[spec.key] = _observable(spec, address, locate)
    for dataset in (dataset for step in steps for dataset in step.datasets):
        for name, source in dataset.pipeline.declaration.sources.items():
            if (source.delta or source.table) and not find_lander(dataset.pipeline, name):
                address = {"dagster/uri": source.delta} if source.delta else {"dagster/table_name": source.table}
                locate = partial(_locate, dataset, name)
                spec = dg.AssetSpec(dataset.sources[name], automation_condition=automation_condition)
                tables[spec.key] = _observable(spec, address, locate)
    return list(tables.values())


def _locate(dataset: Dataset, source: str, instance: dg.DagsterInstance) -> str:
    path = following.find_location(dataset, source, instance)
    if path is None:
        table = dataset.pipeline.declaration.sources[source].table
        raise dg.Failure(following.unknown_location(table, source, dataset.name), allow_retries=False)
    return path


def _locate_of_project(project: ProjectAssets, source: str, instance: dg.DagsterInstance) -> str:
    path = following.find_project_location(project, source, instance)
    if path is None:
        table, name = project.project.sources[source].table, project.project.name
        raise dg.Failure(following.unknown_location(table, source, name), allow_retries=False)
    return path


def watched_table(asset: KeyLike | dg.AssetSpec, delta: str) -> dg.AssetsDefinition:
    """Return the asset of a Delta table that others write, which an observation gives the version of its last change.

    An observation reads the log and starts no Spark; compaction is no change. After one, `AutomationCondition.eager()`
    refreshes what reads a newer version.

    Args:
        asset: its key; or its spec, with group, owners, tags, kinds and whatever else you set. The automation condition
            is when it is observed, such as `AutomationCondition.on_cron("* * * * *")`.
        delta: the path or URI of the table.

    Raises:
        DeclarationError: the spec has partitions.
    """
    spec = asset if isinstance(asset, dg.AssetSpec) else dg.AssetSpec(asset_key(asset))
    return _observable(refuse_partitions(spec), {"dagster/uri": delta}, lambda _: delta)


def _observable(
    spec: dg.AssetSpec, address: Mapping[str, Any], locate: Callable[[dg.DagsterInstance], str]
) -> dg.AssetsDefinition:
    """Return the observable asset of a table; locate: finds its path in the last events of an instance."""
    described = replace_attributes(
        spec,
        description=spec.description or "A Delta table that others write.",
        kinds=spec.kinds or {"deltalake"},
        tags=_without_kinds(spec.tags),
        metadata={**address, "dagster/storage_kind": "deltalake", **spec.metadata},
    )

    def observe(context: dg.AssetExecutionContext) -> dg.ObserveResult:
        path = locate(context.instance)
        version = changed_version(path)
        if version is None:
            raise dg.Failure(f"{path}: there is no Delta table. Correct the path, or write the table first.")
        [key] = context.selected_asset_keys
        return dg.ObserveResult(asset_key=key, data_version=dg.DataVersion(str(version)))

    with warnings.catch_warnings():  # the decorator may change in a later release
        warnings.simplefilter("ignore", dg.BetaWarning)
        name = f"{spec.key.to_python_identifier()}__observe"
        return dg.multi_observable_source_asset(name=name, specs=[described])(observe)


def _folder(pipelines: str | Path | None) -> Path:
    return Path(pipelines).absolute() if pipelines is not None else catalogue.pipelines_folder()


def _survey(folder: Path) -> dict[str, Pipeline | DeclarationError]:
    """Return the pipelines of a folder; warns of one without any, and raises DeclarationError where there is none."""
    surveyed = catalogue.survey_pipelines(folder)
    if not surveyed:
        warnings.warn(catalogue.explain_none(folder), DeltafoldWarning, stacklevel=2)
    return surveyed


def _list_sources(surveyed: Mapping[str, Pipeline | DeclarationError]) -> dict[str, None]:
    """Return what the valid pipelines of a folder read, by name."""
    valid = (each for each in surveyed.values() if isinstance(each, Pipeline))
    return dict.fromkeys(source for each in valid for source in each.declaration.sources)


def _load(
    folder: Path,
    surveyed: Mapping[str, Pipeline | DeclarationError],
    select: str | Sequence[str] | None,
    exclude: str | Sequence[str],
) -> list[Pipeline]:
    """Return the selected pipelines of a folder, each before its readers."""
    names = tuple(surveyed)
    texts = read_texts(select, exclude)
    if any(texts):
        names = Nodes.of(find_pipelines(surveyed), dashes="").select(*texts)
    invalid = (folder / name for name in names if isinstance(surveyed[name], DeclarationError))
    if project := next(filter(folder_project.is_project, invalid), None):
        raise DeclarationError(
            f"{project}: it has datasets, so it is a step of its own. Name its folder, or exclude {project.name}."
        )
    chosen = [_valid(surveyed[name]) for name in names]
    ordered = {pipeline.name: pipeline for top in chosen for pipeline in (*top.chain, top)}
    return [pipeline for name, pipeline in ordered.items() if name in names]


def _with_share(pipeline: Pipeline, *, asked: bool | str) -> Pipeline:
    """Return a pipeline whose check compares the share that was asked for, if one was."""
    check = pipeline.declaration.check
    check = check.model_copy(update={"sample": _check_share(check.sample, asked=asked)})
    return replace(pipeline, declaration=pipeline.declaration.model_copy(update={"check": check}))


def _check_share(declared: str, *, asked: bool | str) -> str:
    """Return the share that was asked for, else the declared one; raises DeclarationError for no share."""
    if isinstance(asked, bool):
        return declared
    try:
        return check_share(asked)
    except ValueError as error:
        raise DeclarationError(f"equals_batch: {error}.") from None


def _valid(pipeline: Pipeline | DeclarationError) -> Pipeline:
    if isinstance(pipeline, DeclarationError):
        raise pipeline
    return pipeline
