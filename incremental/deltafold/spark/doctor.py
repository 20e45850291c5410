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
from deltafold.spark.connect import explain_request
from deltafold.spark.jvm.jars import jars_folder, kafka_package
from deltafold.spark.jvm.java import provide_java
from deltafold.spark.jvm.object_stores import S3_SCHEMES, S3A, STORES, UNSAFE_ON_S3, store_settings
from deltafold.spark.session_settings import CATALOG, METASTORE, METASTORE_DATABASE, NO_METASTORE

GIGABYTE = 1 << 30
CATALOG_SECONDS = 3
INSTALL = "Run make setup, or pip install 'deltafold[local]'."
OLDEST_PYTHON = (3, 11)
# Packages whose internals the library uses; docs/how-to/platforms.md shows which releases belong together.
ALLOWED = {
    "pyspark": SpecifierSet(">=4.0.1,<4.3"),
    "delta-spark": SpecifierSet(">=4.3.1,<4.4.1"),  # the jars of 4.4.1 do not resolve
}
ATOMIC = ("abfs", "abfss", "wasb", "wasbs", "gs", "hdfs", "viewfs")  # schemes where Delta's own log store is safe


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check.

    name: of the check; ok: whether it passed; sentence: the finding, and the fix if it failed.
    """

    name: str
    ok: bool
    sentence: str

    @classmethod
    def success(cls, name: str, sentence: str) -> Finding:
        """Return the finding of a check that passed."""
        return cls(name=name, ok=True, sentence=sentence)

    @classmethod
    def failure(cls, name: str, sentence: str) -> Finding:
        """Return the finding of a check that failed."""
        return cls(name=name, ok=False, sentence=sentence)


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
        *_connect(settings or {}),
        _java(),
        _jars(),
        _folder("cache", _cache_or_reason(), "set DELTAFOLD_CACHE to a writable folder"),
        _warehouse(str(warehouse)),
        _memory(memory),
        _log_store(str(warehouse), settings or {}),
        *(_catalog(setting, addresses) for setting, addresses in _catalogs(settings or {}).items()),
        *_metastore(settings or {}),
        *(_stream(source, folder) for source, folder in (streams or {}).items()),
    )


def _python() -> Finding:
    number = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return Finding.failure("Python", f"Python is {number}. Install {wanted} or later, then make setup.")
    slow = "Unset PYTHONDONTWRITEBYTECODE: without compiled modules each run starts some 3 s later."
    return Finding.success("Python", f"Python is {number}." + (f" {slow}" if sys.dont_write_bytecode else ""))


def _packages() -> Finding:
    try:
        installed = {name: version(name) for name in ALLOWED}
    except PackageNotFoundError as error:
        return Finding.failure("packages", f"{error.name} is not installed. {INSTALL}")
    for name, releases in ALLOWED.items():
        if not releases.contains(installed[name]):
            return Finding.failure("packages", f"{name} is {installed[name]}, and {releases} is wanted. {INSTALL}")
    return Finding.success("packages", ", ".join(map(" ".join, installed.items())) + " are installed.")


def _connect(settings: Mapping[str, str]) -> list[Finding]:
    """Return the fault of an environment or settings for which PySpark would use Spark Connect."""
    refusal = explain_request(settings)
    return [] if refusal is None else [Finding.failure("Spark Connect", refusal)]


def _java() -> Finding:
    try:
        java = provide_java()
    except SetupError as error:
        return Finding.failure("Java", str(error))
    return Finding.success("Java", f"Java {java.version} will be used: {java.origin} ({java.home}).")


def _jars() -> Finding:
    try:
        folder = jars_folder()
    except (SetupError, PackageNotFoundError) as error:
        return Finding.failure("jars", f"There is no folder for Delta Lake's jars: {error}")
    count = len(list(folder.glob("*.jar")))
    if count:
        return Finding.success("jars", f"Delta Lake's jars are present ({count} in {folder}).")
    if folder.is_dir():
        return Finding.failure("jars", f"{folder} contains no jars. Remove it, and the next start downloads them.")
    return Finding.success("jars", "Delta Lake's jars (13 MB) are not present; the first start downloads them.")


def _cache_or_reason() -> Path | str:
    try:
        return cache_folder()
    except SetupError as error:
        return str(error)


def _warehouse(where: str) -> Finding:
    if is_remote(where):
        return Finding.success(
            "warehouse", f"The warehouse {where} is in a store, which is checked last, if nothing else fails."
        )
    try:
        folder = local_path("warehouse", where, SetupError, home=True)
    except SetupError as error:
        return Finding.failure("warehouse", f"{error}.")
    return _folder("warehouse", folder, "choose another folder or change its owner")


def _folder(name: str, folder: Path | str, remedy: str) -> Finding:
    if isinstance(folder, str):
        return Finding.failure(name, folder)
    existing = next(ancestor for ancestor in (folder, *folder.parents) if ancestor.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Finding.failure(name, f"The {name} folder {folder} cannot be written: {remedy}.")
    free = shutil.disk_usage(existing).free / GIGABYTE
    sentence = f"The {name} folder {folder} can be {'written' if existing == folder else 'created'}; {free:.0f} GB free"
    if free < 1:
        return Finding.failure(name, sentence + ". Free some space.")
    return Finding.success(name, sentence + ".")


def _kafka(source: str) -> Finding:
    try:
        package = kafka_package()
    except PackageNotFoundError as error:
        return Finding.failure("stream", f"There is no connector for the stream {source}: {error}")
    if list(package.folder.glob("*.jar")):
        return Finding.success(
            "stream", f"Source {source} is a stream of Kafka, whose connector is in {package.folder}."
        )
    sentence = f"Source {source} is a stream of Kafka, whose connector (11 MB) the first landing downloads."
    return Finding.success("stream", sentence)


def _stream(source: str, folder: str) -> Finding:
    if folder == KAFKA:
        return _kafka(source)
    if not is_uri(folder) and not Path(folder).is_absolute():
        return Finding.success("stream", f"Source {source} is a stream of {folder}, which only Spark can check.")
    if is_uri(folder) or Path(folder).is_dir() or "*" in folder:
        return Finding.success("stream", f"Source {source} is a stream of the files that are added to {folder}.")
    return Finding.failure("stream", f"The folder {folder} of the stream {source} does not exist. Create it.")


def _memory(amount: str) -> Finding:
    requested = _bytes(amount)
    available = _available_memory()
    if requested is None:
        return Finding.failure("memory", f"invalid amount of memory {amount!r}. Write for example 2g or 1500m.")
    if available is None:
        return Finding.success("memory", f"{amount} requested; the available memory is unknown on this system.")
    sentence = f"{amount} requested, {available / GIGABYTE:.1f} GB available"
    if available < requested:
        return Finding.failure("memory", sentence + ". Request less, or end other programs.")
    return Finding.success("memory", sentence + ".")


def _bytes(amount: str) -> int | None:
    parts = re.fullmatch(r"(\d+)([kmgt]?)b?", amount.strip().lower())
    if parts is None:
        return None
    power = "kmgt".find(parts[2]) + 1 if parts[2] else 2  # Spark takes a bare number for mebibytes
    return int(parts[1]) << (10 * power)


def _available_memory() -> int | None:
    """Return the bytes available to a new process: on the machine, and within the container's limit."""
    limits = list[int]()
    try:
        lines = Path("/proc/meminfo").read_text()
        limits += [int(kilobytes) * 1024 for kilobytes in re.findall(r"^MemAvailable:\s+(\d+)", lines, re.MULTILINE)]
        share = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        if share.isdigit():
            limits.append(int(share) - int(used))
    except (OSError, ValueError):
        pass  # not Linux, or not in a container
    if not limits and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=None)


