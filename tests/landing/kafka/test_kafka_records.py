"""Messages of Kafka, as they are stored: which are rows, which delete one, and which fit none."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.api import Stream
from deltafold.landing.streams.arrivals import column_fault
from deltafold.landing.streams.records import Split
from deltafold.spark import catalyst

STORED = (
    "__record BINARY, _key BINARY, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP, __file STRING"
)
NOON = datetime.datetime(2024, 5, 1, 12)
OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


def split(
    spark: SparkSession, schema: str, *messages: tuple[bytes | None, bytes | None], key: str | None = None
) -> Split:
    """The messages (key, value) of one partition, in order."""
    rows = [(value, k, "t", 0, number, NOON, "t/0") for number, (k, value) in enumerate(messages)]
    frame = spark.createDataFrame(rows, STORED)
    return Split(Stream("kafka", schema, options=OPTIONS, key=key), catalyst.schema_of(schema), frame)


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def test_fields_and_places(spark: SparkSession) -> None:
    """Protects from messages that become NULL, and from the second object of a message."""
    schema = "id INT, _key STRING, _offset BIGINT, _timestamp TIMESTAMP"
    found = split(
        spark, schema, (b"a", b'{"id":1}'), (None, b'{"id":2,"more":3}'), (b"c", None), (b"\xe9", b'{"id":3}'),
        (b"d", b'{"id":"x"}'), (b"e", b'{"id":4}{"id":5}'), (b"f", b""), (b"g", b'{"id":6,"s":"\xe9"}'), (b"h", b"{}"),
    )  # fmt: skip
    assert rows(found.rows(all_fit=False)) == sorted(
        [(1, "a", 0, NOON), (2, None, 1, NOON), (None, "h", 8, NOON)], key=repr
    )
    assert found.counts() == (3, 6)
    reasons = {row.line: (row.file, row.reason) for row in found.malformed().collect()}
    assert reasons == {
        2: ("t/0", "it has no value"),
        3: ("t/0", "it is not UTF-8"),
        4: ("t/0", '"x" in id is not a valid INT'),
        5: ("t/0", "text follows its JSON value"),
        6: ("t/0", "it is not a record"),
        7: ("t/0", "it is not UTF-8"),
    }


def test_whole_messages(spark: SparkSession) -> None:
    """Protects from messages that are refused as JSON though nothing is read from them."""
    found = split(spark, "_value BINARY, _partition INT", (b"a", b"\xe9"), (None, None))
    assert rows(found.rows(all_fit=False)) == [(None, 0), (bytearray(b"\xe9"), 0)]
    assert found.counts() == (2, 0)
    texts = split(spark, "_value STRING", (b"a", b"\xe9"), (None, b"x"))
    assert (rows(texts.rows(all_fit=False)), texts.counts()) == ([("x",)], (1, 1))


def test_the_latest_message_of_a_key(spark: SparkSession) -> None:
    """Protects from an older message that wins, and from a deletion that is lost."""
    found = split(
        spark, "id INT, n INT", (b"1", b'{"n":1}'), (b"2", b'{"n":2}'), (b"1", b'{"n":3}'), (b"2", None), (b"3", None),
        (None, b'{"n":4}'), (b"x", b'{"n":5}'), (b"4", b"bad"), key="id",
    )  # fmt: skip
    assert rows(found.rows(all_fit=False)) == [(1, 3)]
    assert rows(found.latest()) == [(1, 3, False), (2, None, True), (3, None, True)]
    reasons = {row.line: row.reason for row in found.malformed().collect()}
    assert reasons == {5: "it has no key", 6: "its key is not a valid INT", 7: "it is not a record"}


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ({"options": {"subscribe": "t"}}, "Set the option `kafka.bootstrap.servers`"),
        ({"options": {"kafka.bootstrap.servers": "h:1"}}, "one of the options `subscribe`"),
        ({"options": OPTIONS | {"failOnDataLoss": "false"}}, "`failOnDataLoss` cannot be an option"),
        ({"key": "_key"}, "`key` names a column of its own"),
        ({"key": "id", "append_only": True}, "Remove `append_only`"),
        ({"path": "in"}, "a stream of kafka has no folder"),
        ({"format": "rate", "options": {}, "key": "id"}, "a stream of rate has none"),
    ],
)
def test_what_is_no_stream_of_kafka(declared: dict[str, Any], says: str) -> None:
    """Protects from messages that Spark would leave out without a word."""
    given: dict[str, Any] = {"format": "kafka", "schema": "id INT", "options": OPTIONS} | declared
    with pytest.raises(SourceError, match=says):
        Stream(**given)


@pytest.mark.usefixtures("spark")
def test_columns_of_kafka() -> None:
    assert column_fault(catalyst.schema_of("_offset BIGINT, id INT"), "id") == ""
    assert "column _offset of a Kafka stream is BIGINT" in column_fault(catalyst.schema_of("_offset INT"), None)
    assert "`key` names k, not a column of the schema (id)" in column_fault(catalyst.schema_of("id INT"), "k")
