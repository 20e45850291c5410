"""Read input files as rows: lazy DataFrames of the partitions of a `Files` source.

| method | Spark's mode | a row that does not fit the declared schema |
| --- | --- | --- |
| `all` | FAILFAST | fails the read |
| `fitting` | PERMISSIVE | is left out |
| `malformed` | PERMISSIVE | is returned as text, with file and reason |

Both modes use one parser: FAILFAST fails at the rows that PERMISSIVE marks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, assert_never, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sources import Files, Format, Stream
from deltafold.algebra.sqltext import quoted
from deltafold.landing.decompression import is_compressed
from deltafold.landing.folder import HIVE_NULL, UNPARTITIONED, Partition, spark_value
from deltafold.landing.formats import FORMAT_DEFAULTS, is_single_variant, is_text, read_columns, spark_name
from deltafold.landing.malformed import CORRUPT, PERMISSIVE, VALUE_LIMIT, MalformedReason
from deltafold.landing.preflight.text_survey import LONGEST
from deltafold.spark import catalyst
from deltafold.spark.catalyst import JavaError
from deltafold.spark.java_errors import causes, first_line
from deltafold.spark.jvm.jars import add_jars, avro_package

# columns of the origin of a row: its file, where its block begins, its order in the block, and its partition's key
FILE = "__file"
BLOCK = "__block"
POSITION = "__position"
PARTITION = "__partition"
WILDCARDS = set("[]{}*?\\")
FIXED = {  # a source cannot declare these options (algebra/sources/files.py): every row of every file is read
    "mode": "FAILFAST",
    "__globPaths__": "false",  # [ ] { } * ? in a name are not wildcards
    "recursiveFileLookup": "false",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
SESSION_TIME_ZONE = "spark.sql.session.timeZone"
INSTANT = re.compile(r"\b(timestamp|variant)\b")  # also within an array or a struct; a VARIANT of CSV may hold one
FOLDER_VALUE = "(?s)/[^/=]*=([^/]*)/[^/]*$"  # the value in the folder's name, in the path of a file


@dataclass(frozen=True, kw_only=True)
class FileReader:
    """Reads the files of one source by its declared schema.

    root: the folder of the partitions, which is the source's own or one with copies; staged: the folder from which they
    are read, with the same paths below it (input_folder.py).
    """

    spark: SparkSession
    files: Files
    schema: StructType
    root: Path
    staged: Path

    def all(self, partitions: Sequence[Partition]) -> DataFrame:
        """Return the rows of partitions; reading them fails at a malformed row."""
        if not partitions:
            return cast(DataFrame, cast(Any, self.spark).createDataFrame([], self.schema))
        return self._cast(self._partitions(partitions, {}), partitions)

    def fitting(self, partitions: Sequence[Partition]) -> DataFrame:
        """Return the well-formed rows."""
        return self._cast(self._partitions(partitions, PERMISSIVE).where(F.col(CORRUPT).isNull()), partitions)

    def with_origin(self, partitions: Sequence[Partition], *, permissive: bool) -> DataFrame:
        """Return the rows, or if permissive the well-formed ones, with PARTITION, FILE and POSITION."""
        read = self._partitions(partitions, PERMISSIVE if permissive else {}, origin=True)
        read = read.where(F.col(CORRUPT).isNull()) if permissive else read
        read = read.withColumn(PARTITION, self._partition_text(partitions))
        return self._cast(read, partitions, (PARTITION, FILE, POSITION))

    def malformed(self, partitions: Sequence[Partition]) -> DataFrame:
        """Return the malformed rows: partition, file, row (as in the file), reason, and POSITION."""
        read = self._partitions(partitions, PERMISSIVE, origin=True).where(F.col(CORRUPT).isNotNull())
        return read.select(
            self._partition_text(partitions).alias("partition"),
            F.col(FILE).alias("file"),
            F.col(CORRUPT).alias("row"),
            MalformedReason(self.files.format, self._own, self.options).column().alias("reason"),
            POSITION,
        )

    def staged_path(self, path: Path) -> Path:
        """Return the path from which a file of the source's folder is read."""
        return self.staged / path.relative_to(self.root)

    def with_original_paths(self, text: str) -> str:
        """Replace the paths of read files in a text by those in the source's folder."""
        return text.replace(str(self.staged), self.files.path)

    def first_malformed(self, path: Path) -> str | None:
        """Return the first malformed row of a file, as in the file; None if unknown."""
        try:
            row = self._read(self._own, [str(path)], PERMISSIVE).where(F.col(CORRUPT).isNotNull()).first()
        except JavaError:
            return None
        return None if row is None else str(row[CORRUPT])

    @property
    def options(self) -> dict[str, str]:
        """Spark's reader options, without those of the mode."""
        return {**FORMAT_DEFAULTS.get(self.files.format, {}), **self.files.options}

    @property
    def settings(self) -> dict[str, str]:
        """The session settings on which rows depend: the time zone, if it defines the instant of a text."""
        is_parsed = is_text(self.files.format)
        parsed = [
            field.dataType.simpleString() for field in self.schema if is_parsed or field.name == self.files.partition_by
        ]
        if not any(map(INSTANT.search, parsed)):
            return {}
        return {SESSION_TIME_ZONE: str(self.spark.conf.get(SESSION_TIME_ZONE))}

    @property
    def _own(self) -> list[StructField]:
        """The columns that are in the files."""
        return [StructField(f.name, f.dataType) for f in self.schema if f.name != self.files.partition_by]

    def _partitions(
        self, partitions: Sequence[Partition], settings: Mapping[str, str], *, origin: bool = False
    ) -> DataFrame:
        """Read the files of partitions, the partition column as text."""
        column = self.files.partition_by
        fields = read_columns(self.files.format, self._own)
        paths = [str(self.staged_path(path)) for partition in partitions for path in partition.paths]
        if column is None:
            return self._read(fields, paths, settings, origin=origin)
        if is_single_variant(self.options):  # Spark reads no other column beside it
            read = self._read(fields, paths, settings, origin=True)
            read = read.withColumn(column, F.regexp_extract(FILE, FOLDER_VALUE, 1))
            return read if origin else read.drop(FILE, BLOCK, POSITION)
        settings = {"basePath": str(self.staged), **settings}
        return self._read([*fields, StructField(column, StringType())], paths, settings, origin=origin)

    def _read(
        self, fields: list[StructField], paths: list[str], settings: Mapping[str, str], *, origin: bool = False
    ) -> DataFrame:
        """Read files by a schema and, if permissive, a column of malformed rows; origin: adds that of each row."""
        corrupt = [StructField(CORRUPT, StringType())] if settings.get("mode") == "PERMISSIVE" else []
        options = {**_value_limit(self.files.format, paths), **self.options, **FIXED, **settings}
        if self.files.format == "avro":
            add_jars(self.spark, avro_package())
        reader = self.spark.read.schema(StructType([*fields, *corrupt])).options(**options)
        frames = map(reader.format(spark_name(self.files.format)).load, split_into_loads(paths))
        return reduce(DataFrame.unionByName, map(add_origin, frames) if origin else frames)

    def _partition_text(self, partitions: Sequence[Partition]) -> Column:
        """Return the key of a row's partition for the quarantine."""
        if self.files.partition_by is None:
            return F.lit(UNPARTITIONED)
        return F.coalesce(self._key(partitions), F.lit(HIVE_NULL))

    def _cast(self, frame: DataFrame, partitions: Sequence[Partition], others: Sequence[str] = ()) -> DataFrame:
        """Return the declared columns in their order, and some others of the frame."""
        column = self.files.partition_by
        values = {field.name: F.col(quoted(field.name)) for field in self.schema}
        if self.files.format == "binary" and "path" in values:
            below = F.substr(F.regexp_replace("path", "^file:/+", "/"), F.lit(len(str(self.staged)) + 1))
            values["path"] = F.concat(F.lit(self.files.path), below)
        if column is not None:
            values[column] = self._key(partitions).cast(self.schema[column].dataType)
        return frame.select(*(value.alias(name) for name, value in values.items()), *others)

    def _key(self, partitions: Sequence[Partition]) -> Column:
        """Return the key of a row's partition as text, NULL for Hive's default partition."""
        assert self.files.partition_by is not None
        raw = value = F.col(quoted(self.files.partition_by))
        for partition in partitions:
            if partition.key not in (HIVE_NULL, read_as := self._folder_value(partition.folder)):
                value = F.when(raw == F.lit(read_as), F.lit(partition.key)).otherwise(value)
        return value

    def _folder_value(self, folder: Path) -> str:
        """Return the value that Spark reads from the name of a partition's folder."""
        return folder.name.partition("=")[2] if is_single_variant(self.options) else spark_value(folder)


