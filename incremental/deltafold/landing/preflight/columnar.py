"""Refuse a Parquet, ORC or Avro file whose columns differ from the declared ones, where Spark would read NULL silently.

| Spark would put NULL | where |
| --- | --- |
| Parquet, ORC, Avro | the file lacks a declared column |
| ORC, Avro | a value of another type does not fit the declared one |

The head of an Avro file has its schema, which Spark's own converter turns into Spark's types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, cast

from pyspark.sql import SparkSession
from pyspark.sql import types as t

from deltafold.spark import catalyst
from deltafold.spark.catalyst import J, JavaError
from deltafold.spark.java_errors import causes, first_line
from deltafold.spark.jvm.jars import add_jars, avro_package

WIDER_TYPES: dict[str, tuple[str, ...]] = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
    "timestamp_ntz": ("timestamp",),
    "timestamp": ("timestamp_ntz",),
}  # the declared types that include all values of a type in a file
UNION_PREFIX, NOT_RECURSIVE = "member_", -1  # Spark's defaults of its reader options
HEAD_SIZES = (1 << 16, 1 << 24)  # the sizes of the head in which the Avro schema is looked for, in order


def parquet_fault(file: BinaryIO, columns: Sequence[t.StructField]) -> str:
    """Return a fault if a file is not Parquet, or lacks a column; Spark itself refuses other types."""
    from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]  # late: it is slow to load

    try:
        names = cast(Any, parquet).read_schema(file).names
    except (ValueError, OSError) as error:  # Arrow raises ValueError for a file that is not Parquet
        return f" is not a complete Parquet file ({_first_sentence(error)})"
    return _lacking_fault(names, columns)


def orc_fault(file: BinaryIO, columns: Sequence[t.StructField]) -> str:
    """Return a fault if a file is not ORC, lacks a column, or has one of a type that does not fit the declared one."""
    from pyarrow import orc  # pyright: ignore[reportMissingTypeStubs]
    from pyspark.sql.pandas import types as arrow

    try:
        schema = cast(Any, orc).ORCFile(file).schema
    except (ValueError, OSError) as error:
        return f" is not a complete ORC file ({_first_sentence(error)})"
    if fault := _lacking_fault(schema.names, columns):  # before types, some of which Spark does not have
        return fault
    spark_type = cast(Any, arrow).from_arrow_type
    return _misfit_fault([t.StructField(str(n), spark_type(schema.field(n).type)) for n in schema.names], columns)


def _misfit_fault(fields: Sequence[t.StructField], columns: Sequence[t.StructField]) -> str:
    """Return the fault of the first declared column that is not among the fields of a file, or has another type there.

    A type that is included in the declared one is no fault. Returns nothing if all columns fit.
    """
    if fault := _lacking_fault([field.name for field in fields], columns):
        return fault
    types = {field.name.lower(): field.dataType for field in fields}
    for column in columns:
        type_ = types[column.name.lower()]
        if not _includes(column.dataType, type_):
            declared = column.dataType.simpleString()
            return f" has a column {column.name} of type {type_.simpleString()}, in the declared schema {declared}"
    return ""


def _includes(declared: t.DataType, stored: t.DataType) -> bool:
    """Return whether a declared type includes every value of a type in a file; fields of structs match by name."""
    match declared, stored:
        case t.StructType(), t.StructType():
            fields = {field.name.lower(): field.dataType for field in stored}
            return all(f.name.lower() in fields and _includes(f.dataType, fields[f.name.lower()]) for f in declared)
        case t.ArrayType(), t.ArrayType():
            return _includes(declared.elementType, stored.elementType)
        case t.MapType(), t.MapType():
            return _includes(declared.keyType, stored.keyType) and _includes(declared.valueType, stored.valueType)
        case t.DecimalType(), t.DecimalType():
            digits = declared.precision - declared.scale >= stored.precision - stored.scale
            return digits and declared.scale >= stored.scale
        case _:
            name = declared.simpleString()
            stored_name = stored.simpleString()
            return name == stored_name or name in WIDER_TYPES.get(stored_name, ())


def _lacking_fault(names: Sequence[object], columns: Sequence[t.StructField]) -> str:
    """Return the fault of the first declared column that a file lacks, or nothing."""
    present = {str(name).lower() for name in names}
    lacking = next((column.name for column in columns if column.name.lower() not in present), None)
    return "" if lacking is None else f" lacks the column {lacking} of the declared schema"


def _first_sentence(error: Exception) -> str:
    """Return the beginning of Arrow's message."""
    return str(error).split(". ")[0].splitlines()[0]


def avro_fault(file: BinaryIO, columns: Sequence[t.StructField], options: Mapping[str, str]) -> str:
    """Return a fault if a file is not Avro, lacks a column, or has one of a type that does not fit the declared one.

    options: those of the source; with `avroSchema`, the columns are those of that schema, by which the file is read.
    """
    spark = SparkSession.active()
    add_jars(spark, avro_package())
    try:
        written = _schema_in_head(catalyst.jvm(spark), file)
    except JavaError as error:
        return f" is not a complete Avro file ({_root_cause(error)})"
    try:
        type_ = _avro_type(spark, written, options)
    except JavaError as error:
        return f" has an Avro schema, or its source an `avroSchema`, that Spark cannot read ({_root_cause(error)})"
    if catalyst.kind(type_) != "StructType":
        return f" has values of type {type_.simpleString()} instead of Avro records, whose fields are columns"
    return _misfit_fault(catalyst.python_schema(type_).fields, columns)


def _avro_type(spark: SparkSession, written: J, options: Mapping[str, str]) -> J:
    """Return Spark's type of the values in a file of an Avro schema. Raises a JavaError if it has none for them."""
    java = catalyst.jvm(spark)
    by_name = {name.lower(): value for name, value in options.items()}
    schema = written
    if "avroschema" in by_name:
        schema = java.org.apache.avro.Schema.Parser().parse(by_name["avroschema"])
    converter = catalyst.module(java.org.apache.spark.sql.avro, "SchemaConverters")
    stable = by_name.get("enablestableidentifiersforuniontype", "").lower() == "true"
    prefix = by_name.get("stableidentifierprefixforuniontype", UNION_PREFIX)
    return converter.toSqlType(schema, stable, prefix, NOT_RECURSIVE).dataType()


def _schema_in_head(java: J, file: BinaryIO) -> J:
    """Return the Avro schema at the beginning of a file. Raises a JavaError if there is none."""
    avro = java.org.apache.avro
    for size in HEAD_SIZES:
        file.seek(0)
        head = file.read(size)
        try:
            stream = avro.file.DataFileStream(
                java.java.io.ByteArrayInputStream(head), avro.generic.GenericDatumReader()
            )
            return stream.getSchema()
        except JavaError:
            if size == HEAD_SIZES[-1] or len(head) < size:
                raise
    raise AssertionError("the last size raises")


def _root_cause(error: Exception) -> str:
    """Return the first line of the innermost cause."""
    return first_line(causes(error)[-1]).rstrip(".")
