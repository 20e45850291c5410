"""Refuse a Parquet or ORC file whose columns differ from the declared ones, where Spark would read NULL silently.

| Spark would put NULL | where |
| --- | --- |
| Parquet, ORC | the file lacks a declared column |
| ORC | a value of another type does not fit the declared one, which ORC's own reader converts |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO, cast

from pyspark.sql import types as t

# declared types that hold every value of a type in a file
WIDER: dict[str, tuple[str, ...]] = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
    "timestamp_ntz": ("timestamp",),
    "timestamp": ("timestamp_ntz",),
}


def parquet_fault(file: BinaryIO, columns: Sequence[t.StructField]) -> str:
    """Return a fault if a file is not Parquet, or lacks a column; Spark itself refuses other types."""
    from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]  # late: it is slow to load

    try:
        names = cast(Any, parquet).read_schema(file).names
    except (ValueError, OSError) as error:  # Arrow raises ValueError for a file that is not Parquet
        return f" is not a complete Parquet file ({first_sentence(error)})"
    return lacking_fault(names, columns)


def orc_fault(file: BinaryIO, columns: Sequence[t.StructField]) -> str:
    """Return a fault if a file is not ORC, lacks a column, or has one of a type that the declared one does not hold."""
    from pyarrow import orc  # pyright: ignore[reportMissingTypeStubs]
    from pyspark.sql.pandas import types as arrow

    try:
        schema = cast(Any, orc).ORCFile(file).schema
    except (ValueError, OSError) as error:
        return f" is not a complete ORC file ({first_sentence(error)})"
    if fault := lacking_fault(schema.names, columns):  # before types, some of which Spark does not have
        return fault
    spark_type = cast(Any, arrow).from_arrow_type
    return misfit_fault([t.StructField(str(n), spark_type(schema.field(n).type)) for n in schema.names], columns)


def misfit_fault(found: Sequence[t.StructField], columns: Sequence[t.StructField]) -> str:
    """Return the fault of the first declared column that a file lacks, or has in a type that the declared one does not
    hold; nothing if all fit.
    """
    if fault := lacking_fault([field.name for field in found], columns):
        return fault
    types = {field.name.lower(): field.dataType for field in found}
    for column in columns:
        type_ = types[column.name.lower()]
        if not can_hold(column.dataType, type_):
            declared = column.dataType.simpleString()
            return f" has a column {column.name} of type {type_.simpleString()}, in the declared schema {declared}"
    return ""


def can_hold(declared: t.DataType, found: t.DataType) -> bool:
    """Return whether a declared type holds every value of a type in a file; fields of structs are found by name."""
    match declared, found:
        case t.StructType(), t.StructType():
            fields = {field.name.lower(): field.dataType for field in found}
            return all(f.name.lower() in fields and can_hold(f.dataType, fields[f.name.lower()]) for f in declared)
        case t.ArrayType(), t.ArrayType():
            return can_hold(declared.elementType, found.elementType)
        case t.MapType(), t.MapType():
            return can_hold(declared.keyType, found.keyType) and can_hold(declared.valueType, found.valueType)
        case t.DecimalType(), t.DecimalType():
            whole = declared.precision - declared.scale >= found.precision - found.scale
            return whole and declared.scale >= found.scale
        case _:
            one, other = declared.simpleString(), found.simpleString()
            return one == other or one in WIDER.get(other, ())


def lacking_fault(names: Sequence[object], columns: Sequence[t.StructField]) -> str:
    """Return the fault of the first declared column that a file lacks, or nothing."""
    known = {str(name).lower() for name in names}
    lacking = next((column.name for column in columns if column.name.lower() not in known), None)
    return "" if lacking is None else f" lacks the column {lacking} of the declared schema"


def first_sentence(error: Exception) -> str:
    """Return the beginning of Arrow's message."""
    return str(error).split(". ")[0].splitlines()[0]
