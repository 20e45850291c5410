"""Run `spark-pipelines` on the Spark of this process, by a Connect server whose token no other user has."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.spark import catalyst
from deltafold.spark.connect import REMOTE_VARIABLE

LOADING = ": Registering graph elements"  # printed before the files of a project are read
COMPLETED = ": Run is COMPLETED"
TOKEN = "spark.connect.authenticate.token"


@dataclass(frozen=True)
class ConnectServer:
    """A server of Spark Connect on the loopback, whose clients need its token."""

    address: str

    @classmethod
    def start(cls, spark: SparkSession) -> ConnectServer:
        """Start the server in the Java of a session; it ends with it."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        token = secrets.token_hex(16)
        java = catalyst.jvm(spark)
        conf = java.org.apache.spark.SparkEnv.get().conf()
        binding = {"address": "localhost", "port": str(port)}
        for name, value in {f"spark.connect.grpc.binding.{part}": text for part, text in binding.items()}.items():
            conf.set(name, value)
        conf.set(TOKEN, token)
        java.org.apache.spark.sql.connect.service.SparkConnectService.start(catalyst.context(spark))
        return cls(f"sc://localhost:{port}/;token={token}")

    def run(self, project: Path) -> float:
        """Run `spark-pipelines run` in the folder of a project; returns the seconds of loading and refreshing it.

        The time in which its process starts is left out. Raises SourceError, with what it printed, if it fails.
        """
        command = [sys.executable, "-u", "-m", "pyspark.pipelines.cli", "run"]
        environment = {**os.environ, REMOTE_VARIABLE: self.address}
        output, times = list[str](), dict[str, float]()
        process = subprocess.Popen(
            command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            times |= {mark: time.perf_counter() for mark in (LOADING, COMPLETED) if mark in line}
        if process.wait() != 0 or len(times) < 2:
            raise SourceError(f"spark-pipelines run: it failed in {project}: {''.join(output)}. Correct the project.")
        return times[COMPLETED] - times[LOADING]
