"""Read input files as rows: lazy DataFrames of the partitions of a `Files` source.

| requested | Spark's mode | a row that does not fit the declared schema |
| --- | --- | --- |
| all rows | FAILFAST | fails the read |
| the fitting rows | PERMISSIVE | is left out |
| the malformed rows | PERMISSIVE | is kept as text, with file and reason |

Both modes use one parser: the rows at which the first fails are those that the second marks.
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
from deltafold.landing.malformed.reason import CORRUPT, PERMISSIVE, VALUE_LIMIT, MalformedReason
from deltafold.landing.preflight.text_survey import LONGEST
from deltafold.spark import catalyst
from deltafold.spark.catalyst import JavaError
from deltafold.spark.java_errors import causes, first_line
from deltafold.spark.jvm.jars import add_jars, avro_package

FILE, BLOCK, PLACE, PARTITION = "__file", "__block", "__place", "__partition"
PLACED = (PARTITION, FILE, PLACE)
WILD = set("[]{}*?\\")
# A source cannot declare these options (algebra/sources/files.py): every row of every file is read.
FIXED = {
    "mode": "FAILFAST",
    "__globPaths__": "false",  # [ ] { } * ? in a name are not wildcards
    "recursiveFileLookup": "false",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
SESSION_TIME_ZONE = "spark.sql.session.timeZone"
INSTANT = re.compile(r"\b(timestamp|variant)\b")  # also within an array or a struct; a VARIANT of CSV may hold one
FOLDER_VALUE = "(?s)/[^/=]*=([^/]*)/[^/]*$"  # the value in the folder's name, in the path of a file


@dataclass(frozen=True)
class FileReader:
    """Reads the files of one source by its declared schema.

    root: the folder of the partitions' folders, which is the source's own or that of copies (input_folder.py); place:
    where they are read from, which is that or, while they are landed, another one (staging.py).
    """

    spark: SparkSession
    files: Files
    schema: StructType
    root: Path
    place: Path

    def all(self, partitions: Sequence[Partition]) -> DataFrame:
        """Return the rows of some partitions, possibly none; reading them fails at a malformed row."""
        if not partitions:
            return cast(DataFrame, cast(Any, self.spark).createDataFrame([], self.schema))
        return self._cast(self._partitions(partitions, {}), partitions)

    def fitting(self, partitions: Sequence[Partition]) -> DataFrame:
        """Return the well-formed rows."""
        return self._cast(self._partitions(partitions, PERMISSIVE).where(F.col(CORRUPT).isNull()), partitions)

    def place_rows(self, partitions: Sequence[Partition], permissive: bool) -> DataFrame:
        """Return the rows, or if permissive the well-formed ones, with PARTITION, FILE and PLACE."""
        read = self._partitions(partitions, PERMISSIVE if permissive else {}, places=True)
        read = read.where(F.col(CORRUPT).isNull()) if permissive else read
        return self._cast(read.withColumn(PARTITION, self._partition_text(partitions)), partitions, PLACED)

    def malformed(self, partitions: Sequence[Partition]) -> DataFrame:
        """Return the malformed rows: partition, file, row (as in the file), reason, and in PLACE their order."""
        read = self._partitions(partitions, PERMISSIVE, places=True).where(F.col(CORRUPT).isNotNull())
        details = {
            "partition": self._partition_text(partitions),
            "file": F.col(FILE),
            "row": F.col(CORRUPT),
            "reason": MalformedReason(self.files.format, self._own, self.options).column(),
        }
        return read.select(*(value.alias(name) for name, value in details.items()), PLACE)

    def place_of(self, path: Path) -> Path:
        """Return the path from which a file of the source's folder is read."""
        return self.place / path.relative_to(self.root)

    def with_original_paths(self, text: str) -> str:
        """Replace the paths of read files in a text by those in the source's folder."""
        return text.replace(str(self.place), self.files.path)

    def first_malformed(self, path: Path) -> str | None:
        """Return the first malformed row of a file, as in the file; None if unknown."""
        try:
            found = self._read(self._own, [str(path)], PERMISSIVE).where(F.col(CORRUPT).isNotNull()).first()
        except JavaError:
            return None
        return None if found is None else str(found[CORRUPT])

    @property
    def options(self) -> dict[str, str]:
        """Return Spark's reader options, without those of the mode."""
        return {**FORMAT_DEFAULTS.get(self.files.format, {}), **self.files.options}

    @property
    def settings(self) -> dict[str, str]:
        """Return the session settings on which rows depend: the time zone, if a text or a folder's name gives an
        instant.
        """
        column, text = self.files.partition_by, is_text(self.files.format)
        texts = [field.dataType.simpleString() for field in self.schema if text or field.name == column]
        return (
            {SESSION_TIME_ZONE: str(self.spark.conf.get(SESSION_TIME_ZONE))} if any(map(INSTANT.search, texts)) else {}
        )

    @property
    def _own(self) -> list[StructField]:
        """Return the columns that are in the files."""
        return [StructField(f.name, f.dataType) for f in self.schema if f.name != self.files.partition_by]

    def _partitions(
        self, partitions: Sequence[Partition], settings: Mapping[str, str], places: bool = False
    ) -> DataFrame:
        """Read the files of some partitions, the partition column as text."""
        column = self.files.partition_by
        fields = read_columns(self.files.format, self._own)
        paths = [str(self.place_of(path)) for partition in partitions for path in partition.paths]
        if column is None:
            return self._read(fields, paths, settings, places)
        if is_single_variant(self.options):  # Spark reads no other column beside it
            read = self._read(fields, paths, settings, places=True)
            read = read.withColumn(column, F.regexp_extract(FILE, FOLDER_VALUE, 1))
            return read if places else read.drop(FILE, BLOCK, PLACE)
        base = {"basePath": str(self.place)}
        return self._read([*fields, StructField(column, StringType())], paths, {**base, **settings}, places)

    def _read(
        self, fields: list[StructField], paths: list[str], settings: Mapping[str, str], places: bool = False
    ) -> DataFrame:
        """Read files by a schema and, if permissive, a column of malformed rows; places: see `place_rows`."""
        corrupt = [StructField(CORRUPT, StringType())] if settings.get("mode") == "PERMISSIVE" else []
        options = {**value_limit(self.files.format, paths), **self.options, **FIXED, **settings}
        if self.files.format == "avro":
            add_jars(self.spark, avro_package())
        reader = self.spark.read.schema(StructType([*fields, *corrupt])).options(**options)
        frames = map(reader.format(spark_name(self.files.format)).load, split_into_loads(paths))
        return reduce(DataFrame.unionByName, map(with_origin, frames) if places else frames)

    def _partition_text(self, partitions: Sequence[Partition]) -> Column:
        """Return the key of a row's partition as the quarantine shows it."""
        if self.files.partition_by is None:
            return F.lit(UNPARTITIONED)
        return F.coalesce(self._key(partitions), F.lit(HIVE_NULL))

    def _cast(self, frame: DataFrame, partitions: Sequence[Partition], also: Sequence[str] = ()) -> DataFrame:
        """Return the declared columns in their order, and some others of the frame."""
        column, values = self.files.partition_by, {f.name: F.col(quoted(f.name)) for f in self.schema}
        if self.files.format == "binary" and "path" in values:
            below = F.substr(F.regexp_replace("path", "^file:/+", "/"), F.lit(len(str(self.place)) + 1))
            values["path"] = F.concat(F.lit(self.files.path), below)
        if column is not None:
            values[column] = self._key(partitions).cast(self.schema[column].dataType)
        return frame.select(*(value.alias(name) for name, value in values.items()), *also)

    def _key(self, partitions: Sequence[Partition]) -> Column:
        """Return the key of a row's partition as text, NULL for Hive's default partition."""
        assert self.files.partition_by is not None
        raw = value = F.col(quoted(self.files.partition_by))
        for partition in partitions:
            if partition.key not in (HIVE_NULL, read_as := self._folder_value(partition.folder)):
                value = F.when(raw == F.lit(read_as), F.lit(partition.key)).otherwise(value)
        return value

    def _folder_value(self, folder: Path) -> str:
        """Return the value of a partition that is read for its folder."""
        return folder.name.partition("=")[2] if is_single_variant(self.options) else spark_value(folder)


