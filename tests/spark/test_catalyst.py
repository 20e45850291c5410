"""Calls from Python to the JVM, each of which takes 0.1 ms and more."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import date
from typing import Any
from unittest import mock

import pytest
from py4j.clientserver import JavaClient  # type: ignore[import-untyped]
from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from deltafold.spark import catalyst

RELEASE = "m\n"  # of an object that Python has collected, whenever that happens


@contextmanager
def commands() -> Generator[list[str]]:
    """List the commands that are sent within the block."""
    send, sent = JavaClient.send_command, list[str]()

    def noted(client: JavaClient, command: str, *rest: Any, **named: Any) -> Any:
        if not command.startswith(RELEASE):
            sent.append(command)
        return send(client, command, *rest, **named)

    with mock.patch.object(JavaClient, "send_command", noted):
        yield sent


def test_pyspark_looks_up_its_functions_once(spark: SparkSession) -> None:
    """PySpark asks the JVM for the class and the method at each call, which takes longer than the call itself."""
    F.lit(1)
    with commands() as sent:
        F.lit(2)
    assert [command for command in sent if command.startswith("r\n")] == []
    assert any(command.startswith("c\n") for command in sent)


def test_a_projection_takes_few_calls(spark: SparkSession) -> None:
    """Protects from a plan of a hundred columns that takes a thousand calls: each new name took ten."""
    plan = catalyst.analysed_plan(spark.range(1))
    (number,) = catalyst.sequence(plan.output())
    catalyst.vector(spark, [catalyst.new_alias(spark, number, "looked up")])
    with commands() as sent:
        items = catalyst.vector(spark, [catalyst.new_alias(spark, number, "n")])
    assert len(sent) == 3  # its id, its name, the sequence
    (renamed,) = catalyst.sequence(items)
    assert (str(renamed.name()), renamed.exprId().equals(number.exprId())) == ("n", False)


def test_texts_and_numbers_are_not_converted(spark: SparkSession) -> None:
    """Protects each call from ten questions about each argument, and lists and dates from being sent as they are."""
    with mock.patch.object(catalyst.Converters, "_of") as asked:
        F.lit("text").alias("name")
    asked.assert_not_called()
    items = catalyst.jvm(spark).java.util.ArrayList(["a", date(2024, 1, 2), None])
    assert (str(items.get(1)), items.get(2)) == ("2024-01-02", None)


def test_objects_are_released_together(spark: SparkSession) -> None:
    """Protects from a message for each object, which takes Python and Java as long as half a call."""
    gateway: Any = spark.sparkContext._gateway
    client, sent = gateway._gateway_client, list[str]()
    objects = [catalyst.jvm(spark).java.lang.StringBuilder("x") for _ in range(300)]
    last: str = objects[-1]._target_id
    address: Any = JavaObject
    send = JavaClient.send_command

    def noted(client: JavaClient, command: str, *rest: Any, **named: Any) -> Any:
        sent.append(command)
        return send(client, command, *rest, **named)

    with mock.patch.object(JavaClient, "send_command", noted):
        objects.clear()
        until = time.monotonic() + 30
        while client.finalizer_deque:
            assert time.monotonic() < until
            time.sleep(0.05)
    assert not any(command.startswith(RELEASE) for command in sent)
    with pytest.raises(Py4JError, match="does not exist"):
        for _ in range(100):  # the last messages may be on their way
            address(last, client).length()
            time.sleep(0.05)
