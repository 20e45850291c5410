"""Keep records in a folder of this machine: locked between processes, for one user, and safe from a power cut."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from filelock import FileLock, Timeout

from deltafold.algebra.errors import BusyError, SourceError
from deltafold.spark.java_errors import storage_errors
from deltafold.spark.local_files import flush_folder

PRIVATE = 0o700


def make_private(folder: Path) -> None:
    """Create a folder, and its missing parents, that only this user may enter (D-194); the umask may restrict it.

    A folder that exists stays as it is. One below a folder with the setgid bit, by which users share a folder on
    purpose, is open to the users of that folder.
    """
    for place in (*reversed([parent for parent in folder.parents if not parent.exists()]), folder):
        above = place.parent.stat().st_mode
        place.mkdir(mode=above & 0o777 if above & stat.S_ISGID else PRIVATE, exist_ok=True)


@dataclass(frozen=True)
class LocalRecords:
    """The records in a local folder, each a file. The methods are described in `records.RecordStore`."""

    path: Path

    def get(self, name: str) -> str:
        """Return the content of a record."""
        return (self.path / name).read_text(encoding="utf-8")

    def put(self, name: str, text: str, *, keep: bool = False) -> None:
        """Replace a record."""
        record = self.path / name
        scratch = record.with_suffix(".tmp")
        with scratch.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(record)
        flush_folder(self.path)

    def delete(self, name: str) -> None:
        """Delete a record."""
        (self.path / name).unlink(missing_ok=True)

    erase = delete

    def names(self, pattern: str = "*") -> list[str]:
        """Return the names of the records."""
        return sorted(entry.name for entry in self._entries(pattern) if not entry.is_dir())

    def folders(self, pattern: str = "*") -> list[str]:
        """Return the names of the folders within."""
        return sorted(entry.name for entry in self._entries(pattern) if entry.is_dir())

    def exists(self) -> bool:
        """Return whether there is such a folder."""
        return self.path.exists()

    def create(self, *, shared: bool = False) -> None:
        """Create the folder."""
        if shared:
            self.path.mkdir(parents=True, exist_ok=True)
        else:
            make_private(self.path)

    def remove(self) -> None:
        """Remove the folder, logs included."""
        shutil.rmtree(self.path, ignore_errors=True)

    def move_to(self, path: Path) -> None:
        """Rename the folder, so that all of its content appears at the new path atomically."""
        self.path.rename(path)
        flush_folder(path.parent)

    @contextmanager
    def lock(self, what: str, work: str, timeout: float, *, private: bool = False) -> Generator[None]:
        """Hold the lock of the folder, which the operating system frees if the process dies."""
        owner = self.path / ".owner"
        with storage_errors(self.path):
            if private:
                LocalRecords(self.path.parents[1]).create(shared=True)
                self.create()
            self.create(shared=True)
            team = self.path.stat().st_mode & stat.S_ISGID
            held = FileLock(self.path / ".lock", mode=0o660 if team else 0o600)  # who can open it can keep it
            try:
                held.acquire(timeout=timeout)
            except Timeout as error:
                who = owner.read_text() if owner.exists() else "another process"
                raise BusyError(f"{what}: it is being {work} by {who}. Try again when it is done.") from error
            try:
                since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
                owner.write_text(f"process {os.getpid()} since {since}")
                yield
            finally:
                try:
                    owner.unlink(missing_ok=True)
                finally:
                    held.release()

    def is_free(self) -> bool:
        """Return whether a folder can be renamed to this one."""
        return not self.exists()

    @contextmanager
    def build(self, what: str, timeout: float) -> Generator[Path]:
        """Yield a hidden folder, and rename it at the end of the block."""
        scratch = LocalRecords(self.path.with_name(f".{self.path.name}.branch"))
        yield scratch.path
        scratch.move_to(self.path)

    def withdraw(self, journal: str) -> LocalRecords:
        """Rename the folder into a hidden one."""
        hidden = LocalRecords(self.path.with_name(f".{self.path.name}.dropped"))
        hidden.remove()
        self.move_to(hidden.path)
        return hidden

    def local_folder(self, name: str) -> Path:
        """Return a folder within."""
        return self.path / name

    def check_root(self) -> None:
        """Raise SourceError if a file is in the place of the folder or of one above."""
        existing = next((folder for folder in (self.path, *self.path.parents) if folder.exists()), None)
        if existing is not None and not existing.is_dir():
            raise SourceError(f"warehouse {self.path}: {existing} is not a folder. Name another folder.")

    def _entries(self, pattern: str) -> list[os.DirEntry[str]]:
        """Return the entries that match; raises StorageError if the folder may not be read."""
        with storage_errors(self.path), suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.path) as all_:
            return [entry for entry in all_ if fnmatchcase(entry.name, pattern)]
        return []
