"""Record the readers of a view: a small file for each.

Readers are the views above it, which may be in other warehouses, and its branches, which read its files. Each writes a
file with its own folder here before its journal pins this view; a reader whose folder is gone is ignored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from deltafold.algebra.errors import StateError
from deltafold.lake.records import RecordStore, records_at
from deltafold.lake.remote.remote_path import Place, place_of
from deltafold.store.history import AnswerPin
from deltafold.store.journal import Journal

READERS = "readers"


@dataclass(frozen=True)
class Reader:
    """A view above, in which this one is the source `source`; or a branch, with the versions of the cloned tables."""

    folder: str
    source: str = ""
    tables: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def journal(self) -> Journal:
        """The journal of the reader."""
        return Journal(place_of(self.folder) / "journal")


@dataclass(frozen=True)
class Readers:
    """The readers of the view in a folder."""

    folder: Place

    def add(self, reader: Reader) -> None:
        """Record a reader, if it is not recorded yet."""
        name = hashlib.sha256(f"{reader.folder}\n{reader.source}".encode()).hexdigest()[:16]
        text = json.dumps(asdict(reader), sort_keys=True)
        with suppress(FileNotFoundError):
            if self._records.get(f"{name}.json") == text:
                return
        self._records.create()
        self._records.put(f"{name}.json", text)  # the file of one reader, which one process at a time refreshes

    def all(self) -> tuple[Reader, ...]:
        """Return the readers that still exist."""
        readers = map(self._read, self._records.names("*.json"))
        return tuple(reader for reader in readers if records_at(place_of(reader.folder)).exists())

    def branches(self) -> tuple[str, ...]:
        """Return the names of the branches whose first generation, which shares files with this view, still exists."""
        folders = [place_of(reader.folder) for reader in self.all() if reader.tables]
        return tuple(folder.name for folder in folders if records_at(folder / "g1").exists())

    def views(self, holds: Callable[[AnswerPin], bool]) -> tuple[str, ...]:
        """Return the names of the views above whose last epoch reads this one, or that have no epoch yet.

        holds: whether a pinned table may be one of this view; a view above can use its name for another source.
        """
        above = [reader for reader in self.all() if reader.source and _is_above(reader, holds)]
        return tuple(sorted(place_of(reader.folder).name for reader in above))

    def check_no_branch(self, view: str) -> None:
        """Raise StateError if the view has branches, whose files would be removed."""
        if branches := self.branches():
            raise StateError(f"view {view}: its branches read its files. Drop {', '.join(branches)} first.")

    @property
    def _records(self) -> RecordStore:
        return records_at(self.folder / READERS)

    def _read(self, name: str) -> Reader:
        try:
            return Reader(**json.loads(self._records.get(name)))
        except (ValueError, TypeError) as error:
            raise StateError(
                f"{self.folder / READERS / name}: the record of a reader of the view is damaged. Remove it and refresh."
            ) from error


def _is_above(reader: Reader, holds: Callable[[AnswerPin], bool]) -> bool:
    """Return whether the last epoch of a reader pins a table that `holds`; True before its first epoch."""
    if (last := reader.journal.last()) is None:
        return True
    pin = last.intent.sources.get(reader.source)
    return isinstance(pin, AnswerPin) and holds(pin)
