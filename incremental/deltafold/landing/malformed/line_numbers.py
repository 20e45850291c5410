"""Find the line at which a row begins in its text file.

Spark's readers do not report it, so the files are read once more as lines. Spark splits a file into blocks and reads
each in order: a line's number is its position in the block, plus the lines of the blocks before. A row is identified by
the text of its first line; where other lines of the file are equal, its line is unknown and stays NULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from deltafold.landing.reader import BLOCK, FILE, FIXED, PLACE, split_into_loads, with_origin

FIRST_LINE = r"^[\r\n]*([^\r\n]*)"
READ_LIKE = {"linesep", "encoding", "charset"}
"""The options of other formats that define where a line ends."""


def with_lines(spark: SparkSession, rows: DataFrame, paths: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """Add `line`, a BIGINT from 1 or NULL, to a few rows (file, row, PLACE: their order in a file).

    paths: the files that they stand in; options: those the files are read with.
    """
    header = {name.lower(): value.lower() for name, value in options.items()}.get("header") == "true"
    named = rows.withColumn("text", F.regexp_extract("row", FIRST_LINE, 1))
    wanted = named.groupBy("file", "text").agg(F.count("*").alias("copies"))
    found = matches(lines_of(spark, paths, options), wanted, header)
    unique = wanted.join(found, ["file", "text"]).where(F.size("lines") == F.col("copies"))
    order = Window.partitionBy("file", "text").orderBy(PLACE)
    numbered = named.withColumn("number", F.row_number().over(order)).join(unique, ["file", "text"], "left")
    return numbered.withColumn("line", F.get("lines", F.col("number") - 1)).select(*rows.columns, "line")


def lines_of(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """Return every line: file, block (where it begins in the file), `at` (its order in the block) and text."""
    reading = {name: value for name, value in options.items() if name.lower() in READ_LIKE}
    reader = spark.read.format("text").options(**reading, **FIXED)
    read = reduce(DataFrame.unionByName, map(with_origin, map(reader.load, split_into_loads(paths))))
    return read.select(
        F.col(FILE).alias("file"), F.col(BLOCK).alias("block"), F.col(PLACE).alias("at"), F.col("value").alias("text")
    )


def matches(lines: DataFrame, wanted: DataFrame, header: bool) -> DataFrame:
    """Match each text of a file with the numbers of its lines, in order; header: the first line is not a row."""
    marks = F.broadcast(wanted.select("file", "text", F.lit(True).alias("wanted")))
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