def split_into_loads(paths: Sequence[str]) -> list[list[str]]:
    """Split paths into loads: with wildcards off, Spark reads all files again for each path that looks like one."""
    plain = [path for path in paths if not WILDCARDS & set(path)]
    return ([plain] if plain else []) + [[path] for path in paths if WILDCARDS & set(path)]


def _value_limit(format: Format, paths: Sequence[str]) -> dict[str, str]:
    """Return the reader option that bounds a value of these files; empty for formats other than CSV."""
    match format:
        case "csv":
            return {VALUE_LIMIT: str(_longest_value(paths))}
        case "json" | "xml" | "text" | "parquet" | "orc" | "avro" | "binary":
            return {}
        case _:
            assert_never(format)


def _longest_value(paths: Sequence[str]) -> int:
    """Return the most characters that a CSV value may have; without a limit, an unclosed quote would fill the memory.

    Spark allocates them for each file that it reads, so the limit is not above the size of the largest file.
    """
    files = [Path(path) for path in paths]
    if any(is_compressed(file) for file in files):
        return LONGEST
    return max(1, min(LONGEST, max(map(_file_size, files), default=0)))


def _file_size(file: Path) -> int:
    """Return the bytes of a file; 0 if it is gone, which Spark will report."""
    return file.stat().st_size if file.exists() else 0


def add_origin(frame: DataFrame) -> DataFrame:
    """Add FILE, BLOCK and POSITION to each row."""
    block = frame.metadataColumn("_metadata")["file_block_start"]
    order = F.monotonically_increasing_id()
    return frame.select("*", file_path(frame).alias(FILE), block.alias(BLOCK), order.alias(POSITION))


def file_path(frame: DataFrame) -> Column:
    """Return the path of a row's file, which Spark gives as a URI."""
    path = F.regexp_replace(frame.metadataColumn("_metadata")["file_path"], "^file:/+", "/")
    return F.url_decode(F.replace(path, F.lit("+"), F.lit("%2B")))


def declared_schema(source: str, files: Files | Stream) -> StructType:
    """Return the schema of a landed source. Raises SourceError if Spark cannot parse it."""
    try:
        schema = catalyst.schema_of(files.schema)
    except JavaError as error:
        reason = next((line for line in map(first_line, causes(error)) if line), "it does not parse")
        raise SourceError(
            f"source {source}: invalid schema {files.schema!r}: {reason.rstrip('.')}. Correct it."
        ) from error
    if not schema.names:
        raise SourceError(f"source {source}: declared without columns. Give it a schema such as 'id INT, day DATE'.")
    return schema
