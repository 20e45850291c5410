"""The day's sample of the corpus on a real S3 server and on HDFS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.corpus.test_corpus import SAMPLE
from tests.lake.remote.hdfs_server import HdfsServer
from tests.lake.remote.s3_server import S3Server
from tests.lake.remote.test_stores import start_s3
from tests.night import night
from tests.spark.machine import PROJECT

pytestmark = night


@pytest.fixture(params=[start_s3, HdfsServer], ids=["s3", "hdfs"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[S3Server | HdfsServer]:
    found = request.param(tmp_path)
    yield found
    found.kill()


def test_queries_on_a_store(server: S3Server | HdfsServer) -> None:
    """Protects from an answer that depends on where the tables are."""
    command = [sys.executable, "-m", "tests.corpus.on_store", f"{server.root}/corpus"]
    variables = os.environ | {"STORE": json.dumps(server.settings)}
    done = subprocess.run(command, cwd=PROJECT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count("checked") == sum(map(len, SAMPLE.values()))
