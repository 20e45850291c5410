"""Maintained views, and pipelines, as assets of Dagster.

In a project that has assets already (docs/dagster.md), take what you need, and no more comes along:

    maintained_view, TableSource           one maintained dataset
    deltafold_assets, landing_assets       the pipelines of a folder, and the input files that they land
    DeltafoldTranslator                    their keys, groups, owners, tags and sources, for you to override
    watched_table                          a Delta table that others write
    maintenance_job                        compacts their tables, on a schedule of yours
    SparkResource, SubmittedSpark, PipesSpark    where Spark runs
    MaintainedView, DeltafoldPipeline      the same as components, for defs.yaml

Or take a whole code location, with jobs, schedules, sensors and checks of every pipeline: `load_definitions`.

The names are imported at their first use, so that importing this package needs no Dagster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from deltafold.algebra.errors import explain_missing_packages

if TYPE_CHECKING:
    from deltafold.dagster.components import DeltafoldPipeline, MaintainedView
    from deltafold.dagster.factory import load_definitions
    from deltafold.dagster.maintained import (
        TableSource,
        deltafold_assets,
        landing_assets,
        maintained_view,
        maintenance_job,
        watched_table,
    )
    from deltafold.dagster.resources import PipesSpark, SparkResource, SubmittedSpark
    from deltafold.dagster.translator import DeltafoldTranslator

__all__ = [
    "DeltafoldPipeline", "DeltafoldTranslator", "MaintainedView", "PipesSpark", "SparkResource", "SubmittedSpark",
    "TableSource", "deltafold_assets", "landing_assets", "load_definitions", "maintained_view", "maintenance_job",
    "watched_table",
]  # fmt: skip

_MODULES = {
    "DeltafoldPipeline": "components",
    "DeltafoldTranslator": "translator",
    "MaintainedView": "components",
    "PipesSpark": "resources",
    "SparkResource": "resources",
    "SubmittedSpark": "resources",
    "TableSource": "maintained",
    "deltafold_assets": "maintained",
    "landing_assets": "maintained",
    "load_definitions": "factory",
    "maintained_view": "maintained",
    "maintenance_job": "maintained",
    "watched_table": "maintained",
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
