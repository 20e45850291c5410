"""Check the declared schema of input files, and that the keys of partitions fit the type of their column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    AtomicType,
    DataType,
    DateType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sources import Files
from deltafold.algebra.sqltext import literal
from deltafold.landing.folder import HIVE_NULL, Partition
from deltafold.landing.formats import schema_fault
from deltafold.landing.reader import declared_schema


def checked_schema(name: str, files: Files) -> StructType:
    """Return the declared schema of a source. Raises SourceError for one that its format or options exclude."""
    schema = declared_schema(name, files)
    column = files.partition_by
    if column is not None and (column not in schema.names or not isinstance(schema[column].dataType, AtomicType)):
        raise SourceError(f"source {name}: its partition column {column} is not a plain column of the schema. Use one.")
    own = [field for field in schema if field.name != column]
    if fault := schema_fault(files.format, own, column, files.options):
        raise SourceError(f"source {name}: {fault}.")
    expire = files.expire
    if expire is not None and not (expire.column in schema.names and _is_event_time(schema[expire.column])):
        raise SourceError(
            f"source {name}: `expire` needs a DATE or TIMESTAMP of the schema, not {expire.column}. Name one."
        )
    return schema


def check_partition_keys(spark: SparkSession, name: str, key_type: DataType, present: Mapping[str, Partition]) -> None:
    """Raise SourceError for keys that do not fit the type of their column, or are the same value."""
    keys_by = dict[str, str]()
    for key, value in partition_values(spark, key_type, [key for key in present if key != HIVE_NULL]).items():
        folder = present[key].folder
        if value is None:
            kind = key_type.simpleString()
            raise SourceError(f"source {name}: {folder} is not a partition: {key!r} is not a {kind}. Rename it.")
        if value in keys_by:
            other = present[keys_by[value]].folder
            raise SourceError(f"source {name}: {other} and {folder} are the same partition. Keep one.")
        keys_by[value] = key


def _is_event_time(field: StructField) -> bool:
    """Return whether a column can be an event time."""
    return isinstance(field.dataType, DateType | TimestampType | TimestampNTZType)


def partition_values(spark: SparkSession, data_type: DataType, keys: Iterable[str]) -> dict[str, str | None]:
    """Return the value of each key as text, None for a key that does not fit the type.

    A landed table has values alone: for a DATE, 2024-5-1 and 2024-05-01 are two keys of one partition.
    """
    if isinstance(data_type, StringType):
        return {key: key for key in keys}
    rows = ", ".join(f"({literal(key)})" for key in keys)
    if not rows:
        return {}
    type_ = data_type.simpleString()
    value = f"try_cast(k AS {type_})" + (" + 0" if type_ in ("float", "double") else "")  # 0 and -0 are one value
    frame = cast(Any, spark).sql(f"SELECT k, CAST({value} AS STRING) FROM VALUES {rows} AS t(k)")
    return {str(key): text for key, text in frame.collect()}
