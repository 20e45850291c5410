"""Start Spark's Java a third faster, by an archive of classes that are already loaded and verified.

A cold Spark spends much of its first seconds loading some 15,000 classes. Java can write an archive of the classes that
it has loaded when it ends (class data sharing), and map that file at the next start; it ignores a file that does not
fit. The first Spark of a cache writes the archive after its Python process has ended (some seconds, 200 MB), and later
ones read it. Only Java 17 is asked to: Java 21 refuses the file, because the class path of Spark's launcher names one
jar twice.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import filelock

from deltafold.spark.cache import cache_folder
from deltafold.spark.jvm.java import Java

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
MOST_TRIES = 3  # of writing it: Java cannot do so if a folder of Spark settings is on the class path
_first: list[filelock.BaseFileLock] = []  # locked until the end of the process whose Java writes the file


def class_archive_options(java: Java, spark_home: Path, jars: tuple[Path, ...]) -> str:
    """Return the Java options that read the class archive or write it; empty if there is none and it cannot be written.

    java: the one to start; spark_home, jars: the class path.
    """
    if java.version != 17:
        return ""
    parts = [str(java.home), *map(str, jars), str(spark_home), str((spark_home / "jars").stat().st_mtime_ns)]
    archive = cache_folder("classes") / f"{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:16]}.jsa"
    if _is_whole(archive):
        return f'-XX:SharedArchiveFile="{archive}" {QUIET}'
    if _may_write(archive):
        return f'-XX:ArchiveClassesAtExit="{archive}" {QUIET}'
    return ""


def _is_whole(archive: Path) -> bool:
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
        return False  # another process's Spark will
    _first.append(lock)
    tries = archive.with_suffix(".tries")
    done = len(tries.read_bytes()) if tries.exists() else 0
    if done >= MOST_TRIES:
        return False
    tries.write_bytes(b"." * (done + 1))
    for other in archive.parent.glob("*.jsa"):
        other.unlink(missing_ok=True)  # of a Spark or a Java that was replaced
    return True
