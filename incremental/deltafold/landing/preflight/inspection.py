"""Check the files of partitions before Spark reads them, and return a digest of their content.

A file is refused if Spark would read it wrongly without an error, or would run out of memory:

| Spark would | if |
| --- | --- |
| put � | text is not UTF-8 |
| read the rest of the file as one value | a CSV file ends within quotes |
| read the first one only | one line has two JSON objects |
| put NULL | a Parquet, ORC or Avro file lacks a column (columnar.py) |
| read no row | a file that is to be one row is empty |
| read no rows | a Parquet file is empty; a compressed file is not of the format in its name |
| leave rows or values out | XML is not well-formed, or has entities (text_survey.py) |
| run out of memory | a line, a row or a document is too long, or never ends (text_survey.py) |

Texts are read to their end for these checks, in parts of bounded size, and all files for their digests. From TASK_BYTES
on, tasks of Spark read them, for which the workers need this package; formats that need the driver's Spark (Avro's
schemas), or of which only the head is read, are checked in the driver.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, assert_never

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField

from deltafold.algebra.errors import DeltafoldError, SourceError
from deltafold.algebra.local_path import printable
from deltafold.algebra.sources import Files
from deltafold.landing.containment import open_file_within
from deltafold.landing.decompression import DamagedFileError, decompress
from deltafold.landing.folder import Partition, content_digest, file_digest
from deltafold.landing.preflight.columnar import avro_fault, orc_fault, parquet_fault
from deltafold.landing.preflight.text_survey import (
    LONGEST_DOCUMENT,
    EncodingFault,
    LineFormat,
    TextOptions,
    has_rows_of_lines,
    row_fault,
    survey_text,
    xml_fault,
)
from deltafold.spark.catalyst import JavaError
from deltafold.spark.java_errors import cause, python_error

TASK_BYTES = 1 << 28  # from this size on, tasks of Spark read the files
BATCH_BYTES = 1 << 32  # the least size of a batch of partitions
TASKS_PER_CORE = 4
CHECKED_BY_HEAD = ("avro", "parquet", "orc")  # formats of which only the head or the end is checked

Digest = str | Exception  # of a file: the error if it cannot be read or has a fault
ENCODING_FIX = "Save it as UTF-8, or declare its encoding (such as `options: {encoding: ISO-8859-1}`),"
TWO_OBJECTS = re.compile(r"\}\s*\{")
TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]')  # possessive: a long text takes no memory


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """Checks files of one source; columns: of its files; root: the folder that they are in."""

    spark: SparkSession
    source: str
    files: Files
    columns: Sequence[StructField]
    root: Path

    def digests(self, partitions: Sequence[Partition]) -> Iterator[str]:
        """Yield a digest of the content of each partition.

        Raises SourceError for the first file that Spark would read wrongly, or that would fill its memory.
        """
        paths = [path for partition in partitions for path in partition.paths]
        in_tasks = sum(partition.bytes for partition in partitions) >= TASK_BYTES
        if in_tasks and self.files.format in CHECKED_BY_HEAD:
            for path in paths:
                check_content(self.source, self.files, self.columns, self.root, path)
        digest = partial(_check_and_digest, self.source, self.files, self.columns, self.root, in_task=in_tasks)
        digests = iter(self._run_tasks(digest, paths) if in_tasks else map(digest, paths))
        for partition in partitions:
            names = [path.name for path in partition.paths]
            yield content_digest(dict(zip(names, map(_raise_errors, digests), strict=False)))

    def _run_tasks(self, digest: Callable[[Path], Digest], paths: Sequence[Path]) -> list[Digest]:
        context = self.spark.sparkContext
        slices = min(len(paths), TASKS_PER_CORE * context.defaultParallelism)
        try:
            return context.parallelize(paths, slices).map(digest).collect()
        except JavaError as error:
            reason = (python_error(error) or cause(error)).rstrip(".")
            raise SourceError(
                f"source {self.source} was not landed: Spark's tasks could not look into its files: {reason}. "
                "Install Deltafold for the Python of Spark's workers, and land again."
            ) from error


def _check_and_digest(
    source: str, files: Files, columns: Sequence[StructField], root: Path, path: Path, *, in_task: bool
) -> Digest:
    """Check a file, and return its digest."""
    try:
        if not (in_task and files.format in CHECKED_BY_HEAD):
            check_content(source, files, columns, root, path)
        return file_digest(source, root, path)
    except (DeltafoldError, OSError) as error:
        return error


def in_batches(partitions: Iterable[Partition]) -> Iterator[list[Partition]]:
    """Yield the partitions in batches, each of BATCH_BYTES at least, except for the last."""
    batch = list[Partition]()
    for partition in partitions:
        batch.append(partition)
        if sum(member.bytes for member in batch) >= BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def _raise_errors(digest: Digest) -> str:
    if isinstance(digest, Exception):
        raise digest
    return digest


def check_content(source: str, files: Files, columns: Sequence[StructField], root: Path, path: Path) -> None:
    """Raise SourceError for a file below a folder that Spark would read wrongly, or that would fill its memory."""
    with open_file_within(source, root, path) as file:
        try:
            reason = _content_fault(file, files, columns, path)
            fix = ENCODING_FIX if isinstance(reason, EncodingFault) else "Correct the file"
        except DamagedFileError as error:
            reason = f" is not a complete {path.suffix} file as Spark reads it ({error})"
            fix = "Write the file again completely"
    if reason:
        raise SourceError(f"source {source} was not landed: {printable(path)}{reason}. {fix} and land again.")


def _content_fault(file: BinaryIO, files: Files, columns: Sequence[StructField], path: Path) -> str:
    """Return the first fault of an open file, or nothing."""
    match files.format:
        case "parquet":
            return parquet_fault(file, columns)
        case "orc":
            return orc_fault(file, columns)
        case "avro":
            return avro_fault(file, columns, files.options)
        case "binary":
            return _size_fault(file.seek(0, io.SEEK_END))
        case "xml":
            return xml_fault(decompress(file, path), files.options)
        case "csv" | "json" | "text":
            return _text_fault(file, path, files, files.format)
        case _:
            assert_never(files.format)


def _size_fault(size: int) -> str:
    """Return the fault of a file that is one row, by its bytes or characters; nothing if it has none."""
    if size == 0:
        return " is empty, and Spark would leave it out"
    if size > LONGEST_DOCUMENT:
        return f" has more than {LONGEST_DOCUMENT:,} bytes, which Spark would read into memory at once"
    return ""


def _text_fault(file: BinaryIO, path: Path, files: Files, format: LineFormat) -> str:
    """Return the first fault of a text, or nothing; reads it a second time only if a fault is possible."""
    options = TextOptions.of(format, files.options)
    survey = survey_text(decompress(file, path), options)
    if survey.fault or (options.format == "text" and options.multiline):
        return survey.fault or _size_fault(survey.length)
    may_be_unclosed = survey.quotes % 2 and options.is_plain
    may_be_too_long = survey.quotes and survey.length > options.longest
    if (may_be_unclosed or may_be_too_long) and has_rows_of_lines(options):
        return row_fault(decompress(file, path), options)
    if options.format == "json" and not options.multiline and options.encoding is None and options.end is None:
        return _object_fault(decompress(file, path))
    return ""


def _object_fault(text: BinaryIO) -> str:
    """Return a fault if more than one JSON value is in a line; only suspicious lines are examined."""
    lines = io.TextIOWrapper(text, encoding="utf-8")
    try:
        for number, line in enumerate(lines, 1):
            if TWO_OBJECTS.search(line):
                end = _first_end(line)
                if end is None:
                    return ""  # Spark finds the fault itself
                if line[end:] and not line[end:].isspace():
                    return f", line {number}, has more than one JSON object"
    finally:
        lines.detach()  # else it would close the text
    return ""


def _first_end(line: str) -> int | None:
    """Return where the first JSON object or array of a line ends, None if it does not; does not parse its values."""
    depth = 0
    for token in TOKEN.finditer(line):
        match line[token.start()]:
            case "{" | "[":
                depth += 1
            case "}" | "]":
                depth -= 1
                if depth <= 0:
                    return token.end() if depth == 0 else None
            case _:
                pass  # a string
    return None
