"""Define assets for the Dagster project of a user: maintained views, pipelines of a folder, landed and watched tables.

Nothing else comes along: no job, schedule, sensor, executor or resource. Building the definitions reads texts only, and
imports no Spark.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from deltafold.algebra.errors import UsageError
from deltafold.dagster.dataset_step import Dataset, datasets_of, find_runner, refresh_step, translate
from deltafold.dagster.folders import delta_version
from deltafold.dagster.partitions import partitions_of
from deltafold.dagster.steps import LandingConfig, Materialised, UpkeepConfig, land
from deltafold.dagster.task_runner import CRASHES
from deltafold.dagster.translator import DeltafoldTranslator, KeyLike, asset_key, replace_attributes
from deltafold.pipelines import catalogue
from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.inline import declare_pipeline
from deltafold.pipelines.tasks import MaintainTask

if TYPE_CHECKING:
    from deltafold.pipelines.inline import Query

RESOURCE_KEY = "deltafold"


@dataclass(frozen=True)
class TableSource(dg.Resolvable):
    """A Delta table that a maintained view reads, and the asset that writes it.

    delta: its path or URI; table: or its name in Spark's catalog; asset: the key of the asset, by default the name of
    the source; invariant, primary_key and append_only: as in `deltafold.Delta`.
    """

    delta: str | None = None
    table: str | None = None
    asset: str | None = None
    invariant: bool = False
    primary_key: Sequence[str] = ()
    append_only: bool = False

    @property
    def declaration(self) -> Mapping[str, Any]:
        """What a pipeline.yaml would have for it."""
        return {name: value for name, value in asdict(self).items() if value and name != "asset"}


class _OneAsset(DeltafoldTranslator):
    """Gives the one dataset of `maintained_view` the key and the attributes that are asked for."""

    def __init__(self, asked: dg.AssetSpec, source_assets: Mapping[str, str], views: Mapping[str, Dataset]) -> None:
        super().__init__(source_assets)
        self._asked = asked
        self._views = views

    def get_source_key(self, pipeline: Pipeline, source: str) -> dg.AssetKey:
        view = self._views.get(source)
        return view.spec.key if view else super().get_source_key(pipeline, source)

    def get_asset_key(self, pipeline: Pipeline) -> dg.AssetKey:
        return self._asked.key

    def get_asset_spec(self, pipeline: Pipeline) -> dg.AssetSpec:
        own = super().get_asset_spec(pipeline)
        return replace_attributes(
            self._asked,
            deps={dep.asset_key: dep for dep in (*own.deps, *self._asked.deps)}.values(),
            description=self._asked.description or own.description,
            code_version=self._asked.code_version or own.code_version,
            kinds=self._asked.kinds or own.kinds,
            metadata={**own.metadata, **self._asked.metadata},
        )


def maintained_view(
    asset: KeyLike | dg.AssetSpec,
    query: "Query",
    *,
    sources: Mapping[str, str | TableSource | dg.AssetsDefinition],
    warehouse: str,
    name: str | None = None,
    equals_batch: str | None = None,
    resource_key: str | None = RESOURCE_KEY,
    retry_policy: dg.RetryPolicy | None = CRASHES,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
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
        name: of the view and of that folder; by default of the key, as `marts__revenue`.
        equals_batch: the share of keys that a blocking check compares with the query after each refresh, such as
            `100%` or `1%`; None: no check.
        resource_key: the resource with the Spark: a SparkResource, one of dagster-pyspark, or another one that has a
            `spark_session`. None: Spark in the process of the step.
        retry_policy: of its step; by default a crash is tried twice again.
        pool: of its step.
        op_tags: of its step.
        folder: the one that relative paths start at; by default the working directory.
        options: as in pipeline.yaml: policy, publish, publish_as, on_change, on_lost, chunk, monoids, spark,
            show_rows_in_errors.

    Raises:
        DeclarationError: for an invalid option.
    """
    spec = asset if isinstance(asset, dg.AssetSpec) else dg.AssetSpec(asset_key(asset))
    views = {name: _only(source) for name, source in sources.items() if isinstance(source, dg.AssetsDefinition)}
    tables = {
        name: TableSource(source) if isinstance(source, str) else source
        for name, source in sources.items()
        if not isinstance(source, dg.AssetsDefinition)
    }
    declared = {
        **options,
        "sources": {
            **{source: table.declaration for source, table in tables.items()},
            **{source: {"view": view.pipeline.name} for source, view in views.items()},
        },
        "warehouse": warehouse,
        **({"check": {"sample": equals_batch}} if equals_batch else {}),
    }
    home = Path(folder).absolute() if folder else Path.cwd()
    below = {source: view.pipeline for source, view in views.items()}
    pipeline = declare_pipeline(name or spec.key.to_python_identifier(), query, declared, home, below)
    translator = _OneAsset(spec, {source: table.asset for source, table in tables.items() if table.asset}, views)
    return refresh_step(
        f"{spec.key.to_python_identifier()}__refresh",
        translate([pipeline], translator, checked=bool(equals_batch)),
        resource_key=resource_key,
        retry_policy=retry_policy,
        pool=pool,
        op_tags=op_tags,
        below=tuple(views.values()),
    )


