"""Name a folder at a URI, with those properties of pathlib's Path that a warehouse uses of local ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deltafold.algebra.local_path import is_uri

HELD: dict[str, Callable[[], None]] = {}
"""The folders whose lease this process has; the function raises BusyError if it has lost it."""


@dataclass(frozen=True, order=True)
class RemotePath:
    """The address of a folder at a URI; what is in it: `records.records_at`."""

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


Place = Path | RemotePath
"""A folder of a warehouse: on this machine, or at a URI."""


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
