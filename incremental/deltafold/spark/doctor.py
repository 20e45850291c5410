"""Check whether this machine can run Deltafold, for `deltafold doctor`: one finding with a sentence for each check.

No check starts Spark or downloads anything.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

from packaging.specifiers import SpecifierSet

from deltafold.algebra.local_path import is_remote, is_uri, local_path, remote_fault
from deltafold.algebra.sources import KAFKA
from deltafold.spark.cache import SetupError, cache_folder
from deltafold.spark.jvm.jars import jars_folder, kafka_package
from deltafold.spark.jvm.java import provide_java
from deltafold.spark.jvm.object_stores import S3_SCHEMES, S3A, STORES, UNSAFE_ON_S3, store_settings
from deltafold.spark.session_settings import CATALOG, METASTORE, METASTORE_DATABASE, NO_METASTORE

GIGABYTE = 1 << 30
CATALOG_SECONDS = 3
INSTALL = "Run make setup, or pip install 'deltafold[local]'."
OLDEST_PYTHON = (3, 11)
# Packages whose internals the library uses; docs/platforms.md has the release of each that the other was made for.
ALLOWED = {
    "pyspark": SpecifierSet(">=4.0.1,<4.3"),
    "delta-spark": SpecifierSet(">=4.3.1,<4.4.1"),  # the jars of 4.4.1 do not resolve
}
ATOMIC = ("abfs", "abfss", "wasb", "wasbs", "gs", "hdfs", "viewfs")  # schemes where Delta's own log store is safe


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    name: of the check; ok: whether it passed; sentence: the finding, and the fix if it failed.
    """

    name: str
    ok: bool
    sentence: str


def examine(
    warehouse: str | Path,
    *,
    memory: str = "2g",
    settings: Mapping[str, str] | None = None,
    streams: Mapping[str, str] | None = None,
) -> tuple[Finding, ...]:
    """Run all checks, in the order in which starting a session would fail.

    warehouse: its folder or URI. memory: the session's heap, such as "2g". settings: Spark settings of the session.
    streams: the folders of streams of files, and the formats of others, by source.
    """
    return (
        _python(),
        _packages(),
        _java(),
        _jars(),
        _folder("cache", _cache_or_reason(), "set DELTAFOLD_CACHE to a writable folder"),
        _warehouse(str(warehouse)),
        _memory(memory),
        _log_store(str(warehouse), settings or {}),
        *(_catalog(*each) for each in _catalogs(settings or {}).items()),
        *_metastore(settings or {}),
        *(_stream(source, folder) for source, folder in (streams or {}).items()),
    )


def _python() -> Finding:
    number = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return Finding("Python", False, f"Python is {number}. Install {wanted} or later, then make setup.")
    slow = "Unset PYTHONDONTWRITEBYTECODE: without compiled modules each run starts some 3 s later."
    return Finding("Python", True, f"Python is {number}." + (f" {slow}" if sys.dont_write_bytecode else ""))


def _packages() -> Finding:
    try:
        found = {name: version(name) for name in ALLOWED}
    except PackageNotFoundError as error:
        return Finding("packages", False, f"{error.name} is not installed. {INSTALL}")
    for name, releases in ALLOWED.items():
        if not releases.contains(found[name]):
            return Finding(
                "packages",
                False,
                f"{name} is {found[name]}, and {releases} is wanted. {INSTALL}",
            )
    return Finding("packages", True, ", ".join(map(" ".join, found.items())) + " are installed.")


def _java() -> Finding:
    try:
        java = provide_java()
    except SetupError as error:
        return Finding("Java", False, str(error))
    return Finding("Java", True, f"Java {java.version} will be used: {java.origin} ({java.home}).")


def _jars() -> Finding:
    try:
        folder = jars_folder()
    except (SetupError, PackageNotFoundError) as error:
        return Finding("jars", False, f"There is no folder for Delta Lake's jars: {error}")
    count = len(list(folder.glob("*.jar")))
    if count:
        return Finding("jars", True, f"Delta Lake's jars are present ({count} in {folder}).")
    if folder.is_dir():
        return Finding("jars", False, f"{folder} contains no jars. Remove it, and the next start downloads them.")
    return Finding("jars", True, "Delta Lake's jars (13 MB) are not present; the first start downloads them.")


def _cache_or_reason() -> Path | str:
    try:
        return cache_folder()
    except SetupError as error:
        return str(error)


def _warehouse(where: str) -> Finding:
    if is_remote(where):
        return Finding(
            "warehouse", True, f"The warehouse {where} is in a store, which is tried last, if all else is right."
        )
    try:
        folder = local_path("warehouse", where, SetupError, home=True)
    except SetupError as error:
        return Finding("warehouse", False, f"{error}.")
    return _folder("warehouse", folder, "choose another folder or change its owner")


def _folder(name: str, folder: Path | str, remedy: str) -> Finding:
    if isinstance(folder, str):
        return Finding(name, False, folder)
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Finding(name, False, f"The {name} folder {folder} cannot be written: {remedy}.")
    free = shutil.disk_usage(existing).free / GIGABYTE
    sentence = f"The {name} folder {folder} can be {'written' if existing == folder else 'created'}; {free:.0f} GB free"
    return Finding(name, True, sentence + ".") if free >= 1 else Finding(name, False, sentence + ". Free some space.")


def _kafka(source: str) -> Finding:
    try:
        package = kafka_package()
    except PackageNotFoundError as error:
        return Finding("stream", False, f"There is no connector for the stream {source}: {error}")
    if list(package.folder.glob("*.jar")):
        return Finding("stream", True, f"Source {source} is a stream of Kafka, whose connector is in {package.folder}.")
    sentence = f"Source {source} is a stream of Kafka, whose connector (11 MB) the first landing downloads."
    return Finding("stream", True, sentence)