def _only(view: dg.AssetsDefinition) -> Dataset:
    """Return the dataset of a maintained view; raises UsageError for other assets."""
    first, *others = datasets_of(view)
    if others:
        raise UsageError(f"asset {first.spec.key.to_user_string()}: its step has {len(others)} more. Name one view.")
    return first


def deltafold_assets(
    pipelines: str | Path | None = None,
    *,
    name: str | None = None,
    select: Collection[str] | None = None,
    translator: DeltafoldTranslator | None = None,
    equals_batch: bool = True,
    retry_policy: dg.RetryPolicy | None = CRASHES,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    resource_key: str | None = RESOURCE_KEY,
) -> dg.AssetsDefinition:
    """Return the datasets of a folder of pipelines as one step, of which any subset can be materialised.

    Args:
        pipelines: the folder of their folders; by default DELTAFOLD_PIPELINES, else ./pipelines.
        name: of the step, by default that of the folder.
        select: the names of datasets, by default all; one that they read is refreshed with them, but is no asset.
        translator: names the assets, and maps sources to assets.
        equals_batch: whether each has the blocking check `equals_batch`, of the share that it declares.
        retry_policy: of the step; by default a crash is tried twice again.
        pool: of the step.
        op_tags: of the step.
        resource_key: as of `maintained_view`.

    Raises:
        DeclarationError: for an invalid pipeline, or a name in `select` that there is not.
    """
    folder = _folder(pipelines)
    datasets = translate(_load(folder, select), translator or DeltafoldTranslator(), checked=equals_batch)
    return refresh_step(
        name or f"{folder.name}__refresh",
        datasets,
        resource_key=resource_key,
        retry_policy=retry_policy,
        pool=pool,
        op_tags=op_tags,
    )


def landing_assets(
    pipelines: str | Path | None = None,
    *,
    select: Collection[str] | None = None,
    translator: DeltafoldTranslator | None = None,
    retry_policy: dg.RetryPolicy | None = CRASHES,
    resource_key: str | None = RESOURCE_KEY,
) -> Sequence[dg.AssetsDefinition]:
    """Return an asset for each source that the pipelines of a folder land, partitioned as they declare.

    The arguments are those of `deltafold_assets`.
    """
    translator = translator or DeltafoldTranslator()
    return [
        _landing(pipeline, source, translator.get_landing_spec(pipeline, source), retry_policy, resource_key)
        for pipeline in _load(_folder(pipelines), select)
        for source in pipeline.landed
    ]


