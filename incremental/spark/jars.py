"""Provide Delta Lake's jars for the installed version of delta-spark, downloaded once into the cache.

delta-spark asks Ivy for 33 jars at every start, most of which Spark includes itself. Here Spark's own resolution runs
once, in a separate process, so that the user's mirrors, proxies and repositories are honoured, and leaves out what
Spark includes; sessions then start with plain paths.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

import filelock

from incremental.spark.cache import SetupError, cache_folder, scratch_folder
from incremental.spark.java import Java, launch_environment, provide_java
from incremental.spark.trust_store import trust_options

# Dependencies of Delta's jars that Spark includes, in its own versions.
CARRIED_BY_SPARK = "com.*:*,org.*:*,commons-*:*,javax.*:*,jakarta.*:*,io.airlift:*"
COMPLAINTS = ("Server access error", "UNRESOLVED", "unresolved dependency", "UnknownHost", "not found", "Exception")


def delta_jars(java: Java | None = None) -> tuple[Path, ...]:
    """Return the paths of the jars that add Delta Lake to Spark, downloading them first if the cache has none.

    java: runs the download; found automatically by default. Safe for concurrent processes and interruptions: the
    folder of jars appears complete or not at all. Raises SetupError if they are missing and cannot be downloaded.
    """
    folder = jars_folder()
    if not folder.is_dir():
        with filelock.FileLock(cache_folder("jars") / "fetch.lock"):
            if not folder.is_dir():  # another process may have fetched them meanwhile
                _fetch(java or provide_java(), folder)
    return tuple(sorted(folder.glob("*.jar")))


def jars_folder() -> Path:
    """Return the folder of the jars for the installed delta-spark, which may not exist yet."""
    return cache_folder("jars") / f"{_artifact()}-{version('delta-spark')}"


def _artifact() -> str:
    if version("delta-spark").startswith("4.0."):
        return "delta-spark_2.13"  # as delta-spark itself names it, for the one Scala of Spark 4
    return f"delta-spark_{'.'.join(version('pyspark').split('.')[:2])}_2.13"


def _fetch(java: Java, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=scratch_folder(), prefix="fetch-") as made:
        place = Path(made)
        said = _resolve(java, place)
        jars = sorted((place / "ivy" / "jars").glob("*.jar"))
        if not any(jar.name.startswith(f"io.delta_{_artifact()}") for jar in jars):
            raise SetupError(
                f"Delta Lake's jars ({delta_coordinate()}) could not be downloaded: {_reason(said)}. "
                f"Connect to the network or configure Spark's Ivy settings, or copy the jars into {folder}."
            )
        whole = place / "jars"
        whole.mkdir()
        for jar in jars:
            shutil.move(jar, whole / jar.name)
        whole.replace(folder)


def delta_coordinate() -> str:
    """Return the name under which Ivy and Maven know Delta Lake for the installed version."""
    return f"io.delta:{_artifact()}:{version('delta-spark')}"


def _resolve(java: Java, place: Path) -> str:
    """Resolve the jars into `place` by spark-submit of an empty program; returns its output."""
    nothing = place / "nothing.py"
    nothing.write_text("")
    environment = os.environ | launch_environment(java)
    command = [str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", "local[1]"]
    command += ["--packages", delta_coordinate(), "--exclude-packages", CARRIED_BY_SPARK]
    command += ["--conf", f"spark.jars.ivy={place / 'ivy'}"]
    options = trust_options(java, place)
    if options:
        command += ["--driver-java-options", options]
    done = subprocess.run(
        [*command, str(nothing)], env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    return done.stdout + done.stderr


def _reason(said: str) -> str:
    lines = [line.strip() for line in said.splitlines()]
    for complaint in COMPLAINTS:
        for line in lines:
            if complaint in line:
                return line.rstrip(".")
    return lines[-1] if lines else "spark-submit printed nothing"
