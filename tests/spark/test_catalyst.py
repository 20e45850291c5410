"""Calls from Python to the JVM, each of which takes 0.1 ms and more."""

from __future__ import annotations

from typing import Any
from unittest import mock

from py4j.clientserver import JavaClient  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def test_pyspark_looks_up_its_functions_once(spark: SparkSession) -> None:
    """PySpark asks the JVM for the class and the method at each call, which takes longer than the call itself."""
    F.lit(1)
    asked = list[str]()
    send = JavaClient.send_command

    def counted(client: JavaClient, command: str, *rest: Any, **named: Any) -> Any:
        asked.append(command)
        return send(client, command, *rest, **named)

    with mock.patch.object(JavaClient, "send_command", counted):
        F.lit(2)
    assert [command for command in asked if command.startswith("r\n")] == []
    assert any(command.startswith("c\n") for command in asked)
