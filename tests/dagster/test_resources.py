"""The Spark resource: whose settings win, and when Spark is started."""

import os
from pathlib import Path
from typing import Any, cast

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource

from deltafold.dagster.resources import HOST_VARIABLE, SessionSpark, SparkResource
from deltafold.pipelines import catalogue
from deltafold.pipelines.tasks import RefreshTask
from deltafold.spark import session
from tests.dagster import sales

SPARK = 'spark: {memory: 3g, settings: {spark.a: "pipeline"}}\n'


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What Spark is started with, instead of starting it."""
    calls: list[tuple[str, dict[str, Any]]] = []

    def start(name: str, **asked: Any) -> object:
        calls.append((name, asked))
        return object()

    monkeypatch.setattr(session, "start", start)
    monkeypatch.setattr(catalogue, "open", lambda pipeline, spark: (spark, None))
    return calls


def test_the_pipelines_settings_win(tmp_path: Path, started: list[tuple[str, dict[str, Any]]]) -> None:
    resource = SparkResource(
        spark_config={"spark.a": "resource", "spark.b": "resource"}, master="local[1]", memory="1g"
    )
    assert isinstance(resource, LazyPySparkResource)
    assert not started
    pipeline = sales.declare(tmp_path, sales.DAILY + SPARK)
    first, _ = resource.open(pipeline)
    assert resource.open(pipeline)[0] is first
    assert resource.spark_session is first
    settings = {"spark.a": "pipeline", "spark.b": "resource"}
    assert started == [
        ("deltafold sales", {"settings": settings, "warm": "auto", "master": "local[1]", "memory": "3g"})
    ]


class Opening:
    """A task on a project that only opens it."""

    show_rows = False

    def do(self, opened: object, progress: object) -> object:
        return opened


class Configured:
    """The files of a Spark pipeline whose configuration a pipeline.yaml would refuse."""

    def open(self, start: Any) -> object:
        return start("shop", {"shop.api.token": "1"}, {})


def test_the_configuration_of_a_spark_pipeline_may_have_any_setting(started: list[tuple[str, dict[str, Any]]]) -> None:
    files, task, context = Configured(), Opening(), dg.build_op_context()
    cast(Any, SparkResource(memory="1g")).run_project(context, files, task)
    assert started == [("deltafold shop", {"settings": {"shop.api.token": "1"}, "warm": "auto", "memory": "1g"})]


def test_a_session_without_a_pipeline_is_started_when_asked_for(
    started: list[tuple[str, dict[str, Any]]],
) -> None:
    assert SparkResource().spark_session is not None
    assert started == [("deltafold", {"settings": {}, "warm": "auto"})]


def test_a_host_is_attached_to(
    tmp_path: Path, started: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOST_VARIABLE, "")
    SparkResource(host="host.json").open(sales.declare(tmp_path))
    assert os.environ[HOST_VARIABLE] == "host.json"
    assert len(started) == 1


def test_a_users_session_of_spark_connect_is_one_sentence(tmp_path: Path) -> None:
    session_of_connect: Any = pytest.importorskip("pyspark.sql.connect.session").SparkSession
    runner = SessionSpark(object.__new__(session_of_connect))
    with pytest.raises(dg.Failure, match=r"the session is one of Spark Connect, and .* Pass a classic session"):
        runner.run(dg.build_op_context(), sales.declare(tmp_path), RefreshTask())
