"""Run work on one session in several threads, each with a thread of Java of its own.

Java's thread has the local properties of jobs, from which job groups and pools are read, and the active session, where
Delta looks for settings. Without Py4J's pinned threads it may serve two of Python's, so that they would mix.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from py4j.clientserver import ClientServer  # pyright: ignore[reportMissingTypeStubs]
from pyspark import SparkContext, util
from pyspark.sql import SparkSession

from deltafold.algebra.errors import UsageError
from deltafold.spark import catalyst

Result = TypeVar("Result")
MOST_THREADS = 4  # by default: each plans in Python, one at a time, and has rows in the driver
SCHEDULER, POOL = "spark.scheduler.mode", "spark.scheduler.pool"


def choose_threads(threads: object) -> int:
    """Return the number of threads, by default one per core; raises UsageError for a number that there cannot be."""
    are_pinned = isinstance(cast(Any, SparkContext)._gateway, ClientServer)
    if threads is None:
        return min(os.cpu_count() or 1, MOST_THREADS) if are_pinned else 1
    if type(threads) is not int or threads < 1:
        raise UsageError(f"threads: {threads!r} is not valid. Give a number, 1 or more.")
    if threads > 1 and not are_pinned:
        raise UsageError("threads: the jobs of several would mix, as PYSPARK_PIN_THREAD is false. Unset it, or give 1.")
    return threads


@contextmanager
def spark_threads(spark: SparkSession, threads: int) -> Generator[Callable[[Callable[[], Result]], Future[Result]]]:
    """Yield a function that starts work in one of several threads, or does it in this one if there is only one.

    After the block all work that was started is done; if the block raises, work that waits for a thread is left out.
    """
    if threads == 1:
        yield _do_now
        return
    pool = ThreadPoolExecutor(threads, "deltafold")

    def start(work: Callable[[], Result]) -> Future[Result]:
        # made for each work, as it copies the local properties of this thread
        inherit = cast(Any, util).inheritable_thread_target(spark)
        return pool.submit(inherit(lambda: _do_in_session(spark, work)))

    try:
        yield start
    finally:
        pool.shutdown(cancel_futures=True)


def _do_now(work: Callable[[], Result]) -> Future[Result]:
    done = Future[Result]()
    done.set_result(work())
    return done


def _do_in_session(spark: SparkSession, work: Callable[[], Result]) -> Result:
    """Do work in a thread of its own, and where Spark schedules fairly, in a pool of its own, unless one was set."""
    catalyst.activate(spark)
    context = spark.sparkContext
    if context.getConf().get(SCHEDULER, "FIFO") == "FAIR" and context.getLocalProperty(POOL) is None:
        context.setLocalProperty(POOL, threading.current_thread().name)
    return work()
