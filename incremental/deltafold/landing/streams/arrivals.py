"""Read a stream into a Delta table, by Structured Streaming with the trigger `availableNow` (D-106).

Delta's sink marks each of its commits with the query's id and the batch's number, which are in the checkpoint, so a
batch that runs again after a crash is not written again. The records are stored as they arrived:

| format | columns |
| --- | --- |
| json, text | the record as text, its file |
| kafka | the message's value and key, its topic, partition, offset and timestamp |
| csv | the declared columns c0, c1, …; of a malformed record its text; its file |
| others | the declared columns c0, c1, … |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from deltafold.algebra.errors import SourceError
from deltafold.algebra.secrets import mask_secrets
from deltafold.algebra.sources import KAFKA, KAFKA_COLUMNS, READER_OPTIONS, TOPICS, Stream
from deltafold.algebra.sqltext import quoted
from deltafold.lake.delta_table import DELTA
from deltafold.lake.protocol import Table
from deltafold.lake.remote.remote_path import Place
from deltafold.landing.formats import FORMAT_DEFAULTS
from deltafold.landing.malformed import CORRUPT, PERMISSIVE, file_of, reason_of
from deltafold.landing.reader import FILE, file_path
from deltafold.landing.streams.position import Reading
from deltafold.spark.catalyst import JavaError
from deltafold.spark.java_errors import causes, conditions
from deltafold.spark.jvm.jars import add_jars, avro_package, kafka_package

TEXTS = ("json", "text")  # formats whose records are stored as text
LINE_OPTIONS = {"encoding", "charset", "compression", "linesep", "wholetext"}  # options of the text reader
DATA_LOSS = "KAFKA_DATA_LOSS"  # Spark's condition for messages that are gone, of some errors of the connector
LOSS = "failOnDataLoss"  # in the message of the other errors, which have no condition
UNKNOWN = "UnknownReason"  # for an exception of a connector that was added to a running Spark
MAX_FILE_AGE = "36500d"  # by default Spark ignores files that are a week older than the newest one
RECORD, KEY, OFFSET = "__record", "_key", "_offset"
# by default Spark starts at the end of the topics, and reads messages of transactions that were never committed
KAFKA_DEFAULTS = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
KAFKA_POSITION = ("topic", "partition", "offset", "timestamp")


@dataclass(frozen=True)
class Intake:
    """Reads a stream into the tables of its landings; schema: the declared one."""

    spark: SparkSession
    name: str
    stream: Stream
    schema: StructType

    def take(self, reading: Reading, landing: int) -> Table | None:
        """Read the stream to its present end into the table of a landing, and return that; None if it has no rows.

        A landing that was interrupted is continued. Raises SourceError if Spark cannot read the stream.
        """
        try:
            self._drain(reading, landing)
        except JavaError as error:
            raise self._complaint(error) from error
        table = self.table_at(reading.incoming(landing))
        version = table.version()
        if version is None or not table.size(version)[0]:
            return None
        reading.seal(landing)
        return table

    def table_at(self, path: Place) -> Table:
        """Return the table of a landing for which the stream has been read."""
        return DELTA.table(self.spark, str(path))

    def _drain(self, reading: Reading, landing: int) -> None:
        """Run the stream until it has no more rows; a second run of a stream in one Spark ends the first one."""
        writer = self._arriving().writeStream.format("delta").outputMode("append").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(reading.checkpoint)).start(str(reading.incoming(landing)))
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def _arriving(self) -> DataFrame:
        """Return the stream's records with the columns that are stored."""
        if self.stream.format == KAFKA:
            return _read_kafka(self.spark, _kafka_options(self.stream.options))
        read = self._stream()
        if self.stream.format in TEXTS:
            return read.select(F.col("value").alias(RECORD), file_path(read).alias(FILE))
        missing = [f for f in self.schema if f.name not in read.columns or read.schema[f.name].dataType != f.dataType]
        if missing:
            columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in read.schema)
            raise SourceError(
                f"source {self.name}: its stream has no column {missing[0].name} of type "
                f"{missing[0].dataType.simpleString()}. Declare a schema with some of its columns: {columns}."
            )
        columns = [F.col(quoted(field.name)).alias(f"c{i}") for i, field in enumerate(self.schema)]
        if self.stream.format == "csv":
            columns += [F.col(CORRUPT), file_path(read).alias(FILE)]
        return read.select(*columns)

    def _stream(self) -> DataFrame:
        stream = self.stream
        format = stream.format
        reader = self.spark.readStream
        if not stream.of_files:
            return reader.format(format).options(**stream.options).load()
        options = {**FORMAT_DEFAULTS.get(format, {}), **stream.options, "maxFileAge": MAX_FILE_AGE}
        if format in TEXTS:
            lines = {name: value for name, value in options.items() if name not in parsing_options(stream.options)}
            return reader.format("text").options(**lines).load(stream.path)
        columns = [StructField(field.name, field.dataType) for field in self.schema]
        if format == "avro":
            add_jars(self.spark, avro_package())
        if format == "csv":
            options |= PERMISSIVE
            columns.append(StructField(CORRUPT, StringType()))
        return reader.format(format).schema(StructType(columns)).options(**options).load(stream.path)

    def _complaint(self, error: Exception) -> SourceError:
        """Return the error for a stream that Spark could not read, or a table that it could not write."""
        topics = ", ".join(value for name, value in self.stream.identity.items() if name in TOPICS and value)
        which = f" of {topics}" if topics else ""
        what = f"source {self.name} was not landed: Spark could not read its stream{which}"
        fix = "Correct it, or the declaration, and land again; no record is lost"
        messages = causes(error)
        if (path := file_of(messages)) is not None:
            what = f"{what} at {path}"
        reason = mask_secrets(reason_of(messages))
        replay = "replay the source, to land those that are left"
        is_loss = any(name.startswith(DATA_LOSS) for name in conditions(error))
        if is_loss or any(LOSS in message for message in messages):
            fix = f"Messages were deleted before they were landed: {replay}"
        elif any(UNKNOWN in message for message in messages):
            reason = "its messages cannot be fetched, for a reason that is in Spark's log"
            fix = f"If some were deleted before they were landed, {replay}; otherwise land again"
        return SourceError(f"{what}: {reason}. {fix}.", f"{what}. {fix}.")


def parsing_options(options: Mapping[str, str], format: str = "json") -> dict[str, str]:
    """Return the options that parse a record: not those that find files and lines, or messages."""
    parsing = {name.lower() for name in READER_OPTIONS["csv" if format == "csv" else "json"].split()} - LINE_OPTIONS
    return {name: value for name, value in options.items() if name.lower() in parsing}


def _kafka_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that find messages."""
    return {name: value for name, value in options.items() if name not in parsing_options(options)}


def _read_kafka(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the stream of messages: value as RECORD, key, topic and partition as FILE, and the columns of a message.

    These are named as in KAFKA_COLUMNS.
    """
    add_jars(spark, kafka_package())
    declared = {name.lower() for name in options}
    defaults = {name: value for name, value in KAFKA_DEFAULTS.items() if name.lower() not in declared}
    read = spark.readStream.format(KAFKA).options(**defaults, **options).load()
    position = [F.col(name).alias(f"_{name}") for name in KAFKA_POSITION]
    origin = F.concat_ws("/", "topic", "partition").alias(FILE)
    return read.select(F.col("value").alias(RECORD), F.col("key").alias(KEY), *position, origin)


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
