"""The Spark of spark-submit and a warehouse in an S3 server: our log store there, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from deltafold.spark.cache import cache_folder
from deltafold.spark.jvm.jars import delta_jars, provide_jars
from deltafold.spark.jvm.java import launch_environment, provide_java
from deltafold.spark.jvm.object_stores import STORES, hadoop_release, s3a_package
from tests.lake.remote.s3_server import S3Server
from tests.lake.remote.test_stores import start_s3
from tests.night import night
from tests.spark.machine import PROJECT, PYTHONPATH

pytestmark = night
LOG_STORE = "spark.delta.logStore.s3a.impl"


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    found = start_s3(tmp_path)
    yield found
    found.kill()


def submit(
    server: S3Server, work: str, times: int, more: Mapping[str, str] | None = None, with_s3a: bool = True
) -> subprocess.Popen[str]:
    """Start work on the store by spark-submit; more: settings of Spark, empty for one that is left out."""
    environment = os.environ | launch_environment(provide_java()) | {"PYSPARK_PYTHON": sys.executable}
    settings = {name: value for name, value in (server.settings | dict(more or {})).items() if value}
    variables = {"PYTHONPATH": PYTHONPATH, "DELTAFOLD_CACHE": str(cache_folder()), "STORE": json.dumps(settings)}
    spark = Path(environment["SPARK_HOME"])
    jars = (*delta_jars(), *(provide_jars(s3a_package(hadoop_release(spark / "jars"))) if with_s3a else ()))
    program = PROJECT / "tests" / "lake" / "remote" / "store_child.py"
    command = [f"{spark}/bin/spark-submit", "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    command += ["--jars", ",".join(map(str, jars)), str(program), work, server.root, str(times)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env=environment | variables, cwd=server.folder, stdout=pipe, stderr=pipe, text=True
    )


def test_two_processes_commit_at_once(s3: S3Server) -> None:
    """Protects from two commits of one version, of which one is lost."""
    first = submit(s3, "look", 1)
    shown, log = first.communicate()
    assert first.returncode == 0, log[-3000:]
    assert shown.splitlines()[-1] == "verified True"
    assert submit(s3, "commit", 1).communicate()[0].split() == ["ready", "committed"]
    children = [submit(s3, "commit", 20) for _ in range(2)]
    assert [child.communicate()[0].count("committed") for child in children] == [20, 20]
    assert submit(s3, "count", 1).communicate()[0].splitlines()[-1] == "41 versions, 41 rows"


def test_what_is_missing_is_named(s3: S3Server) -> None:
    """Protects from a sentence that advises what has no effect there."""
    shown, _ = submit(s3, "look", 1, with_s3a=False).communicate()
    assert f"{STORES}: s3a: this Spark lacks Hadoop's S3A" in shown
    assert "--packages org.apache.hadoop:hadoop-aws:" in shown


@pytest.mark.parametrize("unsafe", [{STORES: ""}, {LOG_STORE: "io.delta.storage.S3SingleDriverLogStore"}], ids=str)
def test_a_log_store_that_lets_both_write_is_refused(s3: S3Server, unsafe: dict[str, str]) -> None:
    """Protects from Delta's own log store for s3a, which looks first and writes then."""
    shown, _ = submit(s3, "look", 1, unsafe).communicate()
    assert "SourceError" in shown and "two processes could both commit the same version there" in shown
