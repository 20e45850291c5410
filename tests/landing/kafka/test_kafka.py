"""A real broker: each message is landed once, whoever is killed, and a compacted topic has its latest messages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.api import Stream, Warehouse
from deltafold.spark.host.keeper import publish
from tests.landing.kafka.broker import Broker
from tests.landing.kafka.child import clicks
from tests.night import night
from tests.spark.machine import PROJECT

pytestmark = night


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("kafka") / "broker")
    yield made
    made.kill()


def test_each_message_is_landed_once(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Protects from messages that are lost or doubled when a landing is killed, with its Java, in the middle."""
    sent, bad = 0, 0
    landed = tmp_path / "warehouse" / "landed" / "clicks"
    for batches in (1, 4, 8):
        messages = [(f"k{n % 7}", f'{{"id":{n}}}' if n % 50 else "bad") for n in range(sent, sent + 300)]
        broker.send(spark, "clicks", list(messages))
        sent, bad = sent + 300, bad + 6
        kill_after(batches, landed, str(tmp_path / "warehouse"), broker.address)
    warehouse = Warehouse(spark, tmp_path / "warehouse")
    warehouse.source("clicks", clicks(broker.address, 1000))
    view = warehouse.view("n", "select id % 10 k, count(*) n, sum(id) s from clicks group by all")
    warehouse.land("clicks")
    view.refresh()
    rows = warehouse.tables()["clicks"]
    found = rows.at(rows.version() or 0).collect()
    assert Counter(row.id for row in found) == Counter(n for n in range(sent) if n % 50)
    assert len({(row._partition, row._offset) for row in found}) == len(found)
    assert warehouse.quarantine("clicks").select("file", "line").distinct().count() == bad
    broker.send(spark, "clicks", [("k", '{"id":-1}')])
    broker.kill()
    broker.start()
    assert warehouse.land("clicks").rows == 1
    view.refresh()
    assert view.verify().ok
    assert warehouse.replay("clicks").rows == len(found) + 1
    view.refresh()
    assert view.verify().ok


def kill_after(batches: int, landed: Path, *arguments: str) -> None:
    """Land in a process of its own, and kill it with its Java after so many batches."""
    command = [sys.executable, "-m", "tests.landing.kafka.child", *arguments]
    before = len(commits(landed))
    child = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, start_new_session=True)
    until = time.monotonic() + 180
    while len(commits(landed)) < before + batches:
        assert child.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    assert child.stdout is not None and b"landed" not in child.stdout.read()


def test_a_guest_that_is_killed(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Protects from the stream of a dead process, which goes on in a shared Spark beside the next landing."""
    publish(spark, tmp_path / "host.json")
    broker.send(spark, "guests", [(f"k{n % 7}", f'{{"id":{n}}}') for n in range(400)])
    landed = tmp_path / "warehouse" / "landed" / "clicks"
    kill_after(2, landed, str(tmp_path / "warehouse"), broker.address, str(tmp_path / "host.json"))
    warehouse = Warehouse(spark, tmp_path / "warehouse")
    warehouse.source("clicks", clicks(broker.address, 1000, "guests"))
    warehouse.land("clicks")
    rows = warehouse.tables()["clicks"]
    assert sorted(row.id for row in rows.at(rows.version() or 0).collect()) == list(range(400))


def commits(landed: Path) -> list[Path]:
    """The batches that Spark's checkpoint has as done."""
    return [path for path in landed.glob("stream-*/checkpoint/commits/*") if path.name.isdigit()]


def test_a_compacted_topic(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Protects from old messages of a key, from rows that a tombstone does not delete, and from other keys' rows."""
    warehouse = Warehouse(spark, tmp_path / "warehouse")
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": "people"}
    warehouse.source("people", Stream("kafka", "id INT, name STRING", options=options, key="id", primary_key=("id",)))

    def landed(*messages: tuple[str, str | None]) -> list[tuple[int, str]]:
        broker.send(spark, "people", [*messages])
        warehouse.land("people")
        table = warehouse.tables()["people"]
        return sorted(tuple(row) for row in table.at(table.version() or 0).collect())

    assert landed(("1", '{"name":"a"}'), ("2", '{"name":"b"}'), ("1", '{"name":"c"}'), ("3", None)) == [
        (1, "c"),
        (2, "b"),
    ]
    view = warehouse.view("names", "select name, count(*) n from people group by name")
    view.refresh()
    assert landed(("2", None), ("1", '{"name":"d"}'), ("4", '{"name":"e"}')) == [(1, "d"), (4, "e")]
    assert view.refresh().verdict == "applied"
    assert view.verify().ok
    assert landed(("4", '{"name":"f"}'), ("4", None), ("2", '{"name":"g"}')) == [(1, "d"), (2, "g")]
    warehouse.replay("people")
    view.refresh()
    assert view.verify().ok


FORGETFUL = """\
log.retention.ms=1000
log.roll.ms=1000
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
log.segment.delete.delay.ms=100
"""


def test_messages_that_were_deleted_unread(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from messages that Kafka deleted before a landing, which nobody would miss."""
    forgetful = Broker(tmp_path / "broker", FORGETFUL)
    try:
        warehouse = Warehouse(spark, tmp_path / "warehouse")
        warehouse.source("clicks", clicks(forgetful.address, 1000))
        forgetful.send(spark, "clicks", [("k", '{"id":1}')])
        warehouse.land("clicks")  # which may come too late for it
        forgetful.send(spark, "clicks", [("k", '{"id":2}')])
        wait_until_empty(spark, forgetful)
        forgetful.send(spark, "clicks", [("k", '{"id":3}')])
        with pytest.raises(SourceError, match=r"deleted before they were landed.* replay the source"):
            warehouse.land("clicks")
        wait_until_empty(spark, forgetful)
        assert warehouse.replay("clicks", allow_loss=True).rows == 0
        rows = warehouse.tables()["clicks"]
        assert rows.at(rows.version() or 0).isEmpty()
    finally:
        forgetful.kill()


def wait_until_empty(spark: SparkSession, broker: Broker) -> None:
    """Wait until the topic has no message left."""
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": "clicks"}
    until = time.monotonic() + 120
    while spark.read.format("kafka").options(**options).load().count():
        assert time.monotonic() < until
        time.sleep(0.5)


def test_no_broker_and_no_topic(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Protects from a landing that waits for ever, and from an error that says nothing."""
    options = {"kafka.bootstrap.servers": broker.address, "subscribePattern": "nosuch.*"}
    warehouse = Warehouse(spark, tmp_path / "warehouse")
    warehouse.source("none", Stream("kafka", "id INT", options=options))
    assert warehouse.land("none").rows == 0
    quick = {"kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "1000"}
    away = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "clicks", **quick}
    warehouse.source("away", Stream("kafka", "id INT", options=away))
    with pytest.raises(SourceError, match="source away was not landed: Spark could not read its stream of clicks: "):
        warehouse.land("away")
