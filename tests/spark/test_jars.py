"""Delta's jars: fetched once, whole or not at all, by one of many processes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest

from deltafold.spark.cache import SetupError
from deltafold.spark.jvm import jars
from deltafold.spark.jvm.java import Java
from tests.night import night
from tests.spark.machine import run, without_java

FETCH = "from deltafold.spark.jvm.jars import delta_jars; print(*(jar.name for jar in delta_jars()))"
DELTA, SPARK = version("delta-spark"), ".".join(version("pyspark").split(".")[:2])
NEEDED = (
    f"io.delta_delta-spark_{SPARK}_2.13-{DELTA}.jar",
    f"io.delta_delta-storage-{DELTA}.jar",
    "io.unitycatalog_unitycatalog-client",
)


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("DELTAFOLD_CACHE", str(tmp_path))
    return tmp_path


@night
@pytest.mark.own_spark
def test_two_processes_at_once_fetch_once_with_the_bundled_java(tmp_path: Path) -> None:
    cache, home = tmp_path / "cache", tmp_path / "home"
    home.mkdir()
    variables = {"DELTAFOLD_CACHE": str(cache), "HOME": str(home), "PATH": without_java(tmp_path / "bin")}
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: run(FETCH, cwd=tmp_path, **variables), range(2))
    assert (first.stderr, first.returncode) == ("", 0)
    assert first.stdout == second.stdout
    names = first.stdout.split()
    assert all(any(name.startswith(needed) for name in names) for needed in NEEDED)
    assert all(name.startswith(("io.delta_", "io.unitycatalog_")) for name in names), "Spark carries the rest"
    assert not list(home.iterdir()), "Ivy keeps nothing outside the project's cache"
    assert not list(cache.glob("tmp/*/fetch-*")), "nor inside"


def resolves(place: Path, *names: str) -> str:
    (place / "ivy" / "jars").mkdir(parents=True)
    for name in names:
        (place / "ivy" / "jars" / name).write_text("a jar")
    return "resolved"


def test_present_jars_are_not_fetched(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetches: list[Path] = []

    def resolve(_java: Java, place: Path, _package: jars.JarPackage) -> str:
        fetches.append(place)
        return resolves(place, NEEDED[0])

    monkeypatch.setattr(jars, "_resolve", resolve)
    java = Java(empty_cache, 17, "JAVA_HOME")
    assert jars.delta_jars(java) == jars.delta_jars(java)
    assert [jar.name for jar in jars.delta_jars(java)] == [NEEDED[0]]
    assert len(fetches) == 1


def test_interrupted_fetch_leaves_nothing(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_java: Java, place: Path, _package: jars.JarPackage) -> str:
        resolves(place, NEEDED[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(jars, "_resolve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        jars.delta_jars(Java(empty_cache, 17, "JAVA_HOME"))
    assert not jars.jars_folder().exists()


def test_failed_fetch_says_why_and_what_to_do(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = ":: resolving\n\tServer access error at a place (no route)\n\tUNRESOLVED DEPENDENCIES\n"
    monkeypatch.setattr(jars, "_resolve", lambda _java, _place, _package: said)
    with pytest.raises(SetupError) as caught:
        jars.delta_jars(Java(empty_cache, 17, "JAVA_HOME"))
    message = str(caught.value)
    assert "could not be downloaded: Server access error at a place (no route)." in message
    assert f"copy the jars into {jars.jars_folder()}" in message
