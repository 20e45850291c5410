"""Spark Connect is refused in one sentence at every entrance, which shows what is possible instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

import deltafold as df
from deltafold.algebra.errors import DeltafoldError, QueryError, UsageError
from deltafold.spark.connect import INSTEAD, explain_request
from deltafold.spark.doctor import examine
from tests.night import night
from tests.sandbox import MemorySandbox
from tests.spark.machine import run

pytest.importorskip("grpc", reason="Spark Connect needs the extra `pipelines`")
TOKEN = "sc://cluster:443/;token=hunter2"

LOCAL = """
import sys
import deltafold as df
from deltafold.spark.connect import is_connect
from pyspark.sql import SparkSession, functions as F

remote = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false").getOrCreate()
assert is_connect(remote) and is_connect(remote.range(3)) and is_connect(F.col("id"))
for ask in (
    df.start,
    lambda: df.Warehouse(remote, sys.argv[1]),
    lambda: df.fixpoint(remote.range(1), lambda rows: rows),
    lambda: df.iterate((remote.range(1), remote.range(2)), lambda one, other: (one, other), times=1),
):
    try:
        ask()
    except df.DeltafoldError as error:
        print(error)
near = df.nearest(remote.range(3), remote.createDataFrame([(0,), (2,)], "id bigint"), on="id")
assert {(row.id, row.center.id) for row in near.collect()} == {(0, 0), (1, 0), (2, 2)}
remote.stop()
"""


CLIENT = """
import sys
sys.modules |= {"py4j": None, "pyspark.core": None}  # as with pyspark-client
import deltafold as df
df.start
"""


def fake(kind: str) -> Any:
    """Return an object of a class of Spark Connect, without a server."""
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.session import SparkSession as Session

    return object.__new__(cast(Any, {"session": Session, "frame": DataFrame}[kind]))


@pytest.mark.parametrize(
    ("variables", "settings", "master", "what"),
    [
        ({"SPARK_REMOTE": TOKEN}, {}, "local[1]", "SPARK_REMOTE is set"),
        ({"SPARK_CONNECT_MODE_ENABLED": "1"}, {}, "local[1]", "this process has a session of Spark Connect"),
        ({"SPARK_API_MODE": "Connect"}, {}, "local[1]", "PySpark's mode is connect"),
        ({"SPARK_CONNECT_MODE": "1"}, {}, "local[1]", "PySpark's mode is connect"),
        ({}, {"spark.remote": TOKEN}, "local[1]", "spark.remote is set"),
        ({}, {"spark.api.mode": "connect"}, "local[1]", "spark.api.mode is connect"),
        ({}, {}, TOKEN, "master is a sc:// address"),
    ],
)
def test_a_start_that_would_be_by_connect(
    variables: dict[str, str], settings: dict[str, str], master: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects from a Java that ends without a reason, and from a token in a message."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        DeltafoldError, match=rf"^Spark Connect: {what}, and views are maintained in Spark's "
    ) as caught:
        df.start(master=master, settings=settings)
    assert str(caught.value).endswith(INSTEAD) and "hunter2" not in str(caught.value)


def test_a_classic_start_is_none_by_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_API_MODE", "classic")
    monkeypatch.setenv("SPARK_CONNECT_MODE", "1")
    assert explain_request({"spark.sql.shuffle.partitions": "2"}, "spark://host:7077") is None


def test_the_doctor_and_a_command_refuse_it_before_java_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = "import sys; from deltafold.cli.commands import main; sys.argv = ['deltafold', 'run', 'p']; main()"
    (tmp_path / "pipelines" / "p").mkdir(parents=True)
    (tmp_path / "pipelines" / "p" / "query.sql").write_text("SELECT k FROM t")
    (tmp_path / "pipelines" / "p" / "pipeline.yaml").write_text("sources: {t: {delta: /nowhere}}\n")
    done = run(command, cwd=tmp_path, SPARK_REMOTE=TOKEN)
    assert done.returncode == 70 and done.stdout == ""
    assert done.stderr == f"p: starting Spark\n{explained(monkeypatch)}\n"
    (found,) = [each for each in examine(tmp_path) if each.name == "Spark Connect"]
    assert not found.ok and found.sentence == explained(monkeypatch)


def explained(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SPARK_REMOTE", TOKEN)
    return explain_request({}) or ""


def test_a_session_and_frames_of_connect(tmp_path: Path) -> None:
    """Protects from «SparkSession is not a Spark session», and from attribute errors of Connect's classes."""
    with pytest.raises(UsageError, match=rf"^warehouse {tmp_path}: the session is one of Spark Connect, and .* Pass a"):
        df.Warehouse(fake("session"), tmp_path)
    for start in (fake("frame"), (fake("frame"), fake("frame"))):
        with pytest.raises(QueryError, match=r"^fixpoint: the DataFrame is one of Spark Connect, and .* Build it from"):
            df.fixpoint(start, lambda *rows: rows)
    with pytest.raises(QueryError, match=r"^iterate: the DataFrame is one of Spark Connect"):
        df.iterate(fake("frame"), lambda rows: rows, 1)


def test_a_query_function_that_returns_such_a_frame(sandbox: MemorySandbox) -> None:
    sandbox.sources({"t": ("k int", [(1,)])})
    view = sandbox.warehouse.view("v", lambda t: fake("frame"))
    with pytest.raises(QueryError, match=r"^query function <lambda>: the DataFrame is one of Spark Connect"):
        view.refresh()


def test_a_pyspark_without_a_driver(tmp_path: Path) -> None:
    done = run(CLIENT, cwd=tmp_path)
    assert "MissingPackageError: pyspark-client: it is Spark Connect alone, and views are maintained in " in done.stderr


@night
@pytest.mark.own_spark
def test_a_real_session_of_connect(tmp_path: Path) -> None:
    done = run(LOCAL, str(tmp_path / "warehouse"), cwd=tmp_path)
    assert done.returncode == 0, done
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [
        "Spark Connect", f"warehouse {tmp_path}/warehouse", "fixpoint", "iterate",
    ]  # fmt: skip
    assert done.stdout.count(INSTEAD) == 4
