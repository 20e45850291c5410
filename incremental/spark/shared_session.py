"""Share one warm Spark between processes: keep it running, and attach to it.

`python -m incremental.spark.shared_session FILE` starts a Spark and keeps it until it is interrupted. FILE, in a folder
that only its owner may enter, contains its address on the loopback: port, secret, and the process that listens there. A
process with DELTAFOLD_SPARK_HOST=FILE attaches in about a second, instead of starting a cold Spark in several. Before
it sends anything, the secret included, it checks that the process is alive, is the one that wrote the file, and owns
the port: after a crash of the host, another user's process may own it. Every wait for an answer has a limit.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, cast

from py4j.protocol import AUTH_COMMAND_NAME, OUTPUT_VOID_COMMAND, Py4JError  # pyright: ignore[reportMissingTypeStubs]
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.sql import SparkSession

from incremental.algebra.local_path import local_path
from incremental.spark.cache import SetupError
from incremental.spark.host_process import listens, start_of

COMMAND = "python -m incremental.spark.shared_session"
ANSWER_SECONDS = 10.0  # to connect, and to authenticate
WATCH_SECONDS = 1.0  # between two checks of the host's Java
LARGEST_FILE = 1 << 16  # bytes
OTHERS = 0o077


class NoHostError(SetupError):
    """The host of a file has ended or does not answer; the caller can start its own Spark instead."""


@dataclass(frozen=True)
class Host:
    """The address of a warm Spark: process id and start of its Java (`start_of`), loopback port, secret."""

    process: int
    started: str
    port: int
    secret: str = field(repr=False)

    @property
    def fault(self) -> str:
        """The reason why nothing may be sent to its port; empty if there is none."""
        if start_of(self.process) != self.started:
            return f"its process {self.process} is gone"
        return "" if listens(self.process, self.port) else f"its process {self.process} does not listen on its port"


def attach(file: Path) -> SparkSession:
    """Open a new session of the Spark whose host wrote `file`, with its own settings and temporary views.

    Raises NoHostError if that host has ended or does not answer, SetupError for a file that others could have written.
    """
    host = read_host(file)
    greet(file, host)
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(host.port), "PYSPARK_GATEWAY_SECRET": host.secret}
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        gateway = cast(Any, java_gateway).launch_gateway()
        _check_connections(gateway, file, host)
        java = gateway.jvm.org.apache.spark
        context = java.api.java.JavaSparkContext.fromSparkContext(java.SparkContext.getOrCreate())
    except (OSError, Py4JError) as error:
        raise _refuse_host(file, f"it ended during the connection ({type(error).__name__})") from error
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    attached = SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()))
    session = SparkSession(attached, java.sql.SparkSession.getDefaultSession().get().newSession())
    cast(Any, session).stop = lambda: None  # the host's Spark continues when a guest ends
    return session


def read_host(file: Path) -> Host:
    """Read a host's file; raises NoHostError if missing or damaged, SetupError if others could have written it."""
    try:
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _check_private(file.parent, os.fstat(folder))
            # does not follow a link, and does not wait for a pipe
            opened = os.open(file.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        finally:
            os.close(folder)
        with os.fdopen(opened, "rb") as content:
            _check_private(file, os.fstat(content.fileno()))
            known = json.loads(content.read(LARGEST_FILE))
        return Host(int(known["process"]), str(known["started"]), int(known["port"]), str(known["secret"]))
    except FileNotFoundError:
        raise _refuse_host(file, "there is no such file") from None
    except OSError as error:
        raise SetupError(
            f"Spark host {file}: it cannot be opened ({error.strerror}). Remove it, link or file, and start a host "
            f"with {COMMAND} {file}."
        ) from None
    except (ValueError, KeyError, TypeError):  # truncated by a full disk, or of another release
        raise _refuse_host(file, "it is not a host's file") from None


def greet(file: Path, host: Host) -> None:
    """Authenticate with the host's Java; raises NoHostError if it has ended, does not answer or refuses.

    The owner of the port is checked again after connecting, since only then no other process can take it.
    """
    if fault := host.fault:
        raise _refuse_host(file, fault)
    try:
        with socket.create_connection(("127.0.0.1", host.port), timeout=ANSWER_SECONDS) as link:
            if fault := host.fault:
                raise _refuse_host(file, fault)
            link.sendall(f"{AUTH_COMMAND_NAME}\n{host.secret}\n".encode())
            answer = link.recv(len(OUTPUT_VOID_COMMAND)).decode(errors="replace")
    except OSError as error:
        raise _refuse_host(file, f"it does not answer ({error})") from None
    if not OUTPUT_VOID_COMMAND.startswith(answer) or not answer:
        raise _refuse_host(file, "it rejects the secret")


def publish(spark: SparkSession, file: Path) -> Host:
    """Write the address of this process's Spark to `file`, readable by its owner only; creates a missing folder."""
    gateway: Any = cast(Any, spark.sparkContext)._gateway
    reached = gateway.gateway_parameters
    process = int(gateway.jvm.java.lang.ProcessHandle.current().pid())
    host = Host(process, start_of(process) or "", int(reached.port), str(reached.auth_token))
    if fault := host.fault:
        raise SetupError(
            f"Spark host {file}: {fault}, as far as this system shows. Mount /proc, or install ps and lsof."
        )
    write_host(file, host)
    return host


def write_host(file: Path, host: Host) -> None:
    """Write a host's file atomically; raises SetupError if others may enter its folder."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(file.parent, file.parent.lstat())
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        json.dump(asdict(host), out)
    fresh.replace(file)


def withdraw(file: Path, host: Host) -> None:
    """Remove a host's file, unless another host has written it since."""
    try:
        if read_host(file) == host:
            file.unlink(missing_ok=True)
    except SetupError:
        pass  # removed, or written by another host


def keep(file: Path) -> int:
    """Start a Spark, publish it in `file`, and wait until it is interrupted or its Java ends; returns an exit code."""
    from incremental.spark.session import start

    os.environ.pop("DELTAFOLD_SPARK_HOST", None)  # this is the host
    _check_free(file)
    spark = start("deltafold host")
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    java: subprocess.Popen[bytes] = cast(Any, spark.sparkContext)._gateway.proc
    host = publish(spark, file)
    try:
        if watch(lambda: java.poll() is None, ended):
            return 0
    finally:
        withdraw(file, host)
    print(f"Spark host {file}: its Java ended. Start it again with {COMMAND} {file}", file=sys.stderr, flush=True)
    return 1


def watch(lives: Callable[[], bool], ended: threading.Event) -> bool:
    """Wait until `ended` is set (returns True) or `lives` returns False (returns False)."""
    while lives():
        if ended.wait(WATCH_SECONDS):
            return True
    return False


def _check_private(path: Path, found: os.stat_result) -> None:
    """Raise SetupError for a file or folder that another user owns or may access, and for a symbolic link."""
    folder = stat.S_ISDIR(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        reason = "it is a link"
    elif found.st_uid != os.geteuid():
        reason = "it belongs to another user"
    elif found.st_mode & OTHERS:
        reason = f"others may {'enter it' if folder else 'read or write it'}"
    else:
        return
    remedy = "Name a file in a folder of your own with mode 700" if folder else "Remove it"
    raise SetupError(f"Spark host {path}: {reason}. {remedy}, and start the host with {COMMAND} FILE.")


def _check_free(file: Path) -> None:
    """Raise SetupError if a host runs with this file: guests would no longer find it."""
    try:
        host = read_host(file)
    except NoHostError:
        return
    if not host.fault:
        raise SetupError(
            f"Spark host {file}: process {host.process} is running with it already. Use it, or name another file."
        )


def _check_connections(gateway: Any, file: Path, host: Host) -> None:
    """Check before every later connection of a guest (one per thread) that it reaches this host."""
    client = gateway._gateway_client
    name = "_create_new_connection" if hasattr(client, "_create_new_connection") else "_create_connection"
    connect = getattr(client, name)

    def connect_alive() -> Any:
        if fault := host.fault:
            raise _refuse_host(file, fault)
        return connect()

    setattr(client, name, connect_alive)


def _refuse_host(file: Path, reason: str) -> NoHostError:
    return NoHostError(f"Spark host {file}: {reason}. Start it with {COMMAND} {file}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {COMMAND} FILE")
    try:
        sys.exit(keep(local_path("Spark host", sys.argv[1], SetupError)))
    except SetupError as error:
        sys.exit(str(error))
