"""Define the components of defs.yaml: one maintained view, and the pipelines of a folder.

`dg scaffold defs deltafold.dagster.MaintainedView revenue` writes a first defs.yaml and its query. Attributes of the
assets are set there, by `post_processing`, or by a subclass that overrides `get_asset_spec`.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

import dagster as dg

from deltafold.algebra.local_path import is_uri
from deltafold.dagster.automation import maintenance_job
from deltafold.dagster.dataset_step import refresh_assets, step_of
from deltafold.dagster.pipeline_assets import deltafold_assets, landing_assets
from deltafold.dagster.step_body import Result
from deltafold.dagster.storage import folders_of_components
from deltafold.dagster.task_runner import CRASHES
from deltafold.dagster.translator import DeltafoldTranslator, asset_key, replace_attributes
from deltafold.dagster.view_asset import TableSource, maintained_view
from deltafold.dagster.watched_tables import source_tables
from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.declaration.cron import check_cron
from deltafold.pipelines.declaration.parsing import DeclarationError, suggest_nearest
from deltafold.pipelines.described_project import DescribedDataset
from deltafold.pipelines.queries import is_query_file

QUERY = """\
SELECT customer, sum(amount) AS revenue
FROM orders
GROUP BY customer
"""
CUSTOMERS = """\
SELECT customer, count(*) AS orders, max(amount) AS largest
FROM orders
GROUP BY customer
"""
PIPELINE = """\
sources:
  orders: {{delta: "${{ORDERS:-{data}/orders}}"}}
warehouse: {data}/warehouse
"""

RESOURCE = dg.Resolver.default(
    description="The resource that Spark comes from; without one, Spark runs in the process of the step."
)
OP = dg.Resolver.default(
    description="The step that refreshes: its name, tags and pool.",
    examples=[{"name": "refresh_marts", "tags": {"team": "finance"}, "pool": "spark"}],
)
MAINTAIN = dg.Resolver.default(
    description="When to compact the tables and remove old files: adds the job maintain_NAME and its schedule, in UTC. "
    "By default neither.",
    examples=["0 3 * * 0"],
)
WATCH = dg.Resolver.default(
    description="When to look for new versions of the Delta tables that no asset of yours writes: adds observable "
    "assets of these, with a condition. Times are UTC. By default none.",
    examples=["* * * * *"],
)


@dataclass(frozen=True)
class Retries(dg.Resolvable):
    """How often a crash is tried again, and the seconds before the first time, which double each time."""

    max_retries: int = CRASHES.max_retries
    delay: float | None = CRASHES.delay

    @property
    def policy(self) -> dg.RetryPolicy:
        """The policy of a step."""
        return dg.RetryPolicy(self.max_retries, self.delay, dg.Backoff.EXPONENTIAL if self.delay else None)


@dataclass(frozen=True)
class Op(dg.Resolvable):
    """The step that refreshes: its name, also in the config of runs, its tags, and the pool that limits it."""

    name: str | None = None
    tags: Mapping[str, Any] | None = None
    pool: str | None = None


Translation = Callable[[dg.AssetSpec, Pipeline | DescribedDataset], dg.AssetSpec]
"""Returns the asset of a dataset with other attributes."""


def _resolve_translation(context: dg.ResolutionContext, model: Any) -> Translation | None:
    """Return what applies the attributes of defs.yaml, whose templates may use `dataset` and `spec`; None without."""
    if model is None:
        return None
    asked: Mapping[str, Any] = model.model_dump(exclude_unset=True)
    if "partitions_def" in asked:
        raise DeclarationError("translation.partitions_def: a dataset has no partitions. Remove it.")

    def translate(spec: dg.AssetSpec, dataset: Pipeline | DescribedDataset) -> dg.AssetSpec:
        scope: Any = cast(Any, context).with_scope(dataset=dataset, spec=spec)
        attributes = dict[str, Any](scope.resolve_value(asked))
        key = asset_key(attributes.pop("key", spec.key))
        key = key.with_prefix(attributes.pop("key_prefix", []))
        deps = [dg.AssetDep(asset_key(dep)) for dep in attributes.pop("deps", [])]
        merged = {name: attributes.pop(name) for name in ("tags", "metadata") if name in attributes}
        changed = replace_attributes(spec, **attributes, key=key, deps=[*spec.deps, *deps])
        return changed.merge_attributes(**merged)

    return translate


class ViewScaffolder(dg.Scaffolder[Any]):
    """Writes a defs.yaml with a query over one table."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write both files."""
        name = request.target_path.name
        attributes = {
            "asset": {"key": name},
            "query": f"{name}.sql",
            "sources": {"orders": {"delta": "data/orders", "asset": "orders"}},
            "warehouse": "data/warehouse",
            "equals_batch": "100%",
        }
        (request.target_path / f"{name}.sql").write_text(QUERY)
        dg.scaffold_component(request, attributes)


