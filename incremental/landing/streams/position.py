"""Keep the position of a source in its stream, in the source's folder of the warehouse.

    stream-<g>/            one reading of the stream from its beginning; a replay begins another one
      checkpoint/          Spark's: how far the stream has been read
      incoming-<n>/        a Delta table: what Spark takes from the stream for landing n
      arrivals-<n>/        the same, once the stream was read to its end and before the landed table has it
      position.json        the last landing that the landed table has, and the stream that it is a position of

The landed table decides which reading and which landing count: each commit of it carries `g·2^32 + n` as its mark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from incremental.lake.durable import Folder, make_private, write_durably

BITS = 32
READING = re.compile(r"stream-(\d+)")
TABLE = re.compile(r"(?:incoming|arrivals)-(\d+)")


@dataclass(frozen=True)
class Reading:
    """One reading of a stream; folder: the source's."""

    folder: Path
    number: int

    @property
    def path(self) -> Path:
        """The folder of this reading."""
        return self.folder / f"stream-{self.number}"

    @property
    def checkpoint(self) -> Path:
        """The folder of Spark's checkpoint."""
        return self.path / "checkpoint"

    @property
    def has_checkpoint(self) -> bool:
        """Whether Spark has begun to read, and still knows how far it came."""
        return (self.checkpoint / "metadata").is_file()

    def incoming(self, landing: int) -> Path:
        """Return the table that a landing reads the stream into."""
        return self.path / f"incoming-{landing}"

    def arrivals(self, landing: int) -> Path:
        """Return the table of a landing for which the stream has been read."""
        return self.path / f"arrivals-{landing}"

    def mark(self, landing: int) -> int:
        """Return the mark of a landing."""
        return (self.number << BITS) + landing

    def begin(self, identity: Mapping[str, str]) -> None:
        """Create the folder for a stream of this identity."""
        make_private(self.path)
        self.note(0, identity)

    def note(self, landing: int, identity: Mapping[str, str]) -> None:
        """Record the last landing that the landed table has."""
        write_durably(self.path / "position.json", json.dumps({"landing": landing, "stream": dict(identity)}))

    def read_note(self) -> tuple[int, dict[str, str]] | None:
        """Return what `note` recorded; None before `begin`."""
        try:
            found = json.loads((self.path / "position.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return int(found["landing"]), dict(found["stream"])

    def seal(self, landing: int) -> None:
        """Declare the stream as read for a landing: its table gets no more rows."""
        Folder(self.incoming(landing)).move_to(self.arrivals(landing))

    def clear(self, landing: int) -> None:
        """Remove the tables of landings up to this one, and earlier readings.

        A later one, of a replay that failed, keeps its number: Delta may still know the tables at its paths.
        """
        self.remove_tables(landing)
        for other in list_readings(self.folder):
            if other.number < self.number:
                Folder(other.path).remove()

    def remove_tables(self, landing: int) -> None:
        """Remove the tables of landings up to this one."""
        for found in self.path.iterdir():
            if (name := TABLE.fullmatch(found.name)) and int(name[1]) <= landing:
                Folder(found).remove()


def list_readings(folder: Path) -> list[Reading]:
    """Return the readings of a stream that the source's folder has, in order."""
    names = [READING.fullmatch(path.name) for path in folder.iterdir()] if folder.is_dir() else []
    return [Reading(folder, number) for number in sorted(int(name[1]) for name in names if name)]


def split_mark(mark: int) -> tuple[int, int]:
    """Return the reading and the landing of a mark."""
    return mark >> BITS, mark & ((1 << BITS) - 1)
