"""Attach to a warm Spark as a guest: in about a second, instead of starting a cold Spark in several (D-060).

Every wait for an answer has a limit.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any, cast

from py4j.protocol import AUTH_COMMAND_NAME, OUTPUT_VOID_COMMAND, Py4JError  # pyright: ignore[reportMissingTypeStubs]
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.sql import SparkSession

from deltafold.spark import catalyst
from deltafold.spark.host.address import Host, NoHostError, read_host, refuse_host
from deltafold.spark.host.guests import FullError, Guests

ANSWER_SECONDS = 10.0  # to connect, and to authenticate
POOL = "spark.scheduler.pool"

_attached: list[Host] = []


def attach(file: Path) -> SparkSession:
    """Open a new session of the Spark whose host wrote `file`, with its own settings and temporary views.

    Raises NoHostError if that host has ended, does not answer or is full, SetupError for a file that others could have
    written.
    """
    host = read_host(file)
    guests = Guests(file)
    try:
        guests.enter(host.most_guests)
    except FullError:
        raise NoHostError(
            f"Spark host {file}: it has {host.most_guests} guests, as many as its heap takes. Wait for one to end, or "
            "start a host with more memory"
        ) from None
    try:
        greet(file, host)
        session = _connect(file, host)
    except BaseException:
        guests.leave()
        raise
    cast(Any, session).stop = lambda: None  # the host's Spark continues when a guest ends
    session.sparkContext.setLocalProperty(POOL, f"guest-{os.getpid()}")
    _attached.append(host)
    return session


def find_host_of_guest() -> Host | None:
    """Return the host that this process attached to last."""
    return _attached[-1] if _attached else None


def greet(file: Path, host: Host) -> None:
    """Authenticate with the host's Java; raises NoHostError if it has ended, does not answer or refuses.

    The owner of the port is checked again after connecting, since only then no other process can take it.
    """
    if fault := host.fault:
        raise refuse_host(file, fault)
    try:
        with socket.create_connection(("127.0.0.1", host.port), timeout=ANSWER_SECONDS) as link:
            if fault := host.fault:
                raise refuse_host(file, fault)
            link.sendall(f"{AUTH_COMMAND_NAME}\n{host.secret}\n".encode())
            answer = link.recv(len(OUTPUT_VOID_COMMAND)).decode(errors="replace")
    except OSError as error:
        raise refuse_host(file, f"it does not answer ({error})") from None
    if not OUTPUT_VOID_COMMAND.startswith(answer) or not answer:
        raise refuse_host(file, "it rejects the secret")


def _connect(file: Path, host: Host) -> SparkSession:
    """Return a new session of the host's Spark."""
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(host.port), "PYSPARK_GATEWAY_SECRET": host.secret}
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        gateway = cast(Any, java_gateway).launch_gateway()
        _check_connections(gateway, file, host)
        java = gateway.jvm.org.apache.spark
        context = java.api.java.JavaSparkContext.fromSparkContext(java.SparkContext.getOrCreate())
    except (OSError, Py4JError) as error:
        raise refuse_host(file, f"it ended during the connection ({type(error).__name__})") from error
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    catalyst.remember_classes(gateway.jvm)
    catalyst.convert_plain_values_at_once()
    catalyst.release_objects_in_batches(gateway)
    attached = SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()))
    return SparkSession(attached, java.sql.SparkSession.getDefaultSession().get().newSession())


def _check_connections(gateway: Any, file: Path, host: Host) -> None:
    """Check before every later connection of a guest (one per thread) that it reaches this host."""
    client = gateway._gateway_client
    name = "_create_new_connection" if hasattr(client, "_create_new_connection") else "_create_connection"
    connect = getattr(client, name)

    def connect_alive() -> Any:
        if fault := host.fault:
            raise refuse_host(file, fault)
        return connect()

    setattr(client, name, connect_alive)
