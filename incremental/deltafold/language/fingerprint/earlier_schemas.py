"""Find the schemas that sources had before types of their columns changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql.types import StructField, StructType

from deltafold.algebra.wider_types import is_wider
from deltafold.spark import catalyst
from deltafold.spark.catalyst import JavaError

Recorded = Mapping[str, Mapping[str, str]]
"""The types of columns by source, in the form of recipes."""


def find_earlier(recorded: Recorded, schema: Callable[[str], StructType | None]) -> dict[str, StructType]:
    """Return the schemas of the sources with types that changed, as they were.

    None are known if a column is gone, or if the name of a field of a struct has to be quoted.
    recorded: the types that columns had; schema: that of a source now.
    """
    schemas: dict[str, StructType] = {}
    for source, columns in recorded.items():
        now = schema(source)
        if now is None or not all(name in now.names for name in columns):
            return {}
        there = catalyst.types_of(now)
        other = {name: then for name, then in columns.items() if there[name] != then}
        if other:
            try:
                schemas[source] = StructType([_as_before(field, other.get(field.name)) for field in now])
            except JavaError:
                return {}
    return schemas


def are_narrower(earlier: Mapping[str, StructType], schema: Callable[[str], StructType | None]) -> bool:
    """Return whether all types that changed between the earlier schemas and those of now got wider."""
    return all(
        one.dataType == other.dataType or is_wider(one.dataType.simpleString(), other.dataType.simpleString())
        for source, then in earlier.items()
        for one, other in zip(then, schema(source) or (), strict=True)
    )


def _as_before(field: StructField, then: str | None) -> StructField:
    if then is None:
        return field
    return StructField(field.name, catalyst.schema_of(f"c {then}")["c"].dataType, field.nullable, field.metadata)
