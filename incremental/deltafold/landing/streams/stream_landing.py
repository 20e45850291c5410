"""Land a stream in a Delta table, exactly once.

1. Structured Streaming reads the stream to its present end into a table of this landing (arrivals.py), and the table is
   sealed.
2. Malformed records are added to the quarantine, or refused; the rows are added to the landed table. Both commits have
   the landing's mark, so they are skipped when they are repeated.
3. The table of the landing is removed.

After a crash before the seal, the next landing reads on; after a crash later, it repeats step 2 with the same records.
A replay reads the stream again from its beginning, and its rows replace all rows of the landed table and of the
quarantine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from deltafold.algebra.errors import SourceError
from deltafold.algebra.results.report import Landing
from deltafold.algebra.sources import KAFKA, Stream
from deltafold.algebra.sqltext import quoted
from deltafold.lake.files import needs_mapping
from deltafold.lake.protocol import Clause, Mark, Table
from deltafold.lake.records import records_at
from deltafold.lake.remote.remote_path import Place, place_of
from deltafold.landing.folder import UNPARTITIONED
from deltafold.landing.quarantine import Quarantine
from deltafold.landing.reader import declared_schema
from deltafold.landing.streams.arrivals import Intake, column_fault
from deltafold.landing.streams.position import Reading, list_readings, split_mark
from deltafold.landing.streams.records import DELETED, Split, malformed_error
from deltafold.spark import catalyst
from deltafold.spark.checkpoint import computed_once
from deltafold.telemetry import log_work


@dataclass(frozen=True)
class LandedCounts:
    """The number of rows that a landing wrote, and of malformed records that it left out."""

    rows: int = 0
    malformed: int = 0

    def __add__(self, other: LandedCounts) -> LandedCounts:
        return LandedCounts(self.rows + other.rows, self.malformed + other.malformed)


@dataclass(frozen=True, kw_only=True)
class StreamLander:
    """Lands one stream; folder: that of its position; allow_loss: whether a replay may lose landed rows."""

    spark: SparkSession
    name: str
    stream: Stream
    table: Table
    quarantine: Quarantine
    folder: Place
    lock_seconds: float
    allow_loss: bool = False

    def land(self, partitions: Sequence[str] | None = None) -> Landing:
        """Land the records that have arrived since the last landing.

        Raises SourceError for malformed records that are not to be quarantined, for a stream that Spark cannot read,
        and for a position that is lost or is that of another stream.
        """
        if partitions is not None:
            raise SourceError(f"source {self.name}: a stream has no partitions. Land all of it.")
        return self._land_and_log(replay=False)

    def replay(self, *, allow_loss: bool = False) -> Landing:
        """Land the stream again from its beginning, by the schema that is declared now, in place of all landed rows.

        Raises SourceError as `land`, and, unless allow_loss, if the stream has fewer records than were landed.
        """
        return replace(self, allow_loss=allow_loss)._land_and_log(replay=True)

    def partitions(self) -> tuple[str, ...]:
        """Return no partition: a stream has none."""
        return ()

    def _land_and_log(self, *, replay: bool) -> Landing:
        with log_work("landing", {"source": self.name, "table": self.table.path}) as work:
            work.result = landing = self._land(replay=replay)
        return landing

    def _land(self, *, replay: bool) -> Landing:
        start = time.monotonic()
        with records_at(self.folder).lock(f"source {self.name}", "landed", self.lock_seconds, private=True):
            reading, last = (self._begin(), 0) if replay else self._position()
            counts, is_new = self._land_arrivals(reading, last)
            quarantined = self.quarantine.size()
            version = self.table.version()
        assert version is not None
        return Landing(
            source=self.name,
            version=version,
            landed=(UNPARTITIONED,) if is_new else (),
            unchanged=(),
            removed=(),
            rows=counts.rows,
            seconds=time.monotonic() - start,
            quarantined={UNPARTITIONED: quarantined} if quarantined else {},
            malformed=counts.malformed,
            stream=True,
        )

    def _land_arrivals(self, reading: Reading, last: int) -> tuple[LandedCounts, bool]:
        """Finish an interrupted landing, then land what has arrived since; also returns whether there was anything."""
        counts = LandedCounts()
        before = last
        intake = Intake(self.spark, self.name, self.stream, self._schema)
        if (arrivals := reading.arrivals(last + 1)) is not None:
            counts += self._write(reading, last + 1, intake.table_at(arrivals))
            last += 1
        taken = intake.take(reading, last + 1)
        if taken is not None or last == 0:  # the first landing creates the table, that of a replay empties it
            counts += self._write(reading, last + 1, taken)
            last += 1
        return counts, last > before

    def _position(self) -> tuple[Reading, int]:
        """Return the current reading and its last landing, which are those of the landed table.

        Raises SourceError if the folder disagrees with the table, so that rows would be lost or landed twice.
        """
        number, last = split_mark(self._last_mark())
        if last > 0 and self._is_reshaped():
            raise self._lost(f"it is declared with another schema than its landed table has ({self._landed_types})")
        reading = Reading(self.folder, number)
        note = reading.read_note()
        later_notes = [other.read_note() for other in list_readings(self.folder) if other.number > number]
        if any(later is not None and later.landing > 0 for later in later_notes) or (
            note is not None and note.landing > last
        ):
            raise self._lost("its landed table is older than its position in the stream, or is gone")
        if last > 0 and (note is None or not reading.has_checkpoint):
            raise self._lost(f"its position in the stream, {reading.path}, is gone")
        if note is None:
            reading.begin(self.stream.identity)
        elif note.stream != self.stream.identity and last == 0:
            return self._begin(), 0
        elif note.stream != self.stream.identity:
            raise self._lost(f"its position is that of another stream ({_describe_identity(note.stream)})")
        reading.clear(last)
        return reading, last

    def _begin(self) -> Reading:
        """Begin to read the stream again; the landed table changes when its end is reached."""
        current, _ = split_mark(self._last_mark())
        numbers = [current, *(reading.number for reading in list_readings(self.folder))]
        reading = Reading(self.folder, max(numbers) + 1)
        reading.begin(self.stream.identity)
        return reading

    def _last_mark(self) -> int:
        """Return the mark of the landed table, 0 without one. Raises SourceError for the table of another source."""
        mark = self.table.epoch(self._application) if self.table.version() is not None else 0
        if mark is None:
            raise SourceError(
                f"source {self.name}: declared as a stream, but its landed table was landed from files. "
                "Declare the stream under another name."
            )
        return mark

    def _lost(self, reason: str) -> SourceError:
        """Return the error for a stream that cannot be continued."""
        return SourceError(
            f"source {self.name} was not landed: {reason}. Replay the source, which lands the stream from its "
            "beginning in place of all landed rows."
        )

    def _write(self, reading: Reading, landing: int, taken: Table | None) -> LandedCounts:
        """Write one landing to quarantine and landed table; taken: the table with the records, if any."""
        for table in (self.table, self.quarantine.table):
            records_at(place_of(table.path).parent).create()  # before Spark does
        version = None if taken is None else taken.version()
        mark = Mark(self._application, reading.mark(landing), self._metadata(reading, landing))
        replaces_all = landing == 1 and reading.number > 0 and self.table.version() is not None
        split = None
        counts = LandedCounts()
        if taken is not None and version is not None:
            split = Split(self.stream, self._schema, taken.at(version))
            counts = LandedCounts(*split.counts()) if split.can_fail else LandedCounts(self._rows_in(taken, version))
        if replaces_all:
            self._check_loss(reading, landing, counts)
        if split is not None:
            self._quarantine_malformed(split, counts.malformed, mark, replaces_all=replaces_all)
        rows = self._no_rows() if split is None else split.rows(all_fit=counts.malformed == 0)
        if replaces_all:
            self._replace(reading, rows, mark)
        elif split is not None and self.stream.key is not None and self.table.version() is not None:
            self._merge(split, mark)
        else:
            self.table.append(rows, mark, None, name_mapping=needs_mapping(rows.columns))
        reading.note(landing, self.stream.identity)
        reading.clear(landing)
        return counts

    def _check_loss(self, reading: Reading, landing: int, counts: LandedCounts) -> None:
        """Raise SourceError before a replay replaces more records than the stream has now.

        A replay that has begun is not checked again. With a key, the number of messages is not that of landed rows.
        """
        version = self.table.version()
        begun = split_mark(self._last_mark())[0] == reading.number
        if self.allow_loss or begun or self.stream.key is not None or version is None:
            return
        landed = self._rows_in(self.table, version) + self.quarantine.size()
        now = counts.rows + counts.malformed
        if now < landed:
            reading.remove_tables(landing)
            raise SourceError(
                f"source {self.name} was not replayed: its stream has {now:,} records now, and {landed:,} were landed, "
                f"so at least {landed - now:,} would be lost. Land it without a replay, or replay it with "
                "--allow-loss (allow_loss=True in Python), which replaces the landed rows nevertheless."
            )

    def _replace(self, reading: Reading, rows: DataFrame, mark: Mark) -> None:
        """Replace all rows of the landed table.

        From the first commit on, the new reading is the current one; readers see the old rows until the second one.
        """
        self.table.touch(Mark(mark.application, reading.mark(0), mark.metadata))
        self.table.replace_where(rows, "true", mark.metadata, None, reshape=self._is_reshaped())
        if self.quarantine.size() and self.quarantine.table.epoch(mark.application) != mark.epoch:
            self.quarantine.clear("true")
        self.table.touch(mark)

    def _merge(self, split: Split, mark: Mark) -> None:
        """Replace and delete the rows of keys by their latest messages."""
        key = quoted(self.stream.key or "")
        values = {quoted(name): f"u.{quoted(name)}" for name in self._schema.names}
        clauses = [
            Clause("delete", f"u.{DELETED}", {}),
            Clause("update", None, values),
            Clause("insert", f"NOT u.{DELETED}", values),
        ]
        with computed_once(split.latest()) as latest:
            self.table.merge(latest, f"t.{key} = u.{key}", clauses, mark)

    def _quarantine_malformed(self, split: Split, count: int, mark: Mark, *, replaces_all: bool) -> None:
        """Add malformed records to the quarantine. Raises SourceError if they are not to be quarantined."""
        table = self.quarantine.table
        if not count or (table.version() is not None and (table.epoch(mark.application) or 0) >= mark.epoch):
            return
        if self.stream.malformed == "fail":
            raise malformed_error(self.name, split, count)
        limit = self.stream.quarantine_limit
        size = 0 if replaces_all else self.quarantine.size()
        if size + count > limit:
            raise malformed_error(
                self.name, split, count, f", and more than the {limit:,} rows that its quarantine may have"
            )
        partition = F.lit(UNPARTITIONED).alias("partition")
        now = F.current_timestamp().alias("quarantined_at")
        self.quarantine.add(split.malformed().select(partition, "*", now), mark, replaces_all=replaces_all)

    def _rows_in(self, taken: Table, version: int) -> int:
        """Return the number of rows of a version, from its log where that has it."""
        rows = taken.rows(version)
        return taken.at(version).count() if rows is None else rows

    def _no_rows(self) -> DataFrame:
        return cast(DataFrame, cast(Any, self.spark).createDataFrame([], self._schema))

    def _metadata(self, reading: Reading, landing: int) -> str:
        return json.dumps({"deltafold": "stream", "source": self.name, "reading": reading.number, "landing": landing})

    @property
    def _application(self) -> str:
        return f"stream/{self.name}"

    @property
    def _landed_types(self) -> dict[str, str]:
        return catalyst.types_of(self.table.schema())

    def _is_reshaped(self) -> bool:
        """Return whether the landed table has another schema than the declared one."""
        return self.table.version() is not None and self._landed_types != catalyst.types_of(self._schema)

    @cached_property
    def _schema(self) -> StructType:
        """The declared schema. Raises SourceError for one that the format excludes."""
        schema = declared_schema(self.name, self.stream)
        if self.stream.format == "text" and [field.dataType for field in schema] != [StringType()]:
            raise SourceError(
                f"source {self.name}: a stream of text has one column of type STRING, its lines. Declare that, and "
                "split it in the query."
            )
        if self.stream.format == KAFKA and (fault := column_fault(schema, self.stream.key)):
            raise SourceError(f"source {self.name}: {fault}.")
        return schema


def _describe_identity(identity: Mapping[str, str]) -> str:
    """Return a stream's identity for a message."""
    return ", ".join(value for value in identity.values() if value)
