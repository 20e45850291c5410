"""Define the asset of one maintained view, in the Dagster project of a user (docs/how-to/dagster.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import dagster as dg

from deltafold.algebra.errors import UsageError
from deltafold.dagster.dataset_step import Dataset, refresh_step, step_of, translate
from deltafold.dagster.step_body import Body
from deltafold.dagster.task_runner import CRASHES, RESOURCE_KEY
from deltafold.dagster.translator import (
    DeltafoldTranslator,
    KeyLike,
    asset_key,
    derive_name,
    refuse_partitions,
    replace_attributes,
    without_kinds,
)
from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.described_project import DescribedDataset
from deltafold.pipelines.inline import declare_pipeline

if TYPE_CHECKING:
    from deltafold.pipelines.inline import Query


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
            tags={**without_kinds(own.tags), **without_kinds(self._asked.tags)},
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
