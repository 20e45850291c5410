"""List a source's folder, or read a Delta table's version: no Spark, no JVM, no Dagster.

The folder of a Files source gives a signature for each partition folder, which changes whenever a file is added,
removed or rewritten; the address of a Delta table gives its newest version, both by file names alone, and the one of
its last change. Both may be at any address that fsspec knows. The sensors compare these with those of their last tick.
"""

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from upath import UPath

from deltafold.algebra.local_path import is_remote
from deltafold.landing.folder import UNPARTITIONED, data_files, is_data

CHANGES = ("ETag", "etag", "md5Hash", "LastModified", "last_modified", "mtime", "updated", "created")
"""What file systems call the facts that change with a file."""

MOST_COMMITS = 20
"""The most commits that are read to find the last change of a table."""

OF_PROPERTIES = frozenset({"SET TBLPROPERTIES", "UNSET TBLPROPERTIES"})
"""The operations that write metadata, and keep rows and columns."""

_COMMIT = re.compile(r"(\d{20})\.(json|checkpoint\..*)")


def partition_signatures(path: str, column: str | None) -> Mapping[str, str]:
    """Return a signature for each partition of a folder of input files.

    Args:
        path: the folder. One that does not exist (yet) has no partitions.
        column: the partition column of `column=value` subfolders; None when the whole folder is one partition.

    Returns:
        partition key → signature; the key of an unpartitioned folder is `UNPARTITIONED`. A partition without files is
        left out.
    """
    if is_remote(path):
        return _store_signatures(path, column)
    folder = Path(path)
    if not folder.is_dir():
        return {}
    folders = {UNPARTITIONED: folder}
    if column is not None:
        prefix = f"{column}="
        children = [child for child in folder.iterdir() if child.name.startswith(prefix) and child.is_dir()]
        folders = {unquote(child.name.removeprefix(prefix)): child for child in children}
    # The same file properties by which a landing detects a changed partition.
    files = {key: data_files(folders[key]) for key in sorted(folders)}
    return {key: _digest(of_partition) for key, of_partition in files.items() if of_partition}


def delta_version(path: str) -> int | None:
    """Return the newest version of a Delta table, from the names in its log.

    Args:
        path: the table's address.

    Returns:
        The version, or None where there is no Delta table (yet).
    """
    log = UPath(path) / "_delta_log"
    system: Any = log.fs  # fsspec has no types
    system.invalidate_cache()  # some file systems remember the first listing for ever
    if not log.is_dir():
        return None
    commits = (_COMMIT.fullmatch(entry.name) for entry in log.iterdir())
    return max((int(commit[1]) for commit in commits if commit), default=None)


def changed_version(path: str) -> int | None:
    """Return the version of a Delta table whose commit changed its rows or columns last, from its log.

    Compaction, for one, makes versions with the same rows. Where the log does not show it (its commits were removed, or
    the last MOST_COMMITS changed nothing), this is the newest version.

    Args:
        path: the table's address.

    Returns:
        The version, or None where there is no Delta table (yet).
    """
    newest = delta_version(path)
    if newest is None:
        return None
    log = UPath(path) / "_delta_log"
    for version in range(newest, max(-1, newest - MOST_COMMITS), -1):
        try:
            if _is_change(log / f"{version:020}.json"):
                return version
        except (OSError, ValueError):
            break
    return newest


def _is_change(commit: UPath) -> bool:
    """Return whether a commit changed rows or columns; raises OSError without it, ValueError for no JSON."""
    operation, has_metadata = "", False
    with commit.open(encoding="utf-8") as lines:
        for line in lines:
            action = json.loads(line)
            files = (action[kind] for kind in ("add", "remove") if kind in action)
            if any(file.get("dataChange", True) for file in files):
                return True
            operation = action.get("commitInfo", {}).get("operation", operation)
            has_metadata = has_metadata or "metaData" in action
    return has_metadata and operation not in OF_PROPERTIES


def _store_signatures(path: str, column: str | None) -> Mapping[str, str]:
    """Return the signatures of a folder in a store, whose files are listed at once."""
    folder = UPath(path)
    root = folder.path.rstrip("/")
    system: Any = folder.fs  # fsspec has no types
    system.invalidate_cache()
    listed: dict[str, dict[str, Any]] = system.find(root, detail=True)
    facts: dict[str, list[object]] = {}
    for name, file in sorted(listed.items()):
        *above, last = name.removeprefix(root).strip("/").split("/")
        key = _store_key(above, column)
        if key is not None and all(map(is_data, (*above, last))):
            changes = [str(file[fact]) for fact in CHANGES if fact in file]
            facts.setdefault(key, []).append([last, file["size"], *changes])
    return {key: _digest(of_partition) for key, of_partition in facts.items()}


def _store_key(above: Sequence[str], column: str | None) -> str | None:
    """Return the key of a file's partition by the folders above it; None where it is in none."""
    if column is None:
        return None if above else UNPARTITIONED
    name, _, value = above[0].partition("=") if len(above) == 1 else ("", "", "")
    return unquote(value) if name == column else None


def _digest(files: object) -> str:
    return blake2b(json.dumps(files).encode(), digest_size=8).hexdigest()
