"""What others can see of a running Spark: its ports and its command line."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from tests.conftest import SECRET

LISTENING = "0A"


@pytest.fixture
def java(spark: SparkSession) -> Path:
    """The folder in which Linux tells of Spark's process."""
    spark.range(9).repartition(3).count()
    folder = Path("/proc", str(cast(Any, spark.sparkContext)._gateway.proc.pid))
    if not (folder / "fd").is_dir():
        pytest.skip("only Linux tells of processes in /proc")
    return folder


def test_spark_listens_on_the_loopback_only(java: Path) -> None:
    """Protects from ports that another machine can reach."""
    sockets = {link.readlink().name for link in (java / "fd").iterdir() if link.is_symlink()}
    addresses = set[str]()
    for table in ("tcp", "tcp6"):
        for line in (java / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and f"socket:[{fields[9]}]" in sockets:
                addresses.add(address(fields[1].partition(":")[0]))
    assert addresses
    assert addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def address(written: str) -> str:
    """An address as the kernel writes it: hexadecimal words in the machine's byte order."""
    words = [int(written[i : i + 8], 16).to_bytes(4, "little") for i in range(0, len(written), 8)]
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, b"".join(words))


def test_secrets_are_not_on_the_command_line(spark: SparkSession, java: Path) -> None:
    """Protects from keys that everybody on this machine can read; Spark has them all the same."""
    (name, value), *_ = SECRET.items()
    assert value.encode() not in (java / "cmdline").read_bytes()
    hadoop = cast(Any, spark.sparkContext)._jsc.hadoopConfiguration()
    assert hadoop.get(name.removeprefix("spark.hadoop.")) == value