def _stream(source: str, folder: str) -> Finding:
    if folder == KAFKA:
        return _kafka(source)
    if not is_uri(folder) and not Path(folder).is_absolute():
        return Finding("stream", True, f"Source {source} is a stream of {folder}, which only Spark can check.")
    if is_uri(folder) or Path(folder).is_dir() or "*" in folder:
        return Finding("stream", True, f"Source {source} is a stream of the files that are added to {folder}.")
    return Finding("stream", False, f"The folder {folder} of the stream {source} does not exist. Create it.")


def _memory(asked: str) -> Finding:
    wanted, there = _bytes(asked), _available_memory()
    if wanted is None:
        return Finding("memory", False, f"invalid amount of memory {asked!r}. Write for example 2g or 1500m.")
    if there is None:
        return Finding("memory", True, f"{asked} requested; the available memory is unknown on this system.")
    sentence = f"{asked} requested, {there / GIGABYTE:.1f} GB available"
    if there < wanted:
        return Finding("memory", False, sentence + ". Request less, or end other programs.")
    return Finding("memory", True, sentence + ".")


def _bytes(amount: str) -> int | None:
    parts = re.fullmatch(r"(\d+)([kmgt]?)b?", amount.strip().lower())
    if parts is None:
        return None
    power = "kmgt".find(parts[2]) + 1 if parts[2] else 2  # Spark takes a bare number for mebibytes
    return int(parts[1]) << (10 * power)


def _available_memory() -> int | None:
    """Return the bytes available to a new process: on the machine, and within the container's limit."""
    found: list[int] = []
    try:
        lines = Path("/proc/meminfo").read_text()
        found += [int(kilobytes) * 1024 for kilobytes in re.findall(r"^MemAvailable:\s+(\d+)", lines, re.MULTILINE)]
        share = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        if share.isdigit():
            found.append(int(share) - int(used))
    except (OSError, ValueError):
        pass  # not Linux, or not in a container
    if not found and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=None)


def _log_store(where: str, settings: Mapping[str, str]) -> Finding:
    scheme = _scheme(where)
    if scheme == "file":
        sentence = (
            "On a local folder two processes can both commit the same version, so Deltafold locks its tables. "
            "Let nothing else write to them, and do not share the folder with another machine."
        )
        return Finding("log store", True, sentence)
    if scheme in ATOMIC:
        return Finding("log store", True, f"Delta's log store for {scheme}: admits only one of two concurrent commits.")
    try:
        settings = store_settings(settings)
    except SetupError as error:
        return Finding("log store", False, str(error))
    chosen = f"spark.delta.logStore.{scheme}.impl"
    if scheme in S3_SCHEMES and settings.get(chosen, "").rpartition(".")[2] in UNSAFE_ON_S3:
        sentence = f"{settings[chosen]} lets two processes commit the same version. Set {STORES}: s3a instead."
        return Finding("log store", False, sentence)
    if chosen in settings:
        return Finding("log store", True, f"Commits to {scheme}: use {settings[chosen]}, as {chosen} is set.")
    if scheme == S3A:
        sentence = (
            f"On {scheme}: Delta's own log store lets two processes commit the same version, and Spark lacks the jars. "
            f"Set {STORES}: s3a, or {chosen} and the jars yourself."
        )
        return Finding("log store", False, sentence)
    if fault := remote_fault(where):
        return Finding("log store", False, f"The address {where} cannot be used: {fault}.")
    return Finding("log store", False, f"Delta Lake has no log store for {scheme}:. Set {chosen} to one.")


def _catalogs(settings: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the addresses of the catalogs that the settings name: of Hive's metastore, and of those with a `uri`."""
    named = {name: uri for name, uri in settings.items() if re.fullmatch(r"spark\.sql\.catalog\.\w+\.uri", name)}
    if settings.get(CATALOG) == "hive" and (known := settings.get(f"spark.hadoop.{METASTORE}")):
        named[f"spark.hadoop.{METASTORE}"] = known
    return {name: [each.strip() for each in uris.split(",")] for name, uris in named.items()}


def _metastore(settings: Mapping[str, str]) -> list[Finding]:
    """Return the fault of a Hive that has no metastore in its settings, nor a file of its own with further ones."""
    named = any(f"spark.hadoop.{name}" in settings for name in (METASTORE, METASTORE_DATABASE))
    if settings.get(CATALOG) != "hive" or named or {"HIVE_CONF_DIR", "SPARK_CONF_DIR"} & os.environ.keys():
        return []
    return [Finding("catalog", False, NO_METASTORE)]


def _catalog(setting: str, addresses: Sequence[str]) -> Finding:
    """Connect to the first address that answers, each for at most CATALOG_SECONDS."""
    reasons: list[str] = []
    for address in addresses:
        try:
            parts = urlsplit(address)
            port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 9083)
            socket.create_connection((parts.hostname or "", port), CATALOG_SECONDS).close()
        except (OSError, ValueError) as error:
            reasons.append(f"{address}: {getattr(error, 'strerror', None) or error}")
        else:
            return Finding("catalog", True, f"The catalog at {address} answers.")
    fix = f"Start it, or correct {setting}."
    return Finding("catalog", False, f"The catalog does not answer ({', '.join(reasons)}). {fix}")


def _scheme(where: str) -> str:
    scheme = urlsplit(where).scheme.lower()
    return scheme if len(scheme) > 1 else "file"  # a single letter is a Windows drive
