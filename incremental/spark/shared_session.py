"""One warm Spark for many processes. In: a file's name. Out: a session of the Spark it points to.

`python -m incremental.spark.shared_session FILE` starts a Spark and keeps it until it is interrupted, and FILE
(readable by its owner only) says how to reach it on the loopback. A process with DELTAFOLD_SPARK_HOST=FILE attaches in
about a second, where a Spark of its own would take several and be cold.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, cast

from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.sql import SparkSession

from incremental.spark.cache import SetupError


def attach(file: Path) -> SparkSession:
    """A new session of the Spark whose host wrote `file`, with its own settings and temporary views.

    Raises SetupError where no host answers there.
    """
    try:
        known = json.loads(file.read_text())
        port, secret = str(known["port"]), str(known["secret"])
    except (OSError, ValueError, KeyError, TypeError):
        raise SetupError(
            f"{file} names no Spark host: start one with python -m incremental.spark.shared_session {file}"
        ) from None
    os.environ |= {"PYSPARK_GATEWAY_PORT": port, "PYSPARK_GATEWAY_SECRET": secret}
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        gateway = cast(Any, java_gateway).launch_gateway()
        java = gateway.jvm.org.apache.spark
        context = java.api.java.JavaSparkContext.fromSparkContext(java.SparkContext.getOrCreate())
    except OSError:
        raise SetupError(
            f"The Spark host of {file} does not answer: start it again with "
            f"python -m incremental.spark.shared_session {file}"
        ) from None
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    attached = SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()))
    session = SparkSession(attached, java.sql.SparkSession.getDefaultSession().get().newSession())
    cast(Any, session).stop = lambda: None  # the Spark is the host's, and goes on when a guest ends
    return session


def publish(spark: SparkSession, file: Path) -> None:
    """Writes how to reach this process's Spark to `file`, which only its owner can read."""
    gateway: Any = cast(Any, spark.sparkContext)._gateway.gateway_parameters
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        json.dump({"port": gateway.port, "secret": gateway.auth_token, "process": os.getpid()}, out)
    fresh.replace(file)


def keep(file: Path) -> None:
    """Starts a Spark, publishes it in `file`, and waits to be interrupted or ended; then removes the file."""
    from incremental.spark.session import start

    os.environ.pop("DELTAFOLD_SPARK_HOST", None)  # this is the host
    publish(start("deltafold host"), file)
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        ended.wait()
    finally:
        file.unlink(missing_ok=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m incremental.spark.shared_session FILE")
    keep(Path(sys.argv[1]).absolute())
