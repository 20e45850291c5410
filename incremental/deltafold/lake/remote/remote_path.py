"""Name a folder or a record at a URI, with those methods of pathlib's Path that a warehouse uses of local ones (D-134).

A record is a small text. Its content is a numbered object that is written once, `name~000001`, and the one with the
greatest number counts; an empty one says that the record was removed. So of two writers that both know number 1, one
is refused by the store, although a process that was paused between looking and writing learns of no lock.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deltafold.algebra.errors import BusyError
from deltafold.algebra.local_path import is_uri
from deltafold.lake.remote import objects

NUMBERED_NAME = re.compile(r"(.+)~(\d{6,})")
HELD: dict[str, Callable[[], None]] = {}
"""The folders whose lease this process has; the function raises BusyError if it has lost it."""


@dataclass(frozen=True, order=True)
class RemotePath:
    """A folder, or a record in it, at a URI."""

    address: str

    def __str__(self) -> str:
        return self.address

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self.address}/{name}")

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.address.rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        """The folder above."""
        return RemotePath(self.address.rpartition("/")[0])

    @property
    def parents(self) -> tuple[RemotePath, ...]:
        """The two folders above."""
        return self.parent, self.parent.parent

    def resolve(self) -> RemotePath:
        """Return the path itself: a store has no links."""
        return self

    def exists(self) -> bool:
        """Return whether anything is in the folder."""
        return objects.object_exists(self.address)

    def is_dir(self) -> bool:
        """Return whether anything is in the folder."""
        return self.exists()

    def glob(self, pattern: str) -> list[RemotePath]:
        """Return the folders and records in this folder whose names match, in their order."""
        sizes = dict[str, int]()
        for entry in objects.list_folder(self.address):
            numbered = None if entry.is_folder else NUMBERED_NAME.fullmatch(entry.name)
            if entry.is_folder or numbered is not None:
                sizes[numbered[1] if numbered else entry.name] = 1 if entry.is_folder else entry.bytes
        return [self / name for name, size in sizes.items() if size and fnmatch.fnmatchcase(name, pattern)]

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the content of a record; raises FileNotFoundError if there is none. encoding: UTF-8 always."""
        assert encoding == "utf-8"
        numbers = self._numbers()
        text = objects.read_object(self._object(numbers[-1])) if numbers else ""
        if not text:
            raise FileNotFoundError(self.address)
        return text

    def write(self, text: str, *, keep: bool = False) -> None:
        """Write the content of a record, as its next object; keep: do not delete the ones before the last.

        Raises BusyError if another process has written the record meanwhile, or this one has lost a lease above it.
        """
        numbers = self._numbers()
        number = (numbers[-1] if numbers else 0) + 1
        check_leases(self)
        if not objects.put_if_absent(self._object(number), text):
            raise BusyError(f"{self.address}: another process has written it meanwhile. Try again when it is done.")
        for old in () if keep else numbers[:-1]:
            objects.delete(self._object(old))

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove a record, by an empty object."""
        if self._numbers():
            self.write("", keep=True)
        elif not missing_ok:
            raise FileNotFoundError(self.address)

    def erase(self) -> None:
        """Delete all objects of a record that no other process writes any more."""
        numbers = self._numbers()
        check_leases(self)
        for number in numbers:
            objects.delete(self._object(number))

    def remove(self) -> None:
        """Delete all that is in the folder."""
        check_leases(self)
        objects.delete(self.address)

    def _numbers(self) -> list[int]:
        matches = [
            NUMBERED_NAME.fullmatch(each.name) for each in objects.list_folder(self.parent.address, f"{self.name}~*")
        ]
        return sorted(int(each[2]) for each in matches if each)

    def _object(self, number: int) -> str:
        return f"{self.address}~{number:06d}"


Place = Path | RemotePath
"""A folder or record of a warehouse: on this machine, or at a URI."""


def place_of(address: str) -> Place:
    """Return the folder at an absolute local path or a URI."""
    return RemotePath(address.strip().rstrip("/")) if is_uri(address) else Path(address)


def check_leases(place: Place) -> None:
    """Raise BusyError if this process has lost the lease of a folder that a place is in; one on this machine has none.

    Called before what is written or deleted may be another process's.
    """
    for folder, check in list(HELD.items()):
        if f"{place}/".startswith(f"{folder}/"):
            check()
