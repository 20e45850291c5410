"""Find the schemas that sources had before types of their columns were widened."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql.types import StructField, StructType

from deltafold.algebra.wider_types import is_wider
from deltafold.spark import catalyst

Recorded = Mapping[str, Mapping[str, str]]
"""The types of columns by source, in the form of recipes."""


def find_narrower(recorded: Recorded, schema: Callable[[str], StructType | None]) -> dict[str, StructType] | None:
    """Return the schemas of the sources with types that got wider, as they were; None if columns changed otherwise.

    recorded: the types that columns had; schema: that of a source now. Empty if no type changed.
    """
    schemas: dict[str, StructType] = {}
    for source, columns in recorded.items():
        now = schema(source)
        if now is None or not all(name in now.names for name in columns):
            return None
        there = {field.name: field.dataType.simpleString() for field in now}
        wider = {name: then for name, then in columns.items() if there[name] != then}
        if not all(is_wider(then, there[name]) for name, then in wider.items()):
            return None
        if wider:
            schemas[source] = StructType([_as_before(field, wider.get(field.name)) for field in now])
    return schemas


def _as_before(field: StructField, then: str | None) -> StructField:
    if then is None:
        return field
    return StructField(field.name, catalyst.schema_of(f"c {then}")["c"].dataType, field.nullable, field.metadata)