def split_into_loads(paths: Sequence[str]) -> list[list[str]]:
    """Split paths into loads: with wildcards off, Spark reads all files again for each path that looks like one."""
    plain = [path for path in paths if not WILD & set(path)]
    return ([plain] if plain else []) + [[path] for path in paths if WILD & set(path)]


def value_limit(format: Format, paths: Sequence[str]) -> dict[str, str]:
    """Return the reader option that bounds a value of these files; empty for formats other than CSV."""
    match format:
        case "csv":
            return {VALUE_LIMIT: str(longest_value(paths))}
        case "json" | "xml" | "text" | "parquet" | "orc" | "avro" | "binary":
            return {}
        case _:
            assert_never(format)


def longest_value(paths: Sequence[str]) -> int:
    """Return the characters that a CSV value may have; otherwise a quote that is never closed fills the memory.

    Spark reserves them for each file that it reads, so there are no more of them than the largest file has.
    """
    files = [Path(path) for path in paths]
    if any(is_compressed(file) for file in files):
        return LONGEST
    return max(1, min(LONGEST, max(map(file_size, files), default=0)))


def file_size(file: Path) -> int:
    """Return the bytes of a file; 0 if it is gone, which Spark will report."""
    return file.stat().st_size if file.exists() else 0


def with_origin(frame: DataFrame) -> DataFrame:
    """Add to each row the path of its file, where its block begins, and its order in the block."""
    details = frame.metadataColumn("_metadata")
    # Spark's path is a URI
    path = F.url_decode(F.replace(F.regexp_replace(details["file_path"], "^file:/+", "/"), F.lit("+"), F.lit("%2B")))
    block, order = details["file_block_start"], F.monotonically_increasing_id()
    return frame.select("*", path.alias(FILE), block.alias(BLOCK), order.alias(PLACE))


def declared_schema(source: str, files: Files | Stream) -> StructType:
    """Return the schema of a landed source; raises SourceError for what Spark cannot read as one."""
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
