"""Count the guests of a host: each has a file lock, which the system releases however the process ends."""

from __future__ import annotations

import os
from pathlib import Path

import filelock

DOOR_SECONDS = 10.0  # to wait for another process that enters

_held: dict[Path, filelock.BaseFileLock] = {}  # until the process ends: a lock that nothing refers to is released


class FullError(Exception):
    """The host has as many guests as it takes."""


class Guests:
    """The processes that use the host of a file."""

    def __init__(self, file: Path) -> None:
        self._folder = file.with_suffix(".guests")

    def enter(self, most: int) -> None:
        """Register this process until it ends; raises FullError if there are `most` others."""
        own = self._folder / f"{os.getpid()}.lock"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with filelock.FileLock(self._folder / "door", timeout=DOOR_SECONDS):
            if own in _held:
                return
            if self.count() >= most:
                raise FullError
            lock = filelock.FileLock(own)
            lock.acquire()
            _held[own] = lock

    def leave(self) -> None:
        """Unregister this process."""
        lock = _held.pop(self._folder / f"{os.getpid()}.lock", None)
        if lock is not None:
            lock.release()

    def count(self) -> int:
        """Return the number of guests that live, and remove the locks of those that have ended."""
        return sum(_is_held(lock) for lock in self._folder.glob("*.lock"))


def _is_held(lock: Path) -> bool:
    try:
        with filelock.FileLock(lock, timeout=0):
            lock.unlink(missing_ok=True)
    except filelock.Timeout:
        return True
    return False
