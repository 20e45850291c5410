"""Keep the rows of input files that do not fit their schema, in a Delta table.

| column | type | what |
| --- | --- | --- |
| partition | STRING | the partition's key, * where the source has none |
| file | STRING | the path of the file |
| line | BIGINT | where the row begins in it, from 1; NULL if unknown |
| row | STRING | the row as in the file |
| reason | STRING | why it does not fit |
| quarantined_at | TIMESTAMP | when |

A partition's rows are replaced with the partition, so the table holds what the last landing of each left out. It is
bounded: what would take it beyond its limit is not landed at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.sources import Files, Stream
from deltafold.algebra.sqltext import literal
from deltafold.lake.protocol import Mark, Table
from deltafold.landing.folder import Partition
from deltafold.landing.malformed.line_numbers import with_lines
from deltafold.landing.reader import FileReader
from deltafold.spark import catalyst

SCHEMA = "partition STRING, file STRING, line BIGINT, row STRING, reason STRING, quarantined_at TIMESTAMP"


@dataclass(frozen=True)
class Quarantine:
    """The quarantine of one source."""

    files: Files | Stream
    table: Table

    def rows(self) -> DataFrame:
        """Return the rows; there may be none."""
        version = self.table.version()
        empty = cast(Any, self.table.spark).createDataFrame([], SCHEMA)
        return cast(DataFrame, empty) if version is None else self.table.at(version)

    def counts(self) -> dict[str, int]:
        """Return the number of its rows by partition; partitions without any are left out."""
        if self.table.version() is None:
            return {}
        found = self.rows().groupBy("partition").count().collect()
        return dict(sorted((str(row[0]), int(row[1])) for row in found))

    def size(self) -> int:
        """Return the number of its rows, from Delta's log alone."""
        version = self.table.version()
        rows = 0 if version is None else self.table.rows(version)
        return sum(self.counts().values()) if rows is None else rows

    def refusal(self, malformed: DataFrame, total: int) -> str:
        """Return why rows are not quarantined, or nothing; total: the number of rows it would then hold."""
        limit = self.files.quarantine_limit
        if total > limit:
            return f"more than the {limit:,} rows that its quarantine may hold would be in it"
        if self.files.format == "json" and not malformed.where(F.ltrim("row").startswith("[")).isEmpty():
            return "a line with several rows is not quarantined"
        return ""

    def replace(
        self, records: FileReader, malformed: DataFrame, partitions: Sequence[Partition], condition: str
    ) -> None:
        """Take in the malformed rows of partitions in place of those that a condition (see `rows_of`) selects."""
        files = {str(row[0]) for row in malformed.select("file").distinct().collect()}
        read = [str(records.place_of(path)) for partition in partitions for path in partition.paths]
        paths = [path for path in read if path in files]
        numbered = with_lines(self.table.spark, malformed, paths, records.options)
        below = F.substr("file", F.lit(len(str(records.place)) + 1))
        placed = numbered.withColumn("file", F.concat(F.lit(records.files.path), below))
        dated = placed.withColumn("quarantined_at", F.current_timestamp())
        self._write(dated.select(*catalyst.schema_of(SCHEMA).names), condition)

    def add(self, rows: DataFrame, mark: Mark, alone: bool) -> None:
        """Add rows of this schema, or replace all by them; skipped where the mark's epoch has been written."""
        (self.table.overwrite if alone else self.table.append)(rows.repartition(1), mark, None)

    def clear(self, condition: str) -> None:
        """Delete rows."""
        self._write(self.rows().limit(0), condition)

    def _write(self, rows: DataFrame, condition: str) -> None:
        one_file = rows.repartition(1).sortWithinPartitions("partition", "file", "line")
        self.table.replace_where(one_file, condition, '{"deltafold": "quarantine"}', None)


def rows_of(partitions: Iterable[str]) -> str:
    """Return the SQL condition of the rows of some partitions."""
    return f"`partition` IN ({', '.join(map(literal, partitions))})"
