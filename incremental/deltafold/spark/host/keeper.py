"""Keep a Spark for guests: start it, publish its address, and end when told, when idle, or when its Java ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, cast

from pyspark.sql import SparkSession

from deltafold.spark.cache import SetupError
from deltafold.spark.host.address import COMMAND, Host, NoHostError, check_folder, read_host, withdraw, write_host
from deltafold.spark.host.guests import Guests
from deltafold.spark.host.process import start_of
from deltafold.spark.host.wanted import WantedSpark

WATCH_SECONDS = 1.0  # between two checks of the host's Java
SHARED = {"spark.scheduler.mode": "FAIR"}  # so that a small refresh does not wait for a large one


def keep(file: Path, wanted: WantedSpark) -> int:
    """Start a Spark, publish it in `file`, and wait until it is interrupted, idle, or dead; returns an exit code."""
    from deltafold.spark.session import start

    os.environ.pop("DELTAFOLD_SPARK_HOST", None)  # this is the host
    _check_free(file)
    settings = {**SHARED, **wanted.settings}
    spark = start("deltafold host", master=wanted.master, memory=wanted.memory, settings=settings)
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    java: subprocess.Popen[bytes] = cast(Any, spark.sparkContext)._gateway.proc
    host = publish(spark, file, wanted)
    idle = Idle(Guests(file), host.idle_seconds)
    try:
        if _watch(lambda: java.poll() is None, lambda: ended.wait(WATCH_SECONDS) or idle.is_over()):
            return 0
    finally:
        withdraw(file, host)
    print(f"Spark host {file}: its Java ended. Start it again with {COMMAND} {file}", file=sys.stderr, flush=True)
    return 1


class Idle:
    """The time since a host had its last guest."""

    def __init__(self, guests: Guests, seconds: float) -> None:
        self._guests = guests
        self._seconds = seconds
        self._since = time.monotonic()

    def is_over(self) -> bool:
        """Whether nobody has used the host for its idle time; never, if that is 0."""
        if not self._seconds:
            return False
        if self._guests.count():
            self._since = time.monotonic()
        return time.monotonic() - self._since >= self._seconds


def _watch(lives: Callable[[], bool], is_over: Callable[[], bool]) -> bool:
    """Wait until `is_over` (returns True) or `lives` returns False (returns False)."""
    while lives():
        if is_over():
            return True
    return False


def publish(spark: SparkSession, file: Path, wanted: WantedSpark | None = None) -> Host:
    """Write the address of this process's Spark to `file`, readable by its owner only; creates a missing folder."""
    gateway: Any = cast(Any, spark.sparkContext)._gateway
    parameters = gateway.gateway_parameters
    process = int(gateway.jvm.java.lang.ProcessHandle.current().pid())
    host = Host(
        process=process,
        started=start_of(process) or "",
        port=int(parameters.port),
        secret=str(parameters.auth_token),
        keeper=os.getpid(),
    )
    if wanted:
        host = replace(host, most_guests=wanted.most_guests, spark=wanted.shown, idle_seconds=wanted.idle_seconds)
    if fault := host.fault:
        raise SetupError(
            f"Spark host {file}: {fault}, as far as this system shows. Mount /proc, or install ps and lsof."
        )
    write_host(file, host)
    return host


def _check_free(file: Path) -> None:
    """Raise SetupError if a host runs with this file: guests would no longer find it."""
    check_folder(file)
    try:
        host = read_host(file)
    except NoHostError:
        return
    if not host.fault:
        raise SetupError(
            f"Spark host {file}: process {host.process} is running with it already. Use it, or name another file."
        )