def _landing(
    pipeline: Pipeline,
    source: str,
    spec: dg.AssetSpec,
    retry_policy: dg.RetryPolicy | None,
    resource_key: str | None,
) -> dg.AssetsDefinition:
    partitioned = source in pipeline.partitioned
    if partitioned and spec.partitions_def is None:
        spec = replace_attributes(spec, partitions_def=partitions_of(pipeline))

    @dg.multi_asset(
        name=f"{spec.key.to_python_identifier()}__land",
        specs=[spec],
        backfill_policy=dg.BackfillPolicy.single_run() if partitioned else None,
        required_resource_keys={resource_key} if resource_key else set(),
        retry_policy=retry_policy,
    )
    def landing(context: dg.AssetExecutionContext, config: LandingConfig) -> Materialised:
        return land(context, find_runner(context, resource_key), pipeline, source, config)

    return landing


def maintenance_job(
    *assets: dg.AssetsDefinition,
    name: str = "maintain_deltafold",
    retry_policy: dg.RetryPolicy | None = CRASHES,
    resource_key: str | None = RESOURCE_KEY,
) -> dg.JobDefinition:
    """Return a job that compacts the tables of datasets, and removes old files that no reader needs; schedule it.

    Args:
        assets: results of `maintained_view` or `deltafold_assets`.
        name: of the job.
        retry_policy: of its step.
        resource_key: as of `maintained_view`.

    Raises:
        UsageError: for assets of any other kind.
    """
    pipelines = [dataset.pipeline for step in assets for dataset in datasets_of(step)]

    @dg.op(
        name=f"{name}__step",
        out=dg.Out(dg.Nothing),
        required_resource_keys={resource_key} if resource_key else set(),
        retry_policy=retry_policy,
    )
    def maintain(context: dg.OpExecutionContext, config: UpkeepConfig) -> None:
        spark = find_runner(context, resource_key)
        for pipeline in pipelines:
            done = spark.run(context, pipeline, MaintainTask(config.retention_hours))
            context.log.info(f"{pipeline.name}: {done.upkeep.sentence}")

    @dg.job(  # pyright: ignore[reportUnknownMemberType]
        name=name, description="Compacts the tables of maintained datasets, and removes old files."
    )
    def job() -> None:
        maintain()

    return job


def watched_table(
    key: KeyLike,
    delta: str,
    *,
    automation_condition: dg.AutomationCondition[dg.AssetKey] | None = None,
    group_name: str | None = None,
) -> dg.SourceAsset:
    """Return the asset of a Delta table that others write, which an observation gives the version of its log.

    An observation starts no Spark. After one, `AutomationCondition.eager()` refreshes what reads a newer version.

    Args:
        key: of the asset.
        delta: the path or URI of the table.
        automation_condition: when it is observed, such as `AutomationCondition.on_cron("* * * * *")`.
        group_name: of the asset.
    """

    @dg.observable_source_asset(  # pyright: ignore[reportUnknownMemberType]
        key=asset_key(key),
        group_name=group_name,
        automation_condition=automation_condition,
        metadata={"dagster/uri": delta, "dagster/storage_kind": "deltalake"},
        description="A Delta table that others write.",
    )
    def observe() -> dg.DataVersion:
        version = delta_version(delta)
        if version is None:
            raise dg.Failure(f"{delta}: there is no Delta table. Correct the path, or write the table first.")
        return dg.DataVersion(str(version))

    return observe


def _folder(pipelines: str | Path | None) -> Path:
    return Path(pipelines).absolute() if pipelines is not None else catalogue.pipelines_folder()


def _load(folder: Path, select: Collection[str] | None) -> list[Pipeline]:
    """Return the pipelines of a folder, each before its readers."""
    chosen = catalogue.load_all(folder) if select is None else [catalogue.load(name, folder) for name in select]
    ordered = {pipeline.name: pipeline for top in chosen for pipeline in (*top.chain, top)}
    names = {pipeline.name for pipeline in chosen}
    return [pipeline for name, pipeline in ordered.items() if name in names]
