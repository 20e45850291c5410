"""Define the assets of Delta tables that others write, which an observation gives the version of their last change."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import dagster as dg

from deltafold.dagster import following
from deltafold.dagster.dataset_step import Dataset, step_of
from deltafold.dagster.folders import changed_version
from deltafold.dagster.project_step import ProjectAssets
from deltafold.dagster.translator import (
    KeyLike,
    asset_key,
    find_lander,
    refuse_partitions,
    replace_attributes,
    without_kinds,
)


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
        tags=without_kinds(spec.tags),
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
