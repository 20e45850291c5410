"""Keep records in a folder at a URI, where nothing can be renamed or locked (D-134).

The content of a record is a numbered object that is written once, `name~000001`, and the one with the greatest number
counts; an empty one says that the record was removed. So of two writers that both know number 1, one is refused by the
store, although a process that was paused between looking and writing learns of no lock.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path

from deltafold.algebra.errors import BusyError
from deltafold.lake.remote import objects
from deltafold.lake.remote.lease import check_store, hold_lease
from deltafold.lake.remote.remote_path import RemotePath, check_leases
from deltafold.spark.cache import cache_folder
from deltafold.spark.java_errors import storage_errors

NUMBERED_NAME = re.compile(r"(.+)~(\d{6,})")


@dataclass(frozen=True)
class RemoteRecords:
    """The records in a folder at a URI. The methods are described in `records.RecordStore`."""

    path: RemotePath

    def get(self, name: str) -> str:
        """Return the content of a record."""
        numbers = self._numbers(name)
        text = objects.read_object(self._object(name, numbers[-1])) if numbers else ""
        if not text:
            raise FileNotFoundError(str(self.path / name))
        return text

    def put(self, name: str, text: str, *, keep: bool = False) -> None:
        """Write the content of a record, as its next object; keep: do not delete the ones before the last.

        Raises BusyError if another process has written the record meanwhile, or this one has lost a lease above it.
        """
        numbers, record = self._numbers(name), self.path / name
        number = (numbers[-1] if numbers else 0) + 1
        check_leases(record)
        if not objects.put_if_absent(self._object(name, number), text):
            raise BusyError(f"{record}: another process has written it meanwhile. Try again when it is done.")
        for old in () if keep else numbers[:-1]:
            objects.delete(self._object(name, old))

    def delete(self, name: str) -> None:
        """Delete a record, by an empty object."""
        if self._numbers(name):
            self.put(name, "", keep=True)

    def erase(self, name: str) -> None:
        """Delete all objects of a record."""
        numbers = self._numbers(name)
        check_leases(self.path / name)
        for number in numbers:
            objects.delete(self._object(name, number))

    def names(self, pattern: str = "*") -> list[str]:
        """Return the names of the records that are not removed."""
        sizes = dict[str, int]()
        for entry in objects.list_folder(str(self.path)):
            if not entry.is_folder and (numbered := NUMBERED_NAME.fullmatch(entry.name)):
                sizes[numbered[1]] = entry.bytes
        return sorted(name for name, size in sizes.items() if size and fnmatchcase(name, pattern))

    def folders(self, pattern: str = "*") -> list[str]:
        """Return the names of the folders within."""
        return sorted(entry.name for entry in objects.list_folder(str(self.path), pattern) if entry.is_folder)

    def exists(self) -> bool:
        """Return whether anything is in the folder."""
        return objects.object_exists(str(self.path))

    def create(self, *, shared: bool = False) -> None:
        """Do nothing: a store has no folders without objects, and rights of its own."""

    def remove(self) -> None:
        """Delete all that is in the folder."""
        check_leases(self.path)
        objects.delete(str(self.path))

    @contextmanager
    def lock(
        self,
        what: str,
        work: str,
        timeout: float,
        *,
        private: bool = False,
    ) -> Generator[None]:
        """Hold the lease of the folder, which ends by itself if the process dies."""
        with storage_errors(self.path), hold_lease(self.path, what, work, timeout):
            yield

    def is_free(self) -> bool:
        """Return True: without records in its journal, what is there was left by a crash."""
        return True

    @contextmanager
    def build(self, what: str, timeout: float) -> Generator[RemotePath]:
        """Yield the folder itself, under its lease: it counts from the first record of its journal on."""
        with self.lock(what, "branched", timeout):
            yield self.path

    def withdraw(self, journal: str) -> None:
        """Remove the journal first, then all of the folder, under its lease: later it may be another view's."""
        records = RemoteRecords(self.path / journal)
        for name in records.names():
            records.erase(name)  # the oldest first: what a crash leaves is the end of the journal, not its beginning
        self.remove()

    def local_folder(self, name: str) -> Path:
        """Return a folder in this user's cache."""
        return cache_folder(name, private=True) / sha256(str(self.path).encode()).hexdigest()[:16]

    def check_root(self) -> None:
        """Raise SourceError for a store that lets two processes write the same version."""
        check_store(self.path)

    def _numbers(self, name: str) -> list[int]:
        entries = objects.list_folder(str(self.path), f"{name}~*")
        matches = [NUMBERED_NAME.fullmatch(entry.name) for entry in entries]
        return sorted(int(match[2]) for match in matches if match)

    def _object(self, name: str, number: int) -> str:
        return f"{self.path}/{name}~{number:06d}"
