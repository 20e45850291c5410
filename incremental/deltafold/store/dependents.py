"""Record the readers of a view: a small file for each.

Views above it, which may be in other warehouses, read a view, and its branches read its files. Each writes a small
file with its own folder here before its journal pins this view; a reader whose folder is gone needs nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from deltafold.algebra.errors import StateError
from deltafold.lake.durable import make_private, write_durably
from deltafold.lake.remote.remote_path import Place, place_of
from deltafold.store.journal import Journal, Pin


@dataclass(frozen=True)
class Reader:
    """A view above, which calls this one `source`; or a branch, with the versions of the tables that it cloned."""

    folder: str
    source: str = ""
    tables: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def journal(self) -> Journal:
        """Return the journal of the reader."""
        return Journal(place_of(self.folder) / "journal")


@dataclass(frozen=True)
class Readers:
    """The readers of the view in a folder."""

    folder: Place

    def add(self, reader: Reader) -> None:
        """Record a reader, if it is not recorded yet."""
        name = hashlib.sha256(f"{reader.folder}\n{reader.source}".encode()).hexdigest()[:16]
        path = self.folder / "readers" / f"{name}.json"
        text = json.dumps(asdict(reader), sort_keys=True)
        with suppress(FileNotFoundError):
            if path.read_text() == text:
                return
        make_private(path.parent)
        write_durably(path, text)  # the file of one reader, which one process at a time refreshes

    def all(self) -> tuple[Reader, ...]:
        """Return the readers that still exist."""
        found = [self._read(path) for path in sorted((self.folder / "readers").glob("*.json"), key=str)]
        return tuple(reader for reader in found if place_of(reader.folder).is_dir())

    def branches(self) -> tuple[str, ...]:
        """Return the names of the branches whose first generation, which shares files with this view, still exists."""
        made = [place_of(reader.folder) for reader in self.all() if reader.tables]
        return tuple(folder.name for folder in made if (folder / "g1").is_dir())

    def views(self, holds: Callable[[Pin], bool]) -> tuple[str, ...]:
        """Return the names of the views above whose last epoch reads this one, or that have no epoch yet.

        holds: whether a pinned table may be one of this view's; a view above can give its name to another source.
        """
        return tuple(
            sorted(place_of(each.folder).name for each in self.all() if each.source and _is_above(each, holds))
        )

    def check_no_branch(self, view: str) -> None:
        """Raise StateError if the view has branches, whose files would be removed."""
        if branches := self.branches():
            raise StateError(f"view {view}: its branches read its files. Drop {', '.join(branches)} first.")

    def _read(self, path: Place) -> Reader:
        try:
            return Reader(**json.loads(path.read_text()))
        except (ValueError, TypeError) as error:
            raise StateError(
                f"{path}: the record of a reader of the view is damaged. Remove it and refresh."
            ) from error


def _is_above(reader: Reader, holds: Callable[[Pin], bool]) -> bool:
    """Return whether the last epoch of a reader pins a table that `holds`; True before its first epoch."""
    if (last := reader.journal.last()) is None:
        return True
    pin = last.intent.sources.get(reader.source)
    return pin is not None and pin.place is not None and holds(pin)
