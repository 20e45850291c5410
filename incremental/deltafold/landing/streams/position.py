"""Store the position of a source in its stream, in the source's folder of the warehouse.

    stream-<g>/            one reading of the stream from its beginning; a replay begins another one
      checkpoint/          Spark's: how far the stream has been read
      incoming-<n>/        a Delta table: the records for landing n, until they are in the landed table
      position.json        the last landing in the landed table, the last one for which the stream was read to its end,
                           and the identity of the stream

The landed table decides which reading and which landing are current: each of its commits has the mark `g·2^32 + n`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from deltafold.lake.records import RecordStore, records_at
from deltafold.lake.remote.remote_path import Place

BITS = 32
POSITION = "position.json"
READING = re.compile(r"stream-(\d+)")
TABLE = re.compile(r"(?:incoming|arrivals)-(\d+)")


@dataclass(frozen=True)
class Note:
    """The content of position.json. landing: the last one in the landed table; taken: the last sealed one."""

    landing: int
    stream: Mapping[str, str]
    taken: int = 0


@dataclass(frozen=True)
class Reading:
    """One reading of a stream; folder: the source's."""

    folder: Place
    number: int

    @property
    def path(self) -> Place:
        """The folder of this reading."""
        return self.folder / f"stream-{self.number}"

    @property
    def checkpoint(self) -> Place:
        """The folder of Spark's checkpoint."""
        return self.path / "checkpoint"

    @property
    def has_checkpoint(self) -> bool:
        """Whether Spark has begun to read, and its position is still recorded."""
        return records_at(self.checkpoint / "metadata").exists()

    def incoming(self, landing: int) -> Place:
        """Return the path of the table into which a landing reads the stream."""
        return self.path / f"incoming-{landing}"

    def arrivals(self, landing: int) -> Place | None:
        """Return the path of a landing's table once the stream has been read to its end for it; None before that."""
        sealed = self.path / f"arrivals-{landing}"  # of an earlier release, interrupted
        if records_at(sealed).exists():
            return sealed
        note = self.read_note()
        return self.incoming(landing) if note is not None and note.taken == landing else None

    def mark(self, landing: int) -> int:
        """Return the mark of a landing."""
        return (self.number << BITS) + landing

    def begin(self, identity: Mapping[str, str]) -> None:
        """Create the folder for a stream of this identity."""
        self._records.create()
        self.note(0, identity)

    def note(self, landing: int, identity: Mapping[str, str]) -> None:
        """Record the last landing in the landed table."""
        self._write(Note(landing, dict(identity)))

    def seal(self, landing: int) -> None:
        """Record that the stream has been read to its end for a landing: its table gets no more rows."""
        note = self.read_note()
        assert note is not None
        self._write(replace(note, taken=landing))

    def read_note(self) -> Note | None:
        """Return the content of position.json; None before `begin`."""
        try:
            return Note(**json.loads(self._records.get(POSITION)))
        except FileNotFoundError:
            return None

    def _write(self, note: Note) -> None:
        self._records.put(POSITION, json.dumps(asdict(note)))

    def clear(self, landing: int) -> None:
        """Remove the tables of landings up to this one, and earlier readings.

        A later reading, of a replay that failed, stays, so that its number is not used again: Delta may have cached the
        tables at its paths.
        """
        self.remove_tables(landing)
        for other in list_readings(self.folder):
            if other.number < self.number:
                records_at(other.path).remove()

    def remove_tables(self, landing: int) -> None:
        """Remove the tables of landings up to this one."""
        for folder in self._records.folders():
            if (name := TABLE.fullmatch(folder)) and int(name[1]) <= landing:
                records_at(self.path / folder).remove()

    @property
    def _records(self) -> RecordStore:
        return records_at(self.path)


def list_readings(folder: Place) -> list[Reading]:
    """Return the readings in a source's folder, in order."""
    names = [READING.fullmatch(name) for name in records_at(folder).folders("stream-*")]
    return [Reading(folder, number) for number in sorted(int(name[1]) for name in names if name)]


def split_mark(mark: int) -> tuple[int, int]:
    """Return the reading and the landing of a mark."""
    return mark >> BITS, mark & ((1 << BITS) - 1)
