"""Assets room: what lies in a source's folder, read by listing names alone: no Spark, no JVM, no Dagster.

In: the path of a Files source or of a Delta table (a local folder, or any address that fsspec knows).
Out: a signature for each partition folder (it changes whenever a file comes, goes or is rewritten), and the newest
version of a Delta table. The sensors compare these with what they saw at their last tick.
"""

import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from urllib.parse import unquote

from upath import UPath

WHOLE = "*"
"""The key under which a folder without partitions is listed."""

_COMMIT = re.compile(r"^(\d{20})\.(json|checkpoint\..*)$")


def partition_signatures(path: str, column: str | None) -> Mapping[str, str]:
    """A signature for each partition of a folder of dropped files.

    Args:
        path: the folder. One that does not exist (yet) has no partitions.
        column: the partition column of `column=value` subfolders; None when the whole folder is one partition.

    Returns:
        partition key → signature; the key of an unpartitioned folder is `WHOLE`. A partition without files is left out.
    """
    folder = UPath(path)
    if not folder.is_dir():
        return {}
    if column is None:
        signed = {WHOLE: _signature(folder)}
    else:
        prefix = f"{column}="
        children = (child for child in folder.iterdir() if child.name.startswith(prefix) and child.is_dir())
        signed = {unquote(child.name.removeprefix(prefix)): _signature(child) for child in children}
    return {key: signature for key, signature in sorted(signed.items()) if signature}


def delta_version(path: str) -> int | None:
    """The newest version of a Delta table, from the names in its log.

    Args:
        path: the table's folder.

    Returns:
        The version, or None where there is no Delta table (yet).
    """
    log = UPath(path) / "_delta_log"
    if not log.is_dir():
        return None
    commits = (_COMMIT.match(entry.name) for entry in log.iterdir())
    return max((int(commit[1]) for commit in commits if commit), default=None)


def _signature(folder: UPath) -> str:
    """A digest over name, size and time of every file below a folder; empty when there is none."""
    lines = sorted(f"{name} {size} {time}" for name, size, time in _files(folder, ""))
    return blake2b("\n".join(lines).encode(), digest_size=8).hexdigest() if lines else ""


def _files(folder: UPath, above: str) -> Iterator[tuple[str, int, str]]:
    """Every file that Spark would read below a folder: names with a leading `_` or `.` are hidden from it."""
    for entry in folder.iterdir():
        if entry.name.startswith(("_", ".")):
            continue
        name = f"{above}/{entry.name}"
        if entry.is_dir():
            yield from _files(entry, name)
        else:
            facts = entry.stat()
            # Local files have a time in nanoseconds; object stores one in seconds, some none at all.
            yield name, facts.st_size, str(getattr(facts, "st_mtime_ns", None) or getattr(facts, "st_mtime", ""))
