"""Define the components of defs.yaml: one maintained view, and the pipelines of a folder.

`dg scaffold defs deltafold.dagster.MaintainedView revenue` writes a first defs.yaml and its query. Attributes of the
assets are set there, by `post_processing`, or by a subclass that overrides `get_asset_spec`.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import dagster as dg

from deltafold.dagster.maintained import TableSource, deltafold_assets, landing_assets, maintained_view
from deltafold.dagster.task_runner import CRASHES
from deltafold.dagster.translator import DeltafoldTranslator
from deltafold.pipelines.catalogue import Pipeline
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


@dataclass(frozen=True)
class Retries(dg.Resolvable):
    """How often a crash is tried again, and the seconds before the first time, which double each time."""

    max_retries: int = CRASHES.max_retries
    delay: float | None = CRASHES.delay

    @property
    def policy(self) -> dg.RetryPolicy:
        """The policy of a step."""
        return dg.RetryPolicy(self.max_retries, self.delay, dg.Backoff.EXPONENTIAL if self.delay else None)


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
        str | None,
        dg.Resolver.default(description="The share of keys that a blocking check compares with the query, such as 1%."),
    ] = None
    options: Annotated[
        Mapping[str, Any],
        dg.Resolver.default(description="As in pipeline.yaml: policy, publish_as, on_change, on_lost, chunk, spark, …"),
    ] = field(default_factory=dict[str, Any])
    resource_key: Annotated[str | None, RESOURCE] = None
    retries: Retries = Retries()
    pool: str | None = None
    op_tags: Mapping[str, Any] | None = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the asset, and nothing else."""
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
            pool=self.pool,
            op_tags=self.op_tags,
            folder=context.project_root,
            **self.options,
        )
        return dg.Definitions(assets=[view])


@dg.scaffold_with(PipelineScaffolder)
@dataclass
class DeltafoldPipeline(dg.Component, dg.Resolvable):
    """The pipelines of a folder: one step for all datasets, and an asset for each source whose files are landed."""

    pipelines: Annotated[
        str, dg.Resolver.default(description="The folder of pipelines, relative to that of defs.yaml.")
    ] = "pipelines"
    tables: Annotated[
        str | None,
        dg.Resolver.default(description="Of a dbt project: the folder or URI of Delta tables that are in no catalog."),
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
    equals_batch: bool = True
    resource_key: Annotated[str | None, RESOURCE] = None
    retries: Retries = Retries()
    pool: str | None = None
    op_tags: Mapping[str, Any] | None = None
    partitions_per_run: Annotated[
        int | None,
        dg.Resolver.default(
            description="The most partitions that a run of a backfill lands; by default all of a range."
        ),
    ] = None

    def get_asset_spec(self, pipeline: Pipeline | DescribedDataset) -> dg.AssetSpec:
        """Return the asset of a dataset; for subclasses to override."""
        return self._translator.get_asset_spec(pipeline)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the assets, and nothing else."""
        folder = context.path / self.pipelines
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
            name=f"{context.path.name}__refresh",
            tables=self.tables,
            select=self.select,
            exclude=self.exclude,
            translator=translator,
            equals_batch=self.equals_batch,
            resource_key=self.resource_key,
            retry_policy=self.retries.policy,
            pool=self.pool,
            op_tags=self.op_tags,
        )
        return dg.Definitions(assets=[*landed, refreshed])

    @property
    def _translator(self) -> DeltafoldTranslator:
        return DeltafoldTranslator(self.source_assets, self.key_prefix)


class _OfComponent(DeltafoldTranslator):
    """Lets a subclass of the component override specs."""

    def __init__(self, component: DeltafoldPipeline) -> None:
        super().__init__(component.source_assets, component.key_prefix)
        self._component = component

    def get_asset_spec(self, pipeline: Pipeline | DescribedDataset) -> dg.AssetSpec:
        return self._component.get_asset_spec(pipeline)
