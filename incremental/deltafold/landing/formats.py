"""The formats of input files: how Spark reads each, and what its schema may be.

| format | Spark's reader | schema beside the partition column | a malformed row |
| --- | --- | --- | --- |
| csv, json | of that name | any | is found |
| xml | of that name | any | makes its file invalid |
| text | text | one STRING: a line, or a file with `wholetext` | cannot occur |
| parquet, orc, avro | of that name | any; every column is in every file | makes its file invalid |
| binary | binaryFile | some of `path STRING, length BIGINT, content BINARY` | cannot occur |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from pyspark.sql import types as t

from deltafold.algebra.sources import MARKED_FORMATS, SINGLE_VARIANT, Format

FORMAT_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    # RFC 4180: a quote within quotes is doubled, and a quoted value may have line breaks. Spark expects a backslash
    # before the quote instead, and would read all rows up to a later quote into one value.
    "csv": {
        "header": "true",
        "enforceSchema": "false",
        "multiLine": "true",
        "escape": '"',
        "unescapedQuoteHandling": "RAISE_ERROR",
    },
}
FILE_COLUMNS = t.StructType(
    [
        t.StructField("path", t.StringType()),
        t.StructField("modificationTime", t.TimestampType()),
        t.StructField("length", t.LongType()),
        t.StructField("content", t.BinaryType()),
    ]
)
DECLARABLE = ("path", "length", "content")  # without the time, which a copy of a file does not keep


def spark_name(format: Format) -> str:
    """Return Spark's name of a format."""
    match format:
        case "csv" | "json" | "xml" | "text" | "parquet" | "orc" | "avro":
            return format
        case "binary":
            return "binaryFile"
        case _:
            assert_never(format)


def is_text(format: Format) -> bool:
    """Return whether the files of a format are texts, whose values Spark parses."""
    match format:
        case "csv" | "json" | "xml" | "text":
            return True
        case "parquet" | "orc" | "avro" | "binary":
            return False
        case _:
            assert_never(format)


def marks_rows(format: Format) -> bool:
    """Return whether Spark can mark single malformed rows."""
    return format in MARKED_FORMATS


def is_single_variant(options: Mapping[str, str]) -> bool:
    """Return whether each row is read as one VARIANT."""
    return any(name.lower() == SINGLE_VARIANT for name in options)


def read_columns(format: Format, declared: Sequence[t.StructField]) -> list[t.StructField]:
    """Return the columns that Spark reads from files for the declared ones, both without the partition column."""
    match format:
        case "binary":
            return list(FILE_COLUMNS)
        case "csv" | "json" | "xml" | "text" | "parquet" | "orc" | "avro":
            return list(declared)
        case _:
            assert_never(format)


def schema_fault(
    format: Format, columns: Sequence[t.StructField], partition: str | None, options: Mapping[str, str]
) -> str:
    """Return why files of a format cannot have these columns, and the fix; empty if they can.

    partition: the partition column, which is in the names of folders; options: those of the source.
    """
    if format == "text" and (len(columns) != 1 or not isinstance(columns[0].dataType, t.StringType)):
        return "a source of text has one column of type STRING, its lines. Declare that, and split it in the query"
    if is_single_variant(options) and [column.dataType for column in columns] != [t.VariantType()]:
        return "with `singleVariantColumn` there is one column of type VARIANT. Declare that column alone"
    if format == "binary" and partition in FILE_COLUMNS.names:
        return f"binary files have a column {partition} already. Name the partition column, and its folders, otherwise"
    if format == "binary":
        declarable = {name: FILE_COLUMNS[name].dataType for name in DECLARABLE}
        wrong = next((column for column in columns if declarable.get(column.name) != column.dataType), None)
        if wrong is not None:
            choice = ", ".join(f"{name} {type_.simpleString().upper()}" for name, type_ in declarable.items())
            return f"binary files have no column {wrong.name} {wrong.dataType.simpleString()}. Choose among {choice}"
    return ""
