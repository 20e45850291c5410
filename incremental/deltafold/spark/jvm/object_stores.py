"""Give Spark what it lacks for tables in an object store: the store's jars, and a log store that admits one writer.

Spark has the file systems of HDFS. For S3 it lacks Hadoop's `s3a:` and Amazon's client, and Delta's own log store for
`s3a:` lets two processes commit the same version. ConditionalLogStore.java is compiled once into the cache, by the Java
compiler that Spark itself uses for its queries (Janino), so no JDK is needed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from deltafold.algebra.errors import UsageError
from deltafold.spark.cache import SetupError, cache_folder, scratch_folder
from deltafold.spark.jvm.jars import JarPackage, provide_jars
from deltafold.spark.jvm.java import Java, launch_environment

STORES = "spark.deltafold.stores"
S3A, S3_SCHEMES = "s3a", ("s3", "s3a", "s3n")
# Delta's own log stores that look for a version and then write it, so that two processes can write the same one
UNSAFE_ON_S3 = {f"{name}LogStore" for name in ("S3SingleDriver", "HDFS", "Azure", "GCS", "Local")}
S3A_LOG_STORE = "spark.delta.logStore.s3a.impl"
ANY_LOG_STORE = "spark.delta.logStore.class"  # Delta refuses a session that has both
# give up after 15 seconds instead of 150 if a store does not answer; a busy store has retries of its own
PATIENCE = {"spark.hadoop.fs.s3a.attempts.maximum": "3", "spark.hadoop.fs.s3a.retry.limit": "4"}
LOG_STORE_SOURCE = Path(__file__).with_name("ConditionalLogStore.java")
CLASS = "deltafold.ConditionalLogStore"
# the default stream caches an object, and returns the old content after the object was replaced
UNCACHED = {"spark.hadoop.fs.s3a.input.stream.type": "classic"}
S3A_SETTINGS = {S3A_LOG_STORE: CLASS, **PATIENCE, **UNCACHED}
COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"  # takes the options of javac
# the release of Amazon's client that each Hadoop of a Spark was built with; older ones have no conditional writes
CLIENTS = {"3.4.2": "2.29.52", "3.5.0": "2.35.4"}
CLIENT_PARTS = ("s3", "s3-transfer-manager", "sts", "apache-client")  # the bundle of all parts has 600 MB
CARRIED_BESIDE_S3A = "software.amazon.awssdk:bundle,org.slf4j:*,io.netty:*,commons-codec:*,commons-logging:*"


class UnknownStoreError(SetupError, UsageError):
    """The setting names a store for which there are no jars."""


def stores_in(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the object stores that settings ask for. Raises UnknownStoreError for one without jars here."""
    names = tuple(name.strip() for name in settings.get(STORES, "").split(",") if name.strip())
    if unknown := [name for name in names if name != S3A]:
        raise UnknownStoreError(
            f"{STORES}: {', '.join(unknown)} is not known. Name s3a; hdfs needs no jars, and those of others are added "
            "by spark.jars.packages."
        )
    return names


def store_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with those of the object stores that they ask for, unless these are set already."""
    return {**S3A_SETTINGS, **settings} if S3A in stores_in(settings) else dict(settings)


def store_jars(settings: Mapping[str, str], java: Java, delta: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the jars of the object stores that settings ask for, downloaded and compiled at the first use.

    delta: the jars of Delta Lake. Raises SetupError if they cannot be downloaded or compiled.
    """
    if S3A not in stores_in(settings):
        return ()
    spark = Path(launch_environment(java)["SPARK_HOME"]) / "jars"
    return *provide_jars(s3a_package(hadoop_release(spark)), java), _log_store_jar(java, spark, delta)


def s3a_package(number: str) -> JarPackage:
    """Return Hadoop's `s3a:` for a release of Hadoop, that of a Spark."""
    if number not in CLIENTS:
        raise SetupError(
            f"{STORES}: s3a needs a Spark with Hadoop {' or '.join(CLIENTS)}, for its conditional writes, and this one "
            f"has {number}. Use Spark 4.1 or later, or set {S3A_LOG_STORE} and spark.jars.packages yourself."
        )
    client = [f"software.amazon.awssdk:{part}:{CLIENTS[number]}" for part in CLIENT_PARTS]
    return JarPackage(f"org.apache.hadoop:hadoop-aws:{number}", CARRIED_BESIDE_S3A, "Hadoop's S3A", tuple(client))


def hadoop_release(spark: Path) -> str:
    """Return the release of the Hadoop of a Spark; spark: the folder of its jars."""
    return next((jar.stem.rpartition("-")[2] for jar in spark.glob("hadoop-client-api-*.jar")), "unknown")


def _log_store_jar(java: Java, spark: Path, delta: tuple[Path, ...]) -> Path:
    """Return the jar with our log store, compiled at the first use. Raises SetupError if it does not compile."""
    needed = [*spark.glob("hadoop-client-api-*.jar"), *(jar for jar in delta if "delta-storage" in jar.name)]
    facts = [LOG_STORE_SOURCE.read_text(), *(jar.name for jar in needed)]
    folder = cache_folder("jars") / f"log-store-{hashlib.sha256(''.join(facts).encode()).hexdigest()[:16]}"
    jar = folder / "deltafold-log-store.jar"
    if not jar.is_file():
        with tempfile.TemporaryDirectory(dir=scratch_folder(), prefix="compile-") as temporary:
            classes = compile_java(java, spark, LOG_STORE_SOURCE, needed, Path(temporary))
            fresh = pack_classes(Path(temporary), classes)
            folder.mkdir(exist_ok=True)
            fresh.replace(jar)  # complete or not at all, even if other processes compile it too
    return jar


def compile_java(java: Java, spark: Path, source: Path, needed: Sequence[Path], folder: Path) -> list[Path]:
    """Compile a file of Java into a folder, and return the files of classes. Raises SetupError if it does not compile.

    spark: the folder of its jars, where the compiler is. needed: the jars that the source uses.
    """
    compiler = [*spark.glob("janino-*.jar"), *spark.glob("commons-compiler-*.jar")]
    command = [str(java.home / "bin" / "java"), "-cp", os.pathsep.join(map(str, compiler)), COMPILER]
    command += ["-d", str(folder), "-classpath", os.pathsep.join(map(str, needed)), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    classes = sorted(folder.rglob("*.class"))
    if done.returncode or not classes:
        reason = (done.stderr or done.stdout).strip().splitlines()
        raise SetupError(
            f"{source.name} could not be compiled: {reason[0] if reason else 'Java printed nothing'}. Set "
            f"{S3A_LOG_STORE} to another log store, and report this."
        )
    return classes


def pack_classes(folder: Path, classes: Sequence[Path]) -> Path:
    """Pack classes, by their paths below a folder, into a jar there."""
    jar = folder / "made.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for file in classes:
            archive.write(file, file.relative_to(folder))
    return jar
