"""Refuse an Avro file that lacks a declared column, or a field of one, where Spark would read NULL silently.

The head of a file has its schema, which Spark's own converter turns into Spark's types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import BinaryIO

from pyspark.sql import SparkSession
from pyspark.sql import types as t

from deltafold.landing.preflight.columnar import misfit_fault
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J, JavaError
from deltafold.spark.java_errors import causes, first_line
from deltafold.spark.jvm.jars import add_jars, avro_package

UNION_PREFIX, NOT_RECURSIVE = "member_", -1  # Spark's defaults of its reader options
HEADS = (1 << 16, 1 << 24)  # bytes in which the schema is looked for, few first


def avro_fault(file: BinaryIO, columns: Sequence[t.StructField], options: Mapping[str, str]) -> str:
    """Return a fault if a file is not Avro, lacks a column, or has one of a type that the declared one does not hold.

    options: those of the source; with `avroSchema`, the columns are those of that schema, by which the file is read.
    """
    spark = SparkSession.active()
    add_jars(spark, avro_package())
    try:
        written = schema_in_head(catalyst.jvm(spark), file)
    except JavaError as error:
        return f" is not a complete Avro file ({root_cause(error)})"
    try:
        found = avro_type(spark, written, options)
    except JavaError as error:
        return f" has an Avro schema, or its source an `avroSchema`, that Spark cannot read ({root_cause(error)})"
    if catalyst.kind(found) != "StructType":
        return f" has values of type {found.simpleString()} instead of Avro records, whose fields are columns"
    return misfit_fault(catalyst.python_schema(found).fields, columns)


def avro_type(spark: SparkSession, written: J, options: Mapping[str, str]) -> J:
    """Return Spark's type of the values in a file of an Avro schema; raises a JavaError if it has none for them."""
    java, given = catalyst.jvm(spark), {name.lower(): value for name, value in options.items()}
    read_by = java.org.apache.avro.Schema.Parser().parse(given["avroschema"]) if "avroschema" in given else written
    converter = catalyst.module(java.org.apache.spark.sql.avro, "SchemaConverters")
    stable = given.get("enablestableidentifiersforuniontype", "").lower() == "true"
    prefix = given.get("stableidentifierprefixforuniontype", UNION_PREFIX)
    return converter.toSqlType(read_by, stable, prefix, NOT_RECURSIVE).dataType()


def schema_in_head(java: J, file: BinaryIO) -> J:
    """Return the Avro schema at the beginning of a file; raises a JavaError if there is none."""
    avro = java.org.apache.avro
    few, many = HEADS
    for size in (few, many):
        file.seek(0)
        head = file.read(size)
        try:
            stream = avro.file.DataFileStream(
                java.java.io.ByteArrayInputStream(head), avro.generic.GenericDatumReader()
            )
            return stream.getSchema()
        except JavaError:
            if size == many or len(head) < size:
                raise
    raise AssertionError("the last size raises")


def root_cause(error: Exception) -> str:
    """Return the first line of the innermost cause."""
    return first_line(causes(error)[-1]).rstrip(".")
