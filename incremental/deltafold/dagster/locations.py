"""Record the locations of Delta tables that pipelines read by their names in the catalog.

Only Spark can query the catalog. So the materialisation of a view contains the locations that its refresh found, and
the sensors, which start no Spark, read there. The next refresh detects a table that is dropped, renamed or pointed
elsewhere.
"""

from collections.abc import Mapping

import dagster as dg

from deltafold.dagster import following, keys
from deltafold.pipelines.catalogue import Pipeline

LOCATIONS = "locations"
"""The metadata name, in a view's materialisation, of the locations of the tables that it read by name."""


def of_tables(found: Mapping[str, str]) -> Mapping[str, dg.MetadataValue]:
    """Return the paths of the tables that a refresh read by name as metadata, empty if there are none."""
    return {LOCATIONS: dg.MetadataValue.json(dict(found))} if found else {}


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
