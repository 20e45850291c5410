"""Declared pipelines as Dagster's assets, jobs, schedules, sensors and checks.

    from deltafold.dagster import load_definitions

    defs = load_definitions()

is a code location with every pipeline; merge it with others by `dg.Definitions.merge`. Where Spark runs is a resource:
`SparkResource` in the process of the run, `SubmittedSpark` in one that a command starts, or an own `PipesSpark` on a
platform. The names are imported at their first use, so that importing this package needs no Dagster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from deltafold.algebra.errors import explain_missing_packages

if TYPE_CHECKING:
    from deltafold.dagster.factory import load_definitions
    from deltafold.dagster.resources import PipesSpark, SparkResource, SubmittedSpark

__all__ = ["PipesSpark", "SparkResource", "SubmittedSpark", "load_definitions"]

_MODULES = {
    "PipesSpark": "resources",
    "SparkResource": "resources",
    "SubmittedSpark": "resources",
    "load_definitions": "factory",
}


def __getattr__(name: str) -> object:
    """Return a public name, which is imported now. Raises MissingPackageError if Dagster is not installed."""
    if name not in _MODULES:
        raise AttributeError(f"module 'deltafold.dagster' has no attribute {name!r}")
    with explain_missing_packages():
        value = getattr(import_module(f"deltafold.dagster.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
