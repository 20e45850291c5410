"""Keep the rows of input files that do not fit their schema, in a Delta table (D-027).

| column | type | value |
| --- | --- | --- |
| partition | STRING | the partition's key, * if the source has no partitions |
| file | STRING | the path of the file |
| line | BIGINT | the number of the row's first line, from 1; NULL if unknown |
| row | STRING | the row as in the file |
| reason | STRING | why it does not fit |
| quarantined_at | TIMESTAMP | when it was quarantined |

A partition's rows are replaced with the partition, so these are the rows that the last landing of each left out. A
landing with which there would be more rows than the limit is refused.

Spark's readers do not report line numbers, so the files are read once more as lines. Spark splits a file into blocks
and reads each in order: a line's number is its position in the block, plus the lines of the blocks before. A row is
identified by the text of its first line; if other lines of the file are equal, its line is unknown and stays NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from deltafold.algebra.sources import Files, Stream
from deltafold.algebra.sqltext import literal
from deltafold.lake.protocol import Mark, Table
from deltafold.landing.folder import Partition
from deltafold.landing.reader import BLOCK, FILE, FIXED, POSITION, FileReader, add_origin, split_into_loads
from deltafold.spark import catalyst

SCHEMA = "partition STRING, file STRING, line BIGINT, row STRING, reason STRING, quarantined_at TIMESTAMP"
FIRST_LINE = r"^[\r\n]*([^\r\n]*)"
LINE_OPTIONS = {"linesep", "encoding", "charset"}  # options of other formats that define where a line ends


@dataclass(frozen=True)
class Quarantine:
    """The quarantine of one source."""

    files: Files | Stream
    table: Table

    def rows(self) -> DataFrame:
        """Return its rows."""
        version = self.table.version()
        empty = cast(Any, self.table.spark).createDataFrame([], SCHEMA)
        return cast(DataFrame, empty) if version is None else self.table.at(version)

    def counts(self) -> dict[str, int]:
        """Return the number of its rows by partition, without partitions that have none."""
        if self.table.version() is None:
            return {}
        counts = self.rows().groupBy("partition").count().collect()
        return dict(sorted((str(row[0]), int(row[1])) for row in counts))

    def size(self) -> int:
        """Return the number of its rows, from Delta's log alone."""
        version = self.table.version()
        rows = 0 if version is None else self.table.rows(version)
        return sum(self.counts().values()) if rows is None else rows

    def refusal(self, reader: FileReader, malformed: DataFrame, total: int) -> str:
        """Return why rows cannot be quarantined, or nothing; total: the number of rows that it would have then."""
        limit = self.files.quarantine_limit
        if total > limit:
            return f"more than the {limit:,} rows that its quarantine may have would be in it"
        if self.files.format == "json" and (several := malformed.where(F.ltrim("row").startswith("[")).first()):
            return f"a line with several rows is not quarantined, as in {reader.with_original_paths(several['file'])}"
        return ""

    def replace(
        self, reader: FileReader, malformed: DataFrame, partitions: Sequence[Partition], condition: str
    ) -> None:
        """Replace the rows that a condition (see `rows_of`) selects by the malformed rows of partitions."""
        files = {str(row[0]) for row in malformed.select("file").distinct().collect()}
        read = [str(reader.staged_path(path)) for partition in partitions for path in partition.paths]
        paths = [path for path in read if path in files]
        rows = _add_line_numbers(self.table.spark, malformed, paths, reader.options)
        below = F.substr("file", F.lit(len(str(reader.staged)) + 1))
        rows = rows.withColumn("file", F.concat(F.lit(reader.files.path), below))
        rows = rows.withColumn("quarantined_at", F.current_timestamp())
        self._write(rows.select(*catalyst.schema_of(SCHEMA).names), condition)

    def add(self, rows: DataFrame, mark: Mark, *, replaces_all: bool) -> None:
        """Add rows of this schema, or replace all by them, unless the mark's epoch has been written."""
        (self.table.overwrite if replaces_all else self.table.append)(rows.repartition(1), mark, None)

    def clear(self, condition: str) -> None:
        """Delete rows."""
        self._write(self.rows().limit(0), condition)

    def _write(self, rows: DataFrame, condition: str) -> None:
        one_file = rows.repartition(1).sortWithinPartitions("partition", "file", "line")
        self.table.replace_where(one_file, condition, '{"deltafold": "quarantine"}', None)


def rows_of(partitions: Iterable[str]) -> str:
    """Return the SQL condition of the rows of some partitions."""
    return f"`partition` IN ({', '.join(map(literal, partitions))})"


def _add_line_numbers(
    spark: SparkSession, rows: DataFrame, paths: Sequence[str], options: Mapping[str, str]
) -> DataFrame:
    """Add `line`, a BIGINT from 1 or NULL, to rows of file, row and POSITION.

    paths: their files; options: those with which the files are read.
    """
    header = {name.lower(): value.lower() for name, value in options.items()}.get("header") == "true"
    rows_with_text = rows.withColumn("text", F.regexp_extract("row", FIRST_LINE, 1))
    wanted = rows_with_text.groupBy("file", "text").agg(F.count("*").alias("copies"))
    numbers = _number_lines(_read_lines(spark, paths, options), wanted, header=header)
    unique = wanted.join(numbers, ["file", "text"]).where(F.size("lines") == F.col("copies"))
    order = Window.partitionBy("file", "text").orderBy(POSITION)
    copies = rows_with_text.withColumn("copy", F.row_number().over(order)).join(unique, ["file", "text"], "left")
    return copies.withColumn("line", F.get("lines", F.col("copy") - 1)).select(*rows.columns, "line")


def _read_lines(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """Return every line: file, block (its offset in the file), `at` (the order in the block) and text."""
    line_options = {name: value for name, value in options.items() if name.lower() in LINE_OPTIONS}
    reader = spark.read.format("text").options(**line_options, **FIXED)
    read = reduce(DataFrame.unionByName, map(add_origin, map(reader.load, split_into_loads(paths))))
    return read.select(
        F.col(FILE).alias("file"),
        F.col(BLOCK).alias("block"),
        F.col(POSITION).alias("at"),
        F.col("value").alias("text"),
    )


def _number_lines(lines: DataFrame, wanted: DataFrame, *, header: bool) -> DataFrame:
    """Return the numbers of the lines with each wanted text of a file, in order; header: the first is not a row."""
    marks = F.broadcast(wanted.select("file", "text", F.lit(col=True).alias("wanted")))
    marked = lines.join(marks, ["file", "text"], "left")
    hit = F.when(F.col("wanted"), F.struct("text", "at"))
    blocks = marked.groupBy("file", "block").agg(
        F.count("*").alias("lines"), F.min("at").alias("first"), F.collect_list(hit).alias("hits")
    )
    before = Window.partitionBy("file").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    counted = blocks.withColumn("before", F.coalesce(F.sum("lines").over(before), F.lit(0)))
    numbered = counted.select("file", "before", "first", F.inline("hits")).withColumn(
        "line", F.col("before") + F.col("at") - F.col("first") + 1
    )
    rows = numbered.where(F.col("line") > 1) if header else numbered
    return rows.groupBy("file", "text").agg(F.sort_array(F.collect_list("line")).alias("lines"))
