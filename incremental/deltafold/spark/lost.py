"""Recognise the errors of a Spark that ended during the work, and let this process start another one.

Causes: the heap was too small, the system killed it, or a host was stopped. Nothing is lost: the next run finishes or
repeats an unfinished epoch or landing.
"""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from py4j.protocol import Py4JError, Py4JJavaError  # pyright: ignore[reportMissingTypeStubs]
from pyspark import SparkContext
from pyspark.sql import SparkSession

from deltafold.algebra.errors import LostSparkError
from deltafold.spark.host.address import NoHostError
from deltafold.spark.host.guest import find_host_of_guest

END_SECONDS = 5.0  # from a broken connection to the end of its process

_forgotten: list[SparkContext] = []


@contextmanager
def explain_lost_spark() -> Generator[None]:
    """Raise a LostSparkError for an exception of the body whose cause is that Spark has ended."""
    try:
        yield
    except (Py4JError, NoHostError, OSError) as error:
        waits = not isinstance(error, OSError) or isinstance(error, ConnectionError)
        if isinstance(error, Py4JJavaError) or not _has_ended(END_SECONDS if waits else 0.0):
            raise
        forget_spark()
        raise LostSparkError(
            "Spark ended during the work: its process was killed, ran out of memory, or belonged to a host that was "
            "stopped. Run it again: an unfinished epoch is finished first, and nothing is lost."
        ) from error


def forget_spark() -> None:
    """Forget this process's Spark, so that the next start does not use it."""
    gateway = cast(Any, SparkContext)._gateway
    _forgotten.append(cast(Any, SparkContext)._active_spark_context)
    cast(Any, SparkContext)._active_spark_context = None
    cast(Any, SparkContext)._gateway = cast(Any, SparkContext)._jvm = None
    cast(Any, SparkSession)._instantiatedSession = None
    if gateway is not None:
        gateway.close()


def was_lost(spark: SparkSession) -> bool:
    """Return whether the Spark of a session was forgotten."""
    return any(getattr(spark, "_sc", None) is context for context in _forgotten)


def _has_ended(seconds: float) -> bool:
    """Return whether the Java of this process's Spark has ended, or ends within some seconds."""
    gateway = cast(Any, SparkContext)._gateway
    if gateway is None:
        return False
    java: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if java is None:
        host = find_host_of_guest()
        return host is not None and bool(host.fault)
    try:
        java.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
