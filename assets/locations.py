"""Record the locations of Delta tables that pipelines read by their names in the catalog.

Only Spark can query the catalog. So the materialisation of a view contains the locations that its refresh found, and
the sensors, which start no Spark, read there. The next refresh detects a table that is dropped, renamed or pointed
elsewhere.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import dagster as dg

from assets import following, keys
from incremental.algebra.results.report import Report
from pipelines.catalogue import Pipeline

if TYPE_CHECKING:
    from incremental.api import View

LOCATIONS = "locations"
"""The metadata name, in a view's materialisation, of the locations of the tables that it read by name."""


def of_tables(pipeline: Pipeline, view: "View", report: Report) -> Mapping[str, dg.MetadataValue]:
    """Return the locations of the tables that a refresh read by name as metadata, empty if there are none.

    Args:
        pipeline: the pipeline whose view it is.
        view: the view after the epoch.
        report: of the refresh.
    """
    sources = pipeline.declaration.sources.items()
    named = {name: source.table for name, source in sources if source.table and name in report.versions}
    tables = view.warehouse.tables() if named else {}
    found = {table: tables[name].path for name, table in named.items()}
    return {LOCATIONS: dg.MetadataValue.json(found)} if found else {}


def find_location(pipeline: Pipeline, source: str, instance: dg.DagsterInstance) -> str | None:
    """Return the path of a Delta source; None for one declared by name that no refresh has found yet."""
    declared = pipeline.declaration.sources[source]
    if declared.delta:
        return declared.delta
    found = following.last_metadata(instance, keys.view(pipeline.name)).get(LOCATIONS)
    location = found.get(declared.table) if isinstance(found, Mapping) else None
    return location if isinstance(location, str) else None


def unknown_location(pipeline: Pipeline, source: str) -> str:
    """Return the reason for skipping a source whose path is unknown, and the fix."""
    table = pipeline.declaration.sources[source].table
    return (
        f"The location of table {table} (source {source}) is not known. Refresh {pipeline.name} once, since only Spark "
        "can query the catalog."
    )
