"""Provide the jars that Spark lacks, downloaded once into the cache: those of Delta Lake, of Kafka and of Avro.

delta-spark asks Ivy for 33 jars at every start, most of which Spark includes itself. Here Spark's own resolution runs
once, in a separate process, so that the user's mirrors, proxies and repositories are honoured, and leaves out what
Spark includes; sessions then start with plain paths.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import filelock

from deltafold.algebra.sqltext import literal
from deltafold.spark.cache import SetupError, cache_folder, scratch_folder
from deltafold.spark.jvm.java import Java, launch_environment, provide_java
from deltafold.spark.jvm.trust_store import trust_options

if TYPE_CHECKING:  # `doctor` runs without Spark
    from pyspark.sql import SparkSession

# Dependencies of Delta's jars that Spark includes, in its own versions.
CARRIED_BY_SPARK = "com.*:*,org.*:*,commons-*:*,javax.*:*,jakarta.*:*,io.airlift:*"
# The same for the connector of Kafka, whose own jars are of org.apache too.
CARRIED_BESIDE_KAFKA = (
    "org.apache.hadoop:*,org.lz4:*,at.yawk.lz4:*,org.xerial.snappy:*,org.slf4j:*,com.*:*,org.scala-lang:*,"
    "org.scala-lang.modules:*"
)
CARRIED_BESIDE_AVRO = "org.tukaani:*,org.slf4j:*,org.scala-lang:*,org.scala-lang.modules:*,com.*:*"
COMPLAINTS = ("Server access error", "UNRESOLVED", "unresolved dependency", "UnknownHost", "not found", "Exception")


@dataclass(frozen=True)
class JarPackage:
    """A package of jars: its coordinate, those of its dependencies that Spark includes, and its name in messages.

    beside: the coordinates of other packages that it needs, instead of dependencies that are left out.
    """

    coordinate: str
    carried: str
    name: str
    beside: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of its jars, which may not exist yet."""
        _, artifact, number = self.coordinate.split(":")
        return cache_folder("jars") / f"{artifact}-{number}"

    @property
    def first(self) -> str:
        """How the name of its own jar begins, as Ivy stores it."""
        group, artifact, _ = self.coordinate.split(":")
        return f"{group}_{artifact}"


def delta_package() -> JarPackage:
    """Return Delta Lake for the installed delta-spark, as delta-spark itself names it, for the one Scala of Spark 4."""
    number, spark = version("delta-spark"), ".".join(version("pyspark").split(".")[:2])
    return JarPackage(f"io.delta:delta-spark_{spark}_2.13:{number}", CARRIED_BY_SPARK, "Delta Lake")


def kafka_package() -> JarPackage:
    """Return Spark's connector of Kafka for the installed pyspark."""
    coordinate = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')}"
    return JarPackage(coordinate, CARRIED_BESIDE_KAFKA, "the Kafka connector")


def avro_package() -> JarPackage:
    """Return Spark's reader of Avro files for the installed pyspark."""
    coordinate = f"org.apache.spark:spark-avro_2.13:{version('pyspark')}"
    return JarPackage(coordinate, CARRIED_BESIDE_AVRO, "the reader of Avro files")


def delta_jars(java: Java | None = None) -> tuple[Path, ...]:
    """Return the paths of the jars that add Delta Lake to Spark; see `provide_jars`."""
    return provide_jars(delta_package(), java)


def provide_jars(package: JarPackage, java: Java | None = None) -> tuple[Path, ...]:
    """Return the paths of a package's jars, downloading them first if the cache has none.

    java: runs the download; found automatically by default. Safe for concurrent processes and interruptions: the
    folder of jars appears complete or not at all. Raises SetupError if they are missing and cannot be downloaded.
    """
    folder = package.folder
    if not folder.is_dir():
        with filelock.FileLock(cache_folder("jars") / "fetch.lock"):
            if not folder.is_dir():  # another process may have fetched them meanwhile
                _fetch(java or provide_java(), package)
    return tuple(sorted(folder.glob("*.jar")))


def add_jars(spark: SparkSession, package: JarPackage) -> None:
    """Add a package's jars, which the first use downloads, to this thread and the queries it starts."""
    for jar in provide_jars(package):
        cast(Any, spark).sql(f"ADD JAR {literal(str(jar))}")


def jars_folder() -> Path:
    """Return the folder of the jars for the installed delta-spark, which may not exist yet."""
    return delta_package().folder


def _fetch(java: Java, package: JarPackage) -> None:
    with tempfile.TemporaryDirectory(dir=scratch_folder(), prefix="fetch-") as made:
        place = Path(made)
        output = _resolve(java, place, package)
        jars = sorted((place / "ivy" / "jars").glob("*.jar"))
        if not any(jar.name.startswith(package.first) for jar in jars):
            raise SetupError(
                f"the jars of {package.name} ({package.coordinate}) could not be downloaded: {_reason(output)}. "
                f"Connect to the network or configure Spark's Ivy settings, or copy the jars into {package.folder}."
            )
        whole = place / "jars"
        whole.mkdir()
        for jar in jars:
            shutil.move(jar, whole / jar.name)
        whole.replace(package.folder)


def delta_coordinate() -> str:
    """Return the name under which Ivy and Maven know Delta Lake for the installed version."""
    return delta_package().coordinate


def _resolve(java: Java, place: Path, package: JarPackage) -> str:
    """Resolve the jars into `place` by spark-submit of an empty program; returns its output."""
    nothing = place / "nothing.py"
    nothing.write_text("")
    environment = os.environ | launch_environment(java)
    command = [str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", "local[1]"]
    command += ["--packages", ",".join([package.coordinate, *package.beside])]
    command += ["--exclude-packages", package.carried] if package.carried else []
    command += ["--conf", f"spark.jars.ivy={place / 'ivy'}"]
    options = trust_options(java, place)
    if options:
        command += ["--driver-java-options", options]
    done = subprocess.run(
        [*command, str(nothing)], env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    return done.stdout + done.stderr


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines()]
    for complaint in COMPLAINTS:
        for line in lines:
            if complaint in line:
                return line.rstrip(".")
    return lines[-1] if lines else "spark-submit printed nothing"
