"""Describe the state of declared pipelines as plain data: current, behind, interrupted, invalid."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from deltafold.algebra.errors import DeltafoldError
from deltafold.pipelines import catalogue
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltafold.api import View, Warehouse

    Opened = dict[str, tuple[Warehouse, View]]


def pipeline_state(pipeline: Pipeline, spark: SparkSession, opened: Opened | None = None) -> dict[str, Any]:
    """Return the state of a pipeline as plain data: View.status, and a summary in `state`.

    opened: as of `open`.
    state: never refreshed, interrupted (an epoch is unfinished), behind (its sources have changed), up to date, or
    failing (the table of a source cannot be found: see `problem`).
    """
    warehouse, view = catalogue.open(pipeline, spark, opened)
    # the quarantine also of landed sources that the query does not read
    status = replace(view.status(), quarantined=warehouse.quarantined())
    word = "up to date" if status.current else "behind"
    if status.unfinished is not None:
        word = "interrupted"
    elif status.epoch is None:
        return {"state": "never refreshed", "quarantined": status.quarantined}
    sizes = {"state": asdict(status.state), "view": None if status.answer is None else asdict(status.answer)}
    row = {**asdict(status), "state": word, "sizes": sizes}
    return row | ({"state": "failing", "problem": "; ".join(status.problems.values())} if status.problems else {})


def status_row(name: str, pipeline: Pipeline | DeclarationError, opened: Opened | None = None) -> dict[str, Any]:
    """Return the state of a pipeline with its name; the problem for an invalid or failing one.

    opened: as of `open`, of one Spark for all pipelines.
    """
    if isinstance(pipeline, Exception):
        return {"name": name, "state": "invalid declaration", "problem": str(pipeline)}
    try:
        return {"name": name} | pipeline_state(pipeline, catalogue.start_spark(pipeline, brief=True), opened)
    except DeltafoldError as error:
        return {"name": name, "state": "failing", "problem": str(error)}


def declaration_row(name: str, pipeline: Pipeline | DeclarationError) -> dict[str, Any]:
    """Return a pipeline's declaration as plain data."""
    if isinstance(pipeline, Exception):
        return {"name": name, "problem": str(pipeline)}
    return {"name": name, "folder": str(pipeline.folder), **pipeline.declaration.model_dump(mode="json", by_alias=True)}
