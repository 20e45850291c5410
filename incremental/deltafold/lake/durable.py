"""Lock folders between processes, restrict them to one user, and write files that survive a power cut.

The same for a warehouse at a URI: by leases and by records that are written once (remote/).
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from deltafold.algebra.errors import BusyError
from deltafold.lake.remote.lease import hold_lease
from deltafold.lake.remote.remote_path import Place, RemotePath
from deltafold.spark.java_errors import storage_errors
from deltafold.spark.local_files import flush_folder

PRIVATE = 0o700


def make_private(folder: Place) -> None:
    """Create a folder, and its missing parents, that only this user may enter (D-194); the umask may restrict it.

    A folder that exists stays as it is. One below a folder with the setgid bit, by which users share a folder on
    purpose, is open to the users of that folder. A store has no folders without objects, and rights of its own.
    """
    if isinstance(folder, RemotePath):
        return
    for place in (*reversed([parent for parent in folder.parents if not parent.exists()]), folder):
        above = place.parent.stat().st_mode
        place.mkdir(mode=above & 0o777 if above & stat.S_ISGID else PRIVATE, exist_ok=True)


def make_shared(folder: Place) -> None:
    """Create a folder, and its missing parents, that others may enter as far as the umask allows (D-194)."""
    if not isinstance(folder, RemotePath):
        folder.mkdir(parents=True, exist_ok=True)


def write_durably(path: Place, text: str, *, keep: bool = False) -> None:
    """Replace a file atomically; the new content survives a power cut. Needs a lock: one writer at a time.

    keep: at a URI, keep the old contents, so that a writer that lost its lease while it was paused is refused.
    """
    if isinstance(path, RemotePath):
        path.write(text, keep=keep)
        return
    scratch = path.with_suffix(".tmp")
    with scratch.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    flush_folder(path.parent)


@dataclass(frozen=True)
class Folder:
    """A folder of tables and journals, which are moved and removed with it."""

    path: Place

    def remove(self) -> None:
        """Remove everything in it, logs included; the next call removes what a crash leaves."""
        if isinstance(self.path, RemotePath):
            self.path.remove()
            return
        shutil.rmtree(self.path, ignore_errors=True)

    def move_to(self, path: Path) -> None:
        """Rename the local folder, so that all of its content appears at the new path atomically."""
        assert isinstance(self.path, Path)
        self.path.rename(path)
        flush_folder(path.parent)


@contextmanager
def lock(folder: Place, what: str, work: str, timeout: float, *, private: bool = False) -> Generator[None]:
    """Let one process at a time work in a folder; the operating system frees the lock of a process that died.

    At a URI it is a lease, which ends by itself. A folder that is missing is created.

    what, work: words for the error, such as `view totals`, `refreshed`; timeout: seconds to wait; private: others may
    not enter the folder, nor the one that it is in. Raises BusyError after that time, and StorageError if files cannot
    be written, also by the work within the block.
    """
    if isinstance(folder, RemotePath):
        with storage_errors(folder), hold_lease(folder, what, work, timeout):
            yield
        return
    owner = folder / ".owner"
    with storage_errors(folder):
        if private:
            make_shared(folder.parents[1])
            make_private(folder)
        make_shared(folder)
        team = folder.stat().st_mode & stat.S_ISGID
        held = FileLock(folder / ".lock", mode=0o660 if team else 0o600)  # who can open it can keep it
        try:
            held.acquire(timeout=timeout)
        except Timeout as error:
            who = owner.read_text() if owner.exists() else "another process"
            raise BusyError(f"{what}: it is being {work} by {who}. Try again when it is done.") from error
        try:
            owner.write_text(f"process {os.getpid()} since {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime())}")
            yield
        finally:
            try:
                owner.unlink(missing_ok=True)
            finally:
                held.release()
