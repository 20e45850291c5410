"""Close old event time: rows that arrive too late are refused or quarantined, and landed ones stay.

A source with `expire` closes the event time before its horizon: the newest event time that is landed, less the declared
duration. Landed rows there stay, even if their files are changed or removed.

| row before the horizon | in the landed table | a landing |
| --- | --- | --- |
| in the files | as often | keeps it |
| in the files | not, or less often | refuses or quarantines it: it is *late* |
| no longer in a file | yes | keeps it |

A row without an event time is never closed. Rows are compared by their JSON, since maps and variants have no equality.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from deltafold.algebra.sources import Expire
from deltafold.algebra.sqltext import literal, quoted
from deltafold.lake.protocol import Table
from deltafold.landing.reader import FILE, PARTITION, POSITION

FILE_ROW, IN_FILES, LANDED = "__row", "__in_files", "__landed"
WITH_ZONE = "yyyy-MM-dd HH:mm:ss.SSSSSSXXX"
MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
JSON_OPTIONS = {
    "ignoreNullFields": "false", "timestampFormat": f"{MICROSECONDS}XXX", "timestampNTZFormat": MICROSECONDS
}  # fmt: skip


@dataclass(frozen=True)
class Lateness:
    """Counts of rows before the horizon: late ones, and landed ones that are no longer in a file."""

    late: int
    kept: int


@dataclass(frozen=True, kw_only=True)
class Horizon:
    """The horizon of one landing.

    table: the landed one, at a version; schema: the declared one, which the table has; replaced: the SQL condition of
    the rows that the landing replaces.
    """

    expire: Expire
    table: Table
    version: int
    schema: StructType
    replaced: str

    @cached_property
    def value(self) -> str | None:
        """The horizon as text; None before an event time is landed. Runs one job at most."""
        newest = self.table.at(self.version).agg(F.max(quoted(self.expire.column)).alias("newest"))
        edge = F.col("newest") - F.expr(f"INTERVAL '{self.expire.count}' {self.expire.unit}")
        edge = edge.cast(self._type)
        text = F.date_format(edge, WITH_ZONE) if self._type == "timestamp" else edge.cast("string")
        (row,) = newest.select(text.alias("edge")).collect()
        return None if row["edge"] is None else str(row["edge"])

    @property
    def closed(self) -> Column:
        """Whether a row is before the horizon."""
        if self.value is None:
            return F.lit(col=False)
        edge = F.expr(f"CAST({literal(self.value)} AS {self._type})")
        return F.coalesce(F.col(quoted(self.expire.column)) < edge, F.lit(col=False))

    def closed_rows(self) -> DataFrame:
        """Return the closed rows among those that are replaced."""
        return self.table.at(self.version).where(self.replaced).where(self.closed).select(*self._columns)

    def lateness(self, rows: DataFrame) -> Lateness:
        """Count late and kept rows, by one job; rows: all that fit in the files."""
        counts = [
            self._as_text(frame).groupBy(FILE_ROW).agg(F.count(F.lit(1)).alias(name))
            for frame, name in ((rows.where(self.closed), IN_FILES), (self.closed_rows(), LANDED))
        ]
        both = counts[0].join(counts[1], FILE_ROW, "full").na.fill(0)
        more, fewer = (F.greatest(F.col(a) - F.col(b), F.lit(0)) for a, b in ((IN_FILES, LANDED), (LANDED, IN_FILES)))
        (sums,) = both.agg(F.sum(more).alias("late"), F.sum(fewer).alias("kept")).collect()
        return Lateness(sums["late"] or 0, sums["kept"] or 0)

    def late_rows(self, rows: DataFrame) -> DataFrame:
        """Return the late rows of files, the last ones among equal rows, for the quarantine.

        Columns: partition, file, row (as JSON), reason, and POSITION.
        """
        landed = self._as_text(self.closed_rows()).groupBy(FILE_ROW).agg(F.count(F.lit(1)).alias(LANDED))
        order = Window.partitionBy(FILE_ROW).orderBy(FILE, POSITION)
        numbered = self._as_text(rows.where(self.closed)).withColumn(IN_FILES, F.row_number().over(order))
        late = numbered.join(landed, FILE_ROW, "left").where(F.col(IN_FILES) > F.coalesce(F.col(LANDED), F.lit(0)))
        return late.select(
            F.col(PARTITION).alias("partition"),
            F.col(FILE).alias("file"),
            F.col(FILE_ROW).alias("row"),
            F.lit(self._reason).alias("reason"),
            POSITION,
        )

    def replacement(self, rows: DataFrame) -> DataFrame:
        """Return the rows to land: open ones of the files, and closed ones as they were landed."""
        return rows.where(~self.closed).select(*self._columns).unionByName(self.closed_rows())

    @property
    def _reason(self) -> str:
        """Why rows are late."""
        return f"its {self.expire.column} is before {self.value}, {self.expire.after} before the newest landed one"

    @property
    def _type(self) -> str:
        return self.schema[self.expire.column].dataType.simpleString()

    @property
    def _columns(self) -> list[str]:
        return [quoted(name) for name in self.schema.names]

    def _as_text(self, rows: DataFrame) -> DataFrame:
        return rows.withColumn(FILE_ROW, F.to_json(F.struct(*self._columns), JSON_OPTIONS))
