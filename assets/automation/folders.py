"""List a source's folder, or read a Delta table's version, by file names alone: no Spark, no JVM, no Dagster.

The folder of a Files source gives a signature for each partition folder, which changes whenever a file is added,
removed or rewritten; the address of a Delta table (a local folder, or any address that fsspec knows) gives its newest
version. The sensors compare these with those of their last tick.
"""

import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from urllib.parse import unquote

from upath import UPath

from incremental.landing.landing import UNPARTITIONED, data_files

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
    folder = Path(path)
    if not folder.is_dir():
        return {}
    folders = {UNPARTITIONED: folder}
    if column is not None:
        prefix = f"{column}="
        children = [child for child in folder.iterdir() if child.name.startswith(prefix) and child.is_dir()]
        folders = {unquote(child.name.removeprefix(prefix)): child for child in children}
    # The same file properties by which a landing detects a changed partition.
    found = {key: data_files(folders[key]) for key in sorted(folders)}
    return {key: _digest(files) for key, files in found.items() if files}


def delta_version(path: str) -> int | None:
    """Return the newest version of a Delta table, from the names in its log.

    Args:
        path: the table's address.

    Returns:
        The version, or None where there is no Delta table (yet).
    """
    log = UPath(path) / "_delta_log"
    if not log.is_dir():
        return None
    commits = (_COMMIT.fullmatch(entry.name) for entry in log.iterdir())
    return max((int(commit[1]) for commit in commits if commit), default=None)


def _digest(files: object) -> str:
    return blake2b(json.dumps(files).encode(), digest_size=8).hexdigest()
