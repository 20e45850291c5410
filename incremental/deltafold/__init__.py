"""Deltafold keeps the answer of a batch query up to date by processing only what changed.

`import deltafold as df`, then `df.Warehouse`, `df.Delta`, `df.start` and all other names of `__all__`. Each is imported
at its first use, so that importing this package starts nothing and needs no Spark.

docs/contributing/map.md lists the packages, and the file to open for each kind of change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltafold.api import (
        Address,
        BusyError,
        CatalogError,
        ChangedQueryError,
        DatasetResult,
        Delta,
        DeltafoldError,
        DeltafoldWarning,
        Description,
        Expire,
        External,
        Files,
        ForeignKey,
        Iceberg,
        Landing,
        LostSparkError,
        Mrql,
        NotConvergedError,
        PipelineReport,
        Policy,
        QueryError,
        RefusedError,
        Report,
        SourceError,
        StateError,
        Status,
        StorageError,
        Stream,
        Tuning,
        Upkeep,
        UsageError,
        Verification,
        View,
        Warehouse,
        fixpoint,
        iterate,
        nearest,
        start,
    )

__version__ = "0.2.0"

__all__ = [
    "Address", "BusyError", "CatalogError", "ChangedQueryError", "DatasetResult", "Delta", "DeltafoldError",
    "DeltafoldWarning", "Description", "Expire", "External", "Files", "ForeignKey", "Iceberg", "Landing",
    "LostSparkError", "Mrql", "NotConvergedError", "PipelineReport", "Policy", "QueryError", "RefusedError", "Report",
    "SourceError", "StateError", "Status", "StorageError", "Stream", "Tuning", "Upkeep", "UsageError", "Verification",
    "View", "Warehouse", "fixpoint", "iterate", "nearest", "start",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Return a public name, which is imported now (PEP 562). Raises MissingPackageError if Spark is not installed."""
    if name not in __all__:
        raise AttributeError(f"module 'deltafold' has no attribute {name!r}")
    from importlib import import_module

    from deltafold.algebra.errors import explain_missing_packages

    with explain_missing_packages():
        value = getattr(import_module("deltafold.api"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
