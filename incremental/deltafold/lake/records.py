"""Keep the records of a warehouse: small texts in folders, on this machine or at a URI, behind one interface (D-212).

| where | module |
| --- | --- |
| a folder of this machine: files, locks of the operating system | durable.py |
| a folder at a URI: numbered objects, leases | remote/remote_records.py |
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from deltafold.lake.durable import LocalRecords
from deltafold.lake.remote.remote_path import Place, RemotePath
from deltafold.lake.remote.remote_records import RemoteRecords


class RecordStore(Protocol):
    """The records in one folder, and the folder itself; a method that fails raises StorageError or OSError."""

    def get(self, name: str) -> str:
        """Return the content of a record; raises FileNotFoundError if there is none."""
        ...

    def put(self, name: str, text: str, *, keep: bool = False) -> None:
        """Replace a record atomically; the new content survives a power cut. Needs a lock: one writer at a time.

        keep: at a URI, keep the old contents, so that a writer that lost its lease while it was paused is refused.
        """
        ...

    def delete(self, name: str) -> None:
        """Delete a record, if there is one."""
        ...

    def erase(self, name: str) -> None:
        """Delete a record that no other process writes any more, and all that the store keeps of it."""
        ...

    def names(self, pattern: str = "*") -> list[str]:
        """Return the names of the records that match, in order."""
        ...

    def folders(self, pattern: str = "*") -> list[str]:
        """Return the names of the folders within that match, in order."""
        ...

    def exists(self) -> bool:
        """Return whether there is such a folder."""
        ...

    def create(self, *, shared: bool = False) -> None:
        """Create the folder, and its missing parents, for this user alone; shared: as far as the umask allows."""
        ...

    def remove(self) -> None:
        """Remove the folder with everything in it; the next call removes what a crash leaves."""
        ...

    def lock(self, what: str, work: str, timeout: float, *, private: bool = False) -> AbstractContextManager[None]:
        """Let one process at a time work in the folder, which is created if it is missing.

        what, work: words for the error, such as `view totals`, `refreshed`; timeout: seconds to wait; private: others
        may not enter the folder, nor the one that it is in. Raises BusyError after that time, and StorageError if files
        cannot be written, also by the work within the block.
        """
        ...

    def is_free(self) -> bool:
        """Return whether the folder can be built."""
        ...

    def build(self, what: str, timeout: float) -> AbstractContextManager[Place]:
        """Yield the folder in which to build this one, journal last; it does not count before the block ends.

        what, timeout: as of a lock.
        """
        ...

    def withdraw(self, journal: str) -> RecordStore | None:
        """Let the folder cease to exist atomically; returns what remains to be removed without its lock.

        journal: the folder within whose records make it count.
        """
        ...

    def local_folder(self, name: str) -> Path:
        """Return the folder of this machine for files that belong to this one and can be made again."""
        ...

    def check_root(self) -> None:
        """Raise SourceError if the folder cannot be that of a warehouse, StorageError if its store does not answer."""
        ...


def records_at(folder: Place) -> RecordStore:
    """Return the records in a folder. The only function that asks where a folder is."""
    return RemoteRecords(folder) if isinstance(folder, RemotePath) else LocalRecords(folder)
