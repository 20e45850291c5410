"""Work in several threads of one session: each has its own jobs, and the session and the settings of its starter."""

from __future__ import annotations

from threading import Barrier, Event, Timer, current_thread
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from deltafold.algebra.errors import UsageError
from deltafold.spark import catalyst
from deltafold.spark.threads import POOL, choose_threads, spark_threads


def properties(session: SparkSession, together: Barrier) -> tuple[str, str, str | None, str | None, bool]:
    """Two properties of this thread's jobs and whether its session is the active one, while another sets its own."""
    context, name = session.sparkContext, current_thread().name
    context.setLocalProperty("of.this", name)
    together.wait(60)
    active = catalyst.sql(session).classic.SparkSession.active()
    own, given, pool = (context.getLocalProperty(key) for key in ("of.this", "of.starter", POOL))
    return name, str(own), given, pool, bool(active.equals(catalyst.session(session)))


@pytest.mark.parametrize("mode", ["FIFO", "FAIR"])
def test_threads_share_nothing_of_their_jobs(spark: SparkSession, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "getConf", lambda self: SimpleNamespace(get=lambda name, default: mode))
    session, together = spark.newSession(), Barrier(2)
    spark.sparkContext.setLocalProperty("of.starter", "mine")
    try:
        with spark_threads(session, 2) as begin:
            done = [begin(lambda: properties(session, together)) for _ in range(2)]
        found = [each.result() for each in done]
    finally:
        spark.sparkContext.setLocalProperty("of.starter", None)  # type: ignore[arg-type]
    names = {name for name, *_ in found}
    assert len(names) == 2 and current_thread().name not in names
    for name, own, given, pool, is_active in found:
        assert (own, given, pool, is_active) == (name, "mine", name if mode == "FAIR" else None, True)


def test_work_that_waits_is_left_out_after_an_error(spark: SparkSession) -> None:
    go, ran = Event(), list[bool]()
    with pytest.raises(ZeroDivisionError), spark_threads(spark, 2) as begin:
        for _ in range(5):
            begin(lambda: ran.append(go.wait(60)))
        Timer(1, go.set).start()
        raise ZeroDivisionError
    assert ran == [True, True]


def test_one_thread_is_this_one(spark: SparkSession) -> None:
    with spark_threads(spark, 1) as begin:
        assert begin(current_thread).result() is current_thread()


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2"])
def test_what_is_no_number_of_threads(spark: SparkSession, threads: Any) -> None:
    with pytest.raises(UsageError, match=r"threads: .* is not valid"):
        choose_threads(threads)


def test_threads_of_java_that_are_shared_allow_one(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= choose_threads(None) <= 4
    monkeypatch.setattr(SparkContext, "_gateway", object())
    assert choose_threads(None) == choose_threads(1) == 1
    with pytest.raises(UsageError, match="PYSPARK_PIN_THREAD is false"):
        choose_threads(2)