def _log_store(where: str, settings: Mapping[str, str]) -> Finding:
    scheme = _scheme(where)
    if scheme == "file":
        sentence = (
            "On a local folder two processes can both commit the same version, so Deltafold locks its tables. "
            "Let nothing else write to them, and do not share the folder with another machine."
        )
        return Finding.success("log store", sentence)
    if scheme in ATOMIC:
        return Finding.success(
            "log store", f"Delta's log store for {scheme}: admits only one of two concurrent commits."
        )
    try:
        settings = store_settings(settings)
    except SetupError as error:
        return Finding.failure("log store", str(error))
    setting = f"spark.delta.logStore.{scheme}.impl"
    if scheme in S3_SCHEMES and settings.get(setting, "").rpartition(".")[2] in UNSAFE_ON_S3:
        sentence = f"{settings[setting]} lets two processes commit the same version. Set {STORES}: s3a instead."
        return Finding.failure("log store", sentence)
    if setting in settings:
        return Finding.success("log store", f"Commits to {scheme}: use {settings[setting]}, as {setting} is set.")
    if scheme == S3A:
        sentence = (
            f"On {scheme}: Delta's own log store lets two processes commit the same version, and Spark lacks the jars. "
            f"Set {STORES}: s3a, or {setting} and the jars yourself."
        )
        return Finding.failure("log store", sentence)
    if fault := remote_fault(where):
        return Finding.failure("log store", f"The address {where} cannot be used: {fault}.")
    return Finding.failure("log store", f"Delta Lake has no log store for {scheme}:. Set {setting} to one.")


def _catalogs(settings: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the addresses of the catalogs that the settings name: of Hive's metastore, and of those with a `uri`."""
    catalogs = {name: uri for name, uri in settings.items() if re.fullmatch(r"spark\.sql\.catalog\.\w+\.uri", name)}
    if settings.get(CATALOG) == "hive" and (metastore := settings.get(f"spark.hadoop.{METASTORE}")):
        catalogs[f"spark.hadoop.{METASTORE}"] = metastore
    return {name: [uri.strip() for uri in uris.split(",")] for name, uris in catalogs.items()}


def _metastore(settings: Mapping[str, str]) -> list[Finding]:
    """Return the fault of Hive without a metastore, unless it may be in a configuration file."""
    named = any(f"spark.hadoop.{name}" in settings for name in (METASTORE, METASTORE_DATABASE))
    if settings.get(CATALOG) != "hive" or named or {"HIVE_CONF_DIR", "SPARK_CONF_DIR"} & os.environ.keys():
        return []
    return [Finding.failure("catalog", NO_METASTORE)]


def _catalog(setting: str, addresses: Sequence[str]) -> Finding:
    """Connect to the first address that answers, each for at most CATALOG_SECONDS."""
    reasons = list[str]()
    for address in addresses:
        try:
            parts = urlsplit(address)
            port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 9083)
            socket.create_connection((parts.hostname or "", port), CATALOG_SECONDS).close()
        except (OSError, ValueError) as error:
            reasons.append(f"{address}: {getattr(error, 'strerror', None) or error}")
        else:
            return Finding.success("catalog", f"The catalog at {address} answers.")
    fix = f"Start it, or correct {setting}."
    return Finding.failure("catalog", f"The catalog does not answer ({', '.join(reasons)}). {fix}")


def _scheme(where: str) -> str:
    scheme = urlsplit(where).scheme.lower()
    return scheme if len(scheme) > 1 else "file"  # a single letter is a Windows drive
