"""A Spark that ends during the work is told from other errors, and another one can be started."""

from __future__ import annotations

import subprocess
import time
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # pyright: ignore[reportMissingTypeStubs]
from pyspark import SparkContext

from deltafold.algebra.errors import LostSparkError
from deltafold.refresh.refresh import Refresh
from deltafold.spark import lost
from deltafold.spark.host.address import Host, NoHostError
from deltafold.spark.lost import explain_lost_spark
from tests.sandbox import MemorySandbox, checked


def gateway(monkeypatch: pytest.MonkeyPatch, **parts: object) -> list[str]:
    """Make this process have a Spark behind a gateway of these parts; returns what was closed."""
    closed: list[str] = []
    made = SimpleNamespace(close=lambda: closed.append("gateway"), **parts)
    monkeypatch.setattr(SparkContext, "_gateway", made)
    monkeypatch.setattr(SparkContext, "_jvm", object())
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    monkeypatch.setattr("pyspark.sql.SparkSession._instantiatedSession", None)
    return closed


@pytest.mark.parametrize("error", [Py4JError("an error"), Py4JNetworkError("no answer"), ConnectionResetError()])
def test_a_dead_spark(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Protects from a traceback of Py4J, and from every later try in this process, which would fail as well."""
    java = subprocess.Popen(["true"])
    closed = gateway(monkeypatch, proc=java)
    context = SparkContext._active_spark_context
    said = r"^Spark ended during the work: .* Run it again"
    with pytest.raises(LostSparkError, match=said) as caught, explain_lost_spark():
        raise error
    assert caught.value.__cause__ is error
    assert SparkContext._active_spark_context is None and closed == ["gateway"]
    assert lost.was_lost(SimpleNamespace(_sc=context))  # type: ignore[arg-type]


def test_a_spark_that_dies_during_a_refresh(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects programs, which catch DeltafoldError, from the socket's error that the end of a block meets last."""
    sandbox.source("t", "k int", [(1,)])
    view = sandbox.another("select k, count(*) n from t group by k")
    checked(view)

    def refuse_connection(*arguments: object, **options: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(Refresh, "run", refuse_connection)
    gateway(monkeypatch, proc=subprocess.Popen(["true"]))
    with pytest.raises(LostSparkError, match="an unfinished epoch is finished first"):
        view.refresh()


def test_a_host_that_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway(monkeypatch)
    monkeypatch.setattr(lost, "find_host_of_guest", lambda: Host(1, "then", 2, "s"))
    with pytest.raises(LostSparkError), explain_lost_spark():
        raise NoHostError("gone")


def test_what_a_living_spark_says_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from an error of the work that is called a lost Spark, and from forgetting one that lives."""
    java = subprocess.Popen(["sleep", "60"])
    try:
        monkeypatch.setattr(lost, "END_SECONDS", 0.1)
        gateway(monkeypatch, proc=java)
        with pytest.raises(Py4JError, match=r"^an error$"), explain_lost_spark():
            raise Py4JError("an error")
        assert SparkContext._active_spark_context is not None
    finally:
        java.kill()
        java.wait()


def test_a_fault_of_a_file_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a wait for the end of a Spark that has nothing to do with a full disk."""
    java = subprocess.Popen(["sleep", "60"])
    try:
        begun = time.monotonic()
        monkeypatch.setattr(lost, "END_SECONDS", 50.0)
        gateway(monkeypatch, proc=java)
        with pytest.raises(OSError, match="full"), explain_lost_spark():
            raise OSError("the disk is full")
        assert time.monotonic() - begun < 25
    finally:
        java.kill()
