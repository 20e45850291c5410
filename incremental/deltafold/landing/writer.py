"""Write one landing: the changed partitions of the landed table and of its quarantine.

Both replace partitions as a whole, each in its own commit. A row is added to the quarantine before the commit that
leaves it out of the table, and removed from it after the commit that adds it to the table. The first attempt fails at a
malformed row, so files without any are read once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sqltext import literal, quoted
from deltafold.lake.protocol import Table
from deltafold.landing.decompression import decompress
from deltafold.landing.folder import HIVE_NULL, Partition
from deltafold.landing.formats import marks_rows
from deltafold.landing.horizon import Horizon
from deltafold.landing.malformed import BARE_QUOTE, file_of, line_of, reason_of, shorten
from deltafold.landing.preflight.text_survey import TextOptions, bare_quote_line, has_rows_of_lines
from deltafold.landing.quarantine import Quarantine, rows_of
from deltafold.landing.reader import POSITION, FileReader
from deltafold.spark.catalyst import JavaError
from deltafold.spark.checkpoint import computed_once
from deltafold.spark.java_errors import causes


@dataclass(frozen=True)
class Written:
    """The number of rows that a landing wrote; late, kept: see `Lateness`."""

    rows: int
    late: int = 0
    kept: int = 0


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """Replaces partitions of a source, or all rows.

    changed: those that have files; removed: those that no longer have files; replaces_all: no other partition stays;
    reshaped: the table gets the declared schema and partition column; quarantined: the number of rows in quarantine
    before, by partition.
    """

    name: str
    reader: FileReader
    table: Table
    quarantine: Quarantine
    changed: Sequence[Partition]
    removed: Sequence[str]
    replaces_all: bool
    reshaped: bool
    quarantined: Mapping[str, int]

    def write(self) -> Written:
        """Write both tables. Raises SourceError, with nothing written, for malformed and late rows."""
        horizon = self._horizon()
        if horizon is not None:
            return self._write_open(horizon)
        return Written(self._write_all())

    def _write_all(self) -> int:
        """Write both tables where no event time is closed; returns the rows landed."""
        try:
            rows = self._replace(self.reader.all(self.changed))
        except JavaError as error:
            if self.reader.files.malformed == "fail" or not self.changed:
                raise self._complaint(error) from error
            return self._quarantine_and_land(error)
        self._clear_quarantine()
        return rows

    def _quarantine_and_land(self, error: Exception) -> int:
        """Land the rows that fit, after the others are in quarantine; error: Spark's error for the first of these."""
        try:
            with computed_once(self.reader.malformed(self.changed).limit(self._enough)) as malformed:
                count = malformed.count()
                refusal = self.quarantine.refusal(self.reader, malformed, count + self._others)
                if refusal or not count:
                    raise self._complaint(error, refusal and f", and {refusal}") from error
                self.quarantine.replace(self.reader, malformed, self.changed, self._quarantine_condition)
            return self._replace(self.reader.fitting(self.changed))
        except JavaError as later:
            raise self._complaint(later) from later

    def _horizon(self) -> Horizon | None:
        """Return the horizon; None without `expire`, and before an event time is landed."""
        expire = self.reader.files.expire
        version = self.table.version()
        if expire is None or version is None:
            return None
        if self.reshaped:
            raise SourceError(
                f"source {self.name} was not landed: the schema or the partition column changed, and the declared "
                "`expire` forbids that. Declare the source under another name, or remove `expire` for one replay."
            )
        horizon = Horizon(
            expire=expire, table=self.table, version=version, schema=self.reader.schema, replaced=self._condition
        )
        return None if horizon.value is None else horizon

    def _write_open(self, horizon: Horizon) -> Written:
        """Land the open rows, after late ones are in quarantine; closed rows stay."""
        quarantines = self.reader.files.malformed == "quarantine" and bool(self.changed)
        try:
            rows = (self.reader.fitting if quarantines else self.reader.all)(self.changed)
            lateness = horizon.lateness(rows)
            if quarantines:
                self._quarantine_with_late(horizon)
            elif lateness.late:
                raise self._refuse_late(horizon, lateness.late)
            else:
                self._clear_quarantine()
            return Written(self._replace(horizon.replacement(rows)), lateness.late, lateness.kept)
        except JavaError as error:
            raise self._complaint(error) from error

    def _quarantine_with_late(self, horizon: Horizon) -> None:
        """Put malformed and late rows in quarantine, in place of those of their partitions."""
        late = horizon.late_rows(self.reader.with_origin(self.changed, permissive=True))
        with computed_once(self.reader.malformed(self.changed).unionByName(late).limit(self._enough)) as rows:
            count = rows.count()
            if refusal := self.quarantine.refusal(self.reader, rows, count + self._others):
                raise SourceError(f"source {self.name} was not landed: {refusal}. Correct its files and land again.")
            if count:
                self.quarantine.replace(self.reader, rows, self.changed, self._quarantine_condition)
            else:
                self._clear_quarantine()

    def _clear_quarantine(self) -> None:
        """Delete the rows of the written partitions from the quarantine, if there are any."""
        if sum(self.quarantined.values()) > self._others:
            self.quarantine.clear(self._quarantine_condition)

    def _refuse_late(self, horizon: Horizon, count: int) -> SourceError:
        """Return the error for late rows, which cites the first one."""
        late = horizon.late_rows(self.reader.with_origin(self.changed, permissive=False)).orderBy("file", POSITION)
        (row,) = late.limit(1).collect()
        late_rows = "1 of its rows is late, in" if count == 1 else f"{count:,} of its rows are late, the first one in"
        what = f"source {self.name} was not landed: {late_rows} {self.reader.with_original_paths(str(row['file']))}"
        quarantine = "declare `malformed: quarantine`, or " if marks_rows(self.reader.files.format) else "or declare "
        instead = f"Correct the file, {quarantine}a longer `expire`, and land again."
        return SourceError(
            f"{what}: {row['reason']}, in the row {shorten(row['row'])}. {instead}", f"{what}. {instead}"
        )

    def _replace(self, rows: DataFrame) -> int:
        keys = [partition.key for partition in self.changed]
        metadata = json.dumps({"landed": keys, "removed": [*self.removed]})
        column = self.reader.files.partition_by
        return self.table.replace_where(rows, self._condition, metadata, column, reshape=self.reshaped)

    @property
    def _condition(self) -> str:
        """The SQL condition of the rows that are replaced."""
        column = self.reader.files.partition_by
        if column is None or self.replaces_all:
            return "true"
        return partition_condition(column, self.reader.schema[column].dataType, self._partitions)

    @property
    def _partitions(self) -> list[str]:
        return [*(partition.key for partition in self.changed), *self.removed]

    @property
    def _others(self) -> int:
        """The number of rows in quarantine of partitions that are not written."""
        return 0 if self.replaces_all else sum(n for key, n in self.quarantined.items() if key not in self._partitions)

    @property
    def _enough(self) -> int:
        """The number of malformed rows that is too large for the quarantine: no more are looked for."""
        return max(self.quarantine.files.quarantine_limit - self._others, 0) + 1

    @property
    def _quarantine_condition(self) -> str:
        return "true" if self.replaces_all else rows_of(self._partitions)

    def _complaint(self, error: Exception, refusal: str = "") -> SourceError:
        """Return the error for files that Spark could not read, or a table that it could not write."""
        paths = [self.reader.staged_path(path) for partition in self.changed for path in partition.paths]
        for path in paths:
            path.stat()  # raises for a file that is gone, which is the reason then
        messages = causes(error)
        path = file_of(messages)
        what = f"source {self.name} was not landed"
        reason = self.reader.with_original_paths(reason_of(messages))
        if path not in paths:
            logged = f"{what}: Spark could not read its files or write its table"
            return SourceError(f"{what}: {reason}{refusal}", f"{logged}{refusal}")
        row = self.reader.first_malformed(path) if marks_rows(self.reader.files.format) else None
        if row is None:
            number = self._bare_quote(path) if BARE_QUOTE in reason else None
        else:
            number = line_of(path, row)
        line = "" if number is None else f", line {number},"
        shown = "" if row is None else f" in the row {shorten(row)}"
        misfit = "does not fit the declared schema"
        if self.reader.files.format == "avro":  # its schema was compared with the declared one before
            misfit = f"is damaged, or a value in it {misfit}"
        what = f"{what}: {self.reader.with_original_paths(str(path))}{line} {misfit}"
        fix = f"{refusal}. Correct the file, or the schema, and land again."
        return SourceError(f"{what}{shown}: {reason}{fix}", f"{what}{fix}")

    def _bare_quote(self, path: Path) -> int | None:
        """Return the line of the row with a quote that is not doubled, or is not closed; None if unknown."""
        options = TextOptions.of("csv", self.reader.options)
        if not has_rows_of_lines(options):
            return None
        with path.open("rb") as file:
            return bare_quote_line(decompress(file, path), options)


def partition_condition(column: str, data_type: DataType, keys: Sequence[str]) -> str:
    """Return the SQL condition of the rows of some partitions; NULL is Hive's default partition."""
    values = [f"CAST({literal(key)} AS {data_type.simpleString()})" for key in keys if key != HIVE_NULL]
    tests = [f"{quoted(column)} IN ({', '.join(values)})"] if values else []
    return " OR ".join(tests + ([f"{quoted(column)} IS NULL"] if HIVE_NULL in keys else []))
