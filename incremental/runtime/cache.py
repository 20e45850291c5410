"""Runtime room: where what can be made again is kept. In: the environment. Out: folders of this project's cache.

The cache is `$DELTAFOLD_CACHE`; else `.cache` in the project's folder when this is a checkout; else the user's cache
folder. It holds Delta's jars, a JAVA_HOME where the machine has none, Spark's scratch files and its log.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from incremental.algebra.errors import DeltafoldError


class SetupError(DeltafoldError):
    """This machine lacks something that Spark or Delta Lake needs; the message says what, and how to get it."""


def cache_folder(*parts: str) -> Path:
    """A folder in the project's cache, made if it is not there.

    parts: names below the cache; none for the cache itself. Raises SetupError where it cannot be written.
    """
    folder = _root().joinpath(*parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"The cache folder {folder} cannot be made ({error.strerror}); set DELTAFOLD_CACHE to a folder that can."
        ) from error
    return folder


def _root() -> Path:
    told = os.environ.get("DELTAFOLD_CACHE")
    if told:
        return Path(told).expanduser().absolute()
    project = Path(__file__).resolve().parents[2]
    if (project / "pyproject.toml").is_file() and (project / "Makefile").is_file():
        return project / ".cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "deltafold"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deltafold"
