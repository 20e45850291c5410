"""Read Kafka's messages as a stream: their value, key and place."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from deltafold.algebra.sources import KAFKA, KAFKA_COLUMNS
from deltafold.landing.reader import FILE
from deltafold.spark.jvm import jars

RECORD, KEY, OFFSET = "__record", "_key", "_offset"
# Spark's own defaults are the end of the topics, and messages of transactions that were never committed
KAFKA_DEFAULTS = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
KAFKA_PLACE = ("topic", "partition", "offset", "timestamp")


def read_kafka(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the stream of messages: their value as RECORD, topic and partition as FILE, and the other columns of
    KAFKA_COLUMNS.
    """
    jars.add_jars(spark, jars.kafka_package())
    given = {name.lower() for name in options}
    defaults = {name: value for name, value in KAFKA_DEFAULTS.items() if name.lower() not in given}
    read = spark.readStream.format(KAFKA).options(**defaults, **options).load()
    place = [F.col(name).alias(f"_{name}") for name in KAFKA_PLACE]
    origin = F.concat_ws("/", "topic", "partition").alias(FILE)
    return read.select(F.col("value").alias(RECORD), F.col("key").alias(KEY), *place, origin)


def own_columns(schema: StructType) -> list[StructField]:
    """Return the columns that are not fields of the messages."""
    return [field for field in schema if field.name in KAFKA_COLUMNS]


def column_fault(schema: StructType, key: str | None) -> str:
    """Return why a Kafka stream cannot have these columns, and the fix; empty if it can."""
    for field in own_columns(schema):
        types = KAFKA_COLUMNS[field.name]
        if field.dataType.simpleString() not in types:
            return f"column {field.name} of a Kafka stream is {' or '.join(types).upper()}. Declare that type"
    if key is not None and key not in schema.names:
        return f"`key` names {key}, not a column of the schema ({', '.join(schema.names)}). Correct it"
    return ""


def own_column(field: StructField) -> Column:
    """Return a column of KAFKA_COLUMNS from the stored ones."""
    return F.col(RECORD if field.name == "_value" else field.name).cast(field.dataType)