class PipelineScaffolder(dg.Scaffolder[Any]):
    """Writes a defs.yaml, and a folder with a first pipeline."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write the files."""
        folder = request.target_path / "pipelines" / "customers"
        folder.mkdir(parents=True, exist_ok=True)
        data = os.path.relpath((request.project_root or Path.cwd()) / "data", folder)
        (folder / "pipeline.yaml").write_text(PIPELINE.format(data=Path(data).as_posix()))
        (folder / "query.sql").write_text(CUSTOMERS)
        dg.scaffold_component(request, {"pipelines": "pipelines", "source_assets": {"orders": "orders"}})


def _check_cron(option: str, text: str) -> None:
    try:
        check_cron(text)
    except ValueError as error:
        raise DeclarationError(f"{option}: {error}.") from None


def _watch(assets: dg.AssetsDefinition, cron: str | None, written: Set[dg.AssetKey]) -> list[dg.AssetsDefinition]:
    """Return the tables that are observed at the ticks of a cron text (D-220).

    written: those that assets of the user write.
    """
    if cron is None:
        return []
    _check_cron("watch_tables", cron)
    tables = source_tables(assets, automation_condition=dg.AutomationCondition.on_cron(cron))
    return [table for table in tables if table.key not in written]


def _schedule_upkeep(assets: dg.AssetsDefinition, name: str, cron: str | None) -> list[dg.ScheduleDefinition]:
    """Return the schedule of maintenance, which brings its job, for a cron text."""
    if cron is None:
        return []
    _check_cron("maintain", cron)
    job = maintenance_job(assets, name=f"maintain_{name}")
    running = dg.DefaultScheduleStatus.RUNNING
    return [dg.ScheduleDefinition(job=job, cron_schedule=cron, execution_timezone="UTC", default_status=running)]


