"""When a host's file goes, and who may read and write it."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltafold.algebra.errors import DeltafoldWarning
from deltafold.cli import rendering
from deltafold.spark import session
from deltafold.spark.cache import SetupError
from deltafold.spark.host import keeper
from deltafold.spark.host.address import COMMAND, Host, NoHostError, read_host, withdraw, write_host
from deltafold.spark.host.wanted import WantedSpark
from tests.spark.host.listener import Listener
from tests.spark.machine import PROJECT, run

HOST = Host(1, "then", 2, "s3cret")


def spoil(file: Path, how: str) -> None:
    match how:
        case "open file":
            file.chmod(0o640)
        case "open folder":
            file.parent.chmod(0o750)
        case "link":
            file.rename(file.with_name("real.json"))
            file.symlink_to("real.json")
        case "linked folder":
            file.parent.rename(file.parent.with_name("real"))
            file.parent.symlink_to("real")
        case "pipe":
            file.unlink()
            os.mkfifo(file, 0o600)
        case _:
            file.write_text(how)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("open file", "others may read or write it"), ("open folder", "others may enter it"),
        ("link", "cannot be opened"), ("linked folder", "cannot be opened"),
    ],
)  # fmt: skip
def test_a_file_that_others_could_have_written_is_refused(tmp_path: Path, how: str, said: str) -> None:
    """Protects from attaching to the Spark of somebody else, who then sees every row and answers as he likes."""
    file = tmp_path / "private" / "host.json"
    write_host(file, HOST)
    assert read_host(file) == HOST
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]
    spoil(file, how)
    with pytest.raises(SetupError, match=rf"^Spark host .*{said}.*\. .* start .*host with python -m") as caught:
        read_host(file)
    assert not isinstance(caught.value, NoHostError)


@pytest.mark.parametrize("how", ["pipe", "", "{}", "[1]", '{"port": 9, "secret": "s", "process": 1}', '{"port": '])
def test_a_damaged_file_means_a_cold_start(tmp_path: Path, how: str) -> None:
    """Protects from no Spark at all after a full disk or an upgrade: the file is the user's own, and names no host."""
    file = tmp_path / "private" / "host.json"
    write_host(file, HOST)
    spoil(file, how)
    with pytest.raises(NoHostError, match="it is not a host's file"):
        read_host(file)


def test_another_users_file_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_host(file, HOST)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(SetupError, match="belongs to another user"):
        read_host(file)


def test_no_secret_is_written_where_others_may_enter(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(SetupError, match="others may enter it"):
        write_host(tmp_path / "host.json", HOST)
    assert not list(tmp_path.iterdir())
    assert "s3cret" not in repr(HOST)


def test_a_host_removes_its_own_file_alone(file: Path) -> None:
    """Protects from taking the file of the host that came after it."""
    write_host(file, HOST)
    withdraw(file, replace(HOST, port=3))
    assert file.exists()
    withdraw(file, HOST)
    withdraw(file, HOST)
    assert not file.exists()


def test_without_a_host_a_process_starts_cold_and_says_so_in_one_line(
    file: Path, stranger: tuple[int, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects from an error, or from waiting for ever, where a host ended uncleanly."""
    spark: Any = object()
    monkeypatch.setattr(session, "_launch", lambda settings: spark)
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    monkeypatch.setenv("DELTAFOLD_SPARK_HOST", str(file))
    with pytest.warns(DeltafoldWarning, match="there is no such file.*Starting a new Spark instead"):
        assert session.start() is spark
    write_host(file, Host(os.getpid(), "then", stranger[0], "s3cret"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert session.start() is spark
    rendering.show_warnings()
    line = warnings.formatwarning(caught[0].message, caught[0].category, "a.py", 1)
    assert line.startswith(f"Spark host {file}: its process") and line.endswith("Starting a new Spark instead.\n")
    assert warnings.formatwarning("of others", UserWarning, "a.py", 1) == "a.py:1: UserWarning: of others\n"
    assert stranger[1] == []


KEEP = """
import subprocess, sys
from pathlib import Path
from types import SimpleNamespace
from deltafold.spark import session
from deltafold.spark.host import keeper
from deltafold.spark.host.address import Host, write_host
from deltafold.spark.host.guests import Guests
from deltafold.spark.host.wanted import WantedSpark
def publish(spark, file, wanted):
    write_host(file, HOST)
    print(java.pid, flush=True)
    return HOST
HOST = Host(1, "then", 2, "s", idle_seconds=float(sys.argv[2]))
java = subprocess.Popen(["sleep", "60"])
session.start = lambda name, **_: SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=java)))
keeper.publish, keeper.WATCH_SECONDS = publish, 0.05
file = Path(sys.argv[1])
code = keeper.keep(file, WantedSpark())
java.kill()
sys.exit(code)
"""


@pytest.mark.parametrize("ends", ["told", "hung up", "its Java", "idle"])
def test_a_host_that_ends_removes_its_file(file: Path, ends: str) -> None:
    """Protects from a file that names a Spark which is no more, for as long as its Python lives."""
    command = [sys.executable, "-c", KEEP, str(file), "0.3" if ends == "idle" else "0"]
    host = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=PROJECT)
    assert host.stdout is not None
    java = int(host.stdout.readline())
    assert file.exists()
    if ends == "its Java":
        os.kill(java, signal.SIGKILL)
    elif ends != "idle":
        host.send_signal(signal.SIGTERM if ends == "told" else signal.SIGHUP)
    _, said = host.communicate(timeout=30)
    assert not file.exists()
    expected = (1, f"Spark host {file}: its Java ended. Start it again with {COMMAND} {file}\n")
    assert (host.returncode, said) == (expected if ends == "its Java" else (0, ""))


def test_a_second_host_does_not_hide_the_first(
    listener: Callable[[str], Listener], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects from a Spark that nobody finds, and that goes on."""
    monkeypatch.setenv("DELTAFOLD_SPARK_HOST", "")
    write_host(file, listener("answers").host)
    with pytest.raises(SetupError, match=r"is running with it already\. Use it, or name another file"):
        keeper.keep(file, WantedSpark())


def test_a_host_says_in_one_sentence_what_is_wrong_with_its_file(tmp_path: Path) -> None:
    program = "import runpy, sys; sys.argv[1:] = ['s3a://b/host.json']\n"
    program += "runpy.run_module('deltafold.spark.host', run_name='__main__')"
    done = run(program, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Spark host s3a://b/host.json: s3a: is not a folder of this machine.")
    assert json.dumps(done.stderr).count("\\n") == 1
