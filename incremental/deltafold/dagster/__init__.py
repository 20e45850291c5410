"""Maintained views, and pipelines, as assets of Dagster (docs/how-to/dagster.md).

Take what you need, and no more comes along:

    maintained_view, TableSource            one maintained dataset
    deltafold_assets, pipeline_steps        the pipelines of a folder: as one step, or as one each
    maintained_assets, refresh_assets, RefreshConfig    the same with a body of yours around the refresh
    landing_assets                          the input files that they land
    watched_table, source_tables            Delta tables that others write
    get_asset_key_for_dataset, get_asset_key_for_source    the key of one of them, or of what they read
    DeltafoldTranslator                     keys, groups, owners, tags and sources, for you to override
    SparkResource, SubmittedSpark, PipesSpark, spark_resource    where Spark runs
    MaintainedView, DeltafoldPipeline       the same as components, for defs.yaml

What starts runs, if you want more than automation conditions:

    pipeline_jobs, maintenance_job          land, refresh, check, compact
    pipeline_schedules                      as the pipelines declare
    selection_schedule, select_datasets     datasets that are selected in dbt's grammar
    pipeline_sensors                        new files, new versions of tables, datasets behind their sources

`load_definitions` has all of these, for every pipeline of a folder.

The names are imported at their first use, so that importing this package needs no Dagster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from deltafold.algebra.errors import explain_missing_packages

if TYPE_CHECKING:
    from deltafold.dagster.asset_keys import get_asset_key_for_dataset, get_asset_key_for_source
    from deltafold.dagster.automation import (
        maintenance_job,
        pipeline_jobs,
        pipeline_schedules,
        pipeline_sensors,
        select_datasets,
        selection_schedule,
    )
    from deltafold.dagster.components import DeltafoldPipeline, MaintainedView
    from deltafold.dagster.dataset_step import refresh_assets
    from deltafold.dagster.location import load_definitions
    from deltafold.dagster.pipeline_assets import deltafold_assets, landing_assets, maintained_assets, pipeline_steps
    from deltafold.dagster.resources import PipesSpark, SparkResource, SubmittedSpark, spark_resource
    from deltafold.dagster.step_body import RefreshConfig
    from deltafold.dagster.translator import DeltafoldTranslator
    from deltafold.dagster.view_asset import TableSource, maintained_view
    from deltafold.dagster.watched_tables import source_tables, watched_table

__all__ = [
    "DeltafoldPipeline", "DeltafoldTranslator", "MaintainedView", "PipesSpark", "RefreshConfig", "SparkResource",
    "SubmittedSpark", "TableSource", "deltafold_assets", "get_asset_key_for_dataset", "get_asset_key_for_source",
    "landing_assets", "load_definitions", "maintained_assets", "maintained_view", "maintenance_job",
    "pipeline_jobs", "pipeline_schedules", "pipeline_sensors", "pipeline_steps", "refresh_assets",
    "select_datasets", "selection_schedule", "source_tables", "spark_resource", "watched_table",
]  # fmt: skip

_MODULES = {
    "DeltafoldPipeline": "components",
    "DeltafoldTranslator": "translator",
    "MaintainedView": "components",
    "PipesSpark": "resources",
    "RefreshConfig": "step_body",
    "SparkResource": "resources",
    "SubmittedSpark": "resources",
    "TableSource": "view_asset",
    "deltafold_assets": "pipeline_assets",
    "get_asset_key_for_dataset": "asset_keys",
    "get_asset_key_for_source": "asset_keys",
    "landing_assets": "pipeline_assets",
    "load_definitions": "location",
    "maintained_assets": "pipeline_assets",
    "maintained_view": "view_asset",
    "maintenance_job": "automation",
    "pipeline_jobs": "automation",
    "pipeline_schedules": "automation",
    "pipeline_sensors": "automation",
    "pipeline_steps": "pipeline_assets",
    "refresh_assets": "dataset_step",
    "select_datasets": "automation",
    "selection_schedule": "automation",
    "source_tables": "watched_tables",
    "spark_resource": "resources",
    "watched_table": "watched_tables",
}


def __getattr__(name: str) -> object:
    """Return a public name, which is imported now. Raises MissingPackageError if Dagster is not installed."""
    if name not in _MODULES:
        raise AttributeError(f"module 'deltafold.dagster' has no attribute {name!r}")
    with explain_missing_packages():
        value = getattr(import_module(f"deltafold.dagster.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
