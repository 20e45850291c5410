"""Find the cache folder, for files that can be downloaded or computed again.

The cache is `$DELTAFOLD_CACHE`; else `.cache` in the project's folder when this is a checkout; else the user's cache
folder. It contains Delta's jars, a JAVA_HOME where the machine has none, Spark's scratch files and its log.
"""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

import filelock
from platformdirs import user_cache_path

from deltafold.algebra.errors import DeltafoldError
from deltafold.algebra.local_path import local_path


class SetupError(DeltafoldError):
    """This machine lacks something that Spark or Delta Lake needs; the message has cause and fix."""


def cache_folder(*parts: str, private: bool = False) -> Path:
    """Return a folder in the project's cache, creating it if it does not exist.

    parts: names below the cache, none for the cache itself; private: only this user may enter it. Raises SetupError
    if it cannot be written.
    """
    folder = _root().joinpath(*parts)
    try:
        folder.mkdir(mode=0o700 if private else 0o777, parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"cache folder {folder}: it cannot be created ({error.strerror}). Set DELTAFOLD_CACHE to a writable folder."
        ) from error
    return folder


@cache
def scratch_folder() -> Path:
    """Return this process's own folder for temporary files, and remove the folders of processes that have ended.

    A file lock shows whether a process is alive: the operating system releases it however the process ends.
    """
    folder = cache_folder("tmp")
    for other in folder.glob("*.lock"):
        _remove_if_abandoned(other)
    lock = filelock.FileLock(folder / f"{os.getpid()}.lock")
    lock.acquire()
    _held.append(lock)
    return cache_folder("tmp", str(os.getpid()), private=True)  # it contains rows


_held: list[filelock.BaseFileLock] = []  # until the process ends: a lock that nothing refers to is released


def _remove_if_abandoned(lock: Path) -> None:
    try:
        with filelock.FileLock(lock, timeout=0):
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
    except (filelock.Timeout, OSError):
        pass  # its process is alive


def _root() -> Path:
    configured = os.environ.get("DELTAFOLD_CACHE")
    if configured:
        return local_path("DELTAFOLD_CACHE", configured, SetupError, home=True)
    project = Path(__file__).resolve().parents[3]
    if (project / "pyproject.toml").is_file() and (project / "Makefile").is_file():
        return project / ".cache"
    return user_cache_path("deltafold", appauthor=False)
