"""Take what has arrived in a stream into a Delta table, by Structured Streaming with the trigger `availableNow`.

Delta's sink marks each of its commits with the query's id and the batch's number, which the checkpoint keeps, so a
batch that is run again after a crash is not written again. The records are stored as they arrived:

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
from deltafold.algebra.sources import KAFKA, READER_OPTIONS, TOPICS, Stream
from deltafold.algebra.sqltext import quoted
from deltafold.lake.delta_table import DELTA
from deltafold.lake.protocol import Table
from deltafold.lake.remote.remote_path import Place
from deltafold.landing.formats import FORMAT_DEFAULTS
from deltafold.landing.malformed.parse_errors import file_of, reason_of
from deltafold.landing.malformed.reason import CORRUPT, PERMISSIVE
from deltafold.landing.reader import FILE
from deltafold.landing.streams.kafka import RECORD, read_kafka
from deltafold.landing.streams.position import Reading
from deltafold.spark.catalyst import JavaError
from deltafold.spark.java_errors import causes, conditions
from deltafold.spark.jvm.jars import add_jars, avro_package

TEXTS = ("json", "text")  # formats whose records are stored as text
TEXT_OPTIONS = {"encoding", "charset", "compression", "linesep", "wholetext"}  # of these, in lower case, to read lines
DATA_LOSS = "KAFKA_DATA_LOSS"  # Spark's condition where the connector has one
LOSS = "failOnDataLoss"  # in the message of its IllegalStateException, which has no condition
UNKNOWN = "UnknownReason"  # Spark's word for an exception whose class is of a connector added to it while it runs
EVER = "36500d"  # by default Spark ignores files that are a week older than the newest one


@dataclass(frozen=True)
class Intake:
    """Reads a stream into the tables of its landings."""

    spark: SparkSession
    name: str
    stream: Stream
    schema: StructType

    def take(self, reading: Reading, landing: int) -> Table | None:
        """Read the stream to its present end into the table of a landing, and return that; None if it has no rows.

        A landing that was interrupted goes on where it was. Raises SourceError if Spark cannot read the stream.
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

    def table_at(self, place: Place) -> Table:
        """Return the table of a landing for which the stream has been read."""
        return DELTA.table(self.spark, str(place))

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
            return read_kafka(self.spark, kafka_options(self.stream.options))
        read = self._stream()
        if self.stream.format in TEXTS:
            return read.select(F.col("value").alias(RECORD), file_path(read))
        missing = [f for f in self.schema if f.name not in read.columns or read.schema[f.name].dataType != f.dataType]
        if missing:
            has = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in read.schema)
            raise SourceError(
                f"source {self.name}: its stream has no column {missing[0].name} of type "
                f"{missing[0].dataType.simpleString()}. Declare a schema with some of its columns: {has}."
            )
        columns = [F.col(quoted(field.name)).alias(f"c{i}") for i, field in enumerate(self.schema)]
        marked = [F.col(CORRUPT), file_path(read)] if self.stream.format == "csv" else []
        return read.select(*columns, *marked)

    def _stream(self) -> DataFrame:
        reader = self.spark.readStream
        stream, format = self.stream, self.stream.format
        if not stream.of_files:
            return reader.format(format).options(**stream.options).load()
        options = {**FORMAT_DEFAULTS.get(format, {}), **stream.options, "maxFileAge": EVER}
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
        fix = "Correct it, or the declaration, and land again; nothing of it is lost"
        messages = causes(error)
        if (path := file_of(messages)) is not None:
            what = f"{what} at {path}"
        reason, replay = mask_secrets(reason_of(messages)), "replay the source, to land those that are left"
        if any(name.startswith(DATA_LOSS) for name in conditions(error)) or any(
            LOSS in message for message in messages
        ):
            fix = f"Messages were deleted before they were landed: {replay}"
        elif any(UNKNOWN in message for message in messages):
            reason = "its messages cannot be fetched, for a reason that is in Spark's log"
            fix = f"If some were deleted before they were landed, {replay}; else land again"
        return SourceError(f"{what}: {reason}. {fix}.", f"{what}. {fix}.")


def parsing_options(options: Mapping[str, str], format: str = "json") -> dict[str, str]:
    """Return the options that parse a record: not those that find files and lines, or messages."""
    known = {name.lower() for name in READER_OPTIONS["csv" if format == "csv" else "json"].split()} - TEXT_OPTIONS
    return {name: value for name, value in options.items() if name.lower() in known}


def kafka_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that find messages."""
    return {name: value for name, value in options.items() if name not in parsing_options(options)}


def file_path(read: DataFrame) -> Column:
    """Return the path of a record's file, which Spark gives as a URI."""
    path = F.regexp_replace(read.metadataColumn("_metadata")["file_path"], "^file:/+", "/")
    return F.url_decode(F.replace(path, F.lit("+"), F.lit("%2B"))).alias(FILE)