@dg.scaffold_with(ViewScaffolder)
@dataclass
class MaintainedView(dg.Component, dg.Resolvable):
    """One maintained view as an asset of your project: its answer follows the Delta tables that its query reads."""

    asset: Annotated[
        dg.ResolvedAssetSpec,
        dg.Resolver.default(
            description="The asset: its key, and group_name, owners, tags, kinds, automation_condition and others."
        ),
    ]
    query: Annotated[
        str, dg.Resolver.default(description="Spark SQL, or the name of a .sql, .mrql or .py file beside defs.yaml.")
    ]
    sources: Annotated[
        dict[str, TableSource],
        dg.Resolver.default(description="The Delta tables that the query reads, by name, and who writes them."),
    ]
    warehouse: Annotated[
        str, dg.Resolver.default(description="The folder or URI below which state and answer are kept.")
    ]
    name: str | None = None
    equals_batch: Annotated[
        str | bool | None,
        dg.Resolver.default(description="The share of keys that a blocking check compares with the query, such as 1%."),
    ] = None
    options: Annotated[
        Mapping[str, Any],
        dg.Resolver.default(description="As in pipeline.yaml: policy, publish_as, on_change, on_lost, chunk, spark, …"),
    ] = field(default_factory=dict[str, Any])
    resource_key: Annotated[str | None, RESOURCE] = None
    op: Annotated[Op, OP] = Op()
    retries: Retries = Retries()
    maintain: Annotated[str | None, MAINTAIN] = None
    watch_tables: Annotated[str | None, WATCH] = None

    def execute(self, context: dg.AssetExecutionContext) -> Iterator[Result]:
        """Refresh what a run selects, and yield the results; for subclasses to override, also with resources."""
        yield from refresh_assets(context)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the asset, and nothing else unless that is asked for."""
        is_file = is_query_file(Path(self.query)) and "\n" not in self.query
        view = maintained_view(
            self.asset,
            context.path / self.query if is_file else self.query,
            sources=self.sources,
            warehouse=self.warehouse,
            name=self.name,
            equals_batch=self.equals_batch,
            resource_key=self.resource_key,
            retry_policy=self.retries.policy,
            pool=self.op.pool,
            op_name=self.op.name,
            op_tags=self.op.tags,
            body=self.execute,
            folder=context.project_root,
            **self.options,
        )
        folders_of_components(context).add(step_of(view))
        [dataset] = step_of(view).datasets
        written = {source for source, table in self.sources.items() if table.asset}
        return dg.Definitions(
            assets=[view, *_watch(view, self.watch_tables, {dataset.sources[source] for source in written})],
            schedules=_schedule_upkeep(view, dataset.name, self.maintain),
        )


@dg.scaffold_with(PipelineScaffolder)
@dataclass
class DeltafoldPipeline(dg.Component, dg.Resolvable):
    """The pipelines of a folder: one step for all datasets, and an asset for each source whose files are landed."""

    pipelines: Annotated[
        str, dg.Resolver.default(description="The folder of pipelines, relative to that of defs.yaml.")
    ] = "pipelines"
    tables: Annotated[
        str | None,
        dg.Resolver.default(
            description="Of a dbt project: the folder or URI of Delta tables that are in no catalog, relative to the "
            "project's folder."
        ),
    ] = None
    select: Annotated[
        str | Sequence[str] | None,
        dg.Resolver.default(
            description="Which datasets, in dbt's grammar; by default all of the folder.",
            examples=["tag:nightly", "+orders"],
        ),
    ] = None
    exclude: Annotated[
        str | Sequence[str], dg.Resolver.default(description="Which datasets not, in dbt's grammar.")
    ] = ()
    source_assets: Annotated[
        Mapping[str, str],
        dg.Resolver.default(description="The assets that write the sources, by the sources' names."),
    ] = field(default_factory=dict[str, str])
    key_prefix: Annotated[
        Sequence[str], dg.Resolver.default(description="What the keys of all datasets begin with.")
    ] = ()
    translation: Annotated[
        Translation | None,
        dg.Resolver(
            _resolve_translation,
            model_field_type=dg.AssetAttributesModel | None,
            inject_before_resolve=False,
            description="Attributes of the assets of all datasets; templates may use `dataset` and `spec`.",
            examples=[{"key": "marts/{{ dataset.name }}", "group_name": "marts"}],
        ),
    ] = None
    equals_batch: bool | str = True
    resource_key: Annotated[str | None, RESOURCE] = None
    op: Annotated[Op, OP] = Op()
    retries: Retries = Retries()
    maintain: Annotated[str | None, MAINTAIN] = None
    watch_tables: Annotated[str | None, WATCH] = None
    partitions_per_run: Annotated[
        int | None,
        dg.Resolver.default(
            description="The most partitions that a run of a backfill lands; by default all of a range."
        ),
    ] = None

    def get_asset_spec(self, pipeline: Pipeline | DescribedDataset) -> dg.AssetSpec:
        """Return the asset of a dataset; for subclasses to override."""
        spec = self._translator.get_asset_spec(pipeline)
        return self.translation(spec, pipeline) if self.translation else spec

    def get_asset_check_spec(
        self, pipeline: Pipeline | DescribedDataset, check: dg.AssetCheckSpec
    ) -> dg.AssetCheckSpec | None:
        """Return a check of a dataset, or None to leave it out; for subclasses to override."""
        return self._translator.get_asset_check_spec(pipeline, check)

    def get_landing_spec(self, pipeline: Pipeline, source: str) -> dg.AssetSpec:
        """Return the asset of a source that is landed; for subclasses to override."""
        return self._translator.get_landing_spec(pipeline, source)

    def execute(self, context: dg.AssetExecutionContext) -> Iterator[Result]:
        """Refresh what a run selects, and yield the results; for subclasses to override, also with resources."""
        yield from refresh_assets(context)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the assets, and nothing else unless that is asked for."""
        # Code is beside defs.yaml, and data below the folder of the project (D-221).
        folder = context.path / self.pipelines
        tables = self.tables if self.tables is None or is_uri(self.tables) else str(context.project_root / self.tables)
        translator = _OfComponent(self)
        landed = landing_assets(
            folder,
            select=self.select,
            exclude=self.exclude,
            translator=translator,
            retry_policy=self.retries.policy,
            backfill_policy=dg.BackfillPolicy.multi_run(self.partitions_per_run) if self.partitions_per_run else None,
            resource_key=self.resource_key,
        )
        refreshed = deltafold_assets(
            folder,
            name=self.op.name or f"{context.path.name}__refresh",
            tables=tables,
            select=self.select,
            exclude=self.exclude,
            translator=translator,
            equals_batch=self.equals_batch,
            resource_key=self.resource_key,
            retry_policy=self.retries.policy,
            pool=self.op.pool,
            op_tags=self.op.tags,
            body=self.execute,
        )
        folders_of_components(context).add(step_of(refreshed))
        written = {asset_key(key) for key in self.source_assets.values()}
        return dg.Definitions(
            assets=[*landed, refreshed, *_watch(refreshed, self.watch_tables, written)],
            schedules=_schedule_upkeep(refreshed, context.path.name, self.maintain),
        )

    @property
    def _translator(self) -> DeltafoldTranslator:
        return DeltafoldTranslator(self.source_assets, self.key_prefix)


class _OfComponent(DeltafoldTranslator):
    """Lets a subclass of the component override specs."""

    def __init__(self, component: DeltafoldPipeline) -> None:
        super().__init__(component.source_assets, component.key_prefix)
        self._component = component

    def check_source_assets(self, folder: Path, sources: Collection[str]) -> None:
        """Raise DeclarationError if `source_assets` names a source that no dataset of the folder reads."""
        for name in self._component.source_assets.keys() - set(sources):
            near = suggest_nearest(name, sources)
            raise DeclarationError(f"source_assets: {folder} has no source `{name}`. {near}")

    def get_asset_spec(self, pipeline: Pipeline | DescribedDataset) -> dg.AssetSpec:
        return self._component.get_asset_spec(pipeline)

    def get_asset_check_spec(
        self, pipeline: Pipeline | DescribedDataset, check: dg.AssetCheckSpec
    ) -> dg.AssetCheckSpec | None:
        return self._component.get_asset_check_spec(pipeline, check)

    def get_landing_spec(self, pipeline: Pipeline, source: str) -> dg.AssetSpec:
        return self._component.get_landing_spec(pipeline, source)
