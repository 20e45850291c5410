"""Refuse input files that Spark would read wrongly without an error, or that would fill its memory.

| Spark would | where |
| --- | --- |
| put � | text is not UTF-8 |
| read the rest of the file as one value | a CSV file ends within quotes |
| read the first one only | one line has two JSON objects |
| put NULL | a Parquet, ORC or Avro file lacks a column (columnar.py, avro.py) |
| read no row | a file that is to be one row is empty |
| read no rows | a Parquet file is empty; a compressed file is not what its name says |
| leave rows or values out | XML is not well-formed, or has entities (xml_survey.py) |
| fill its memory | a line, a row or a document has no end in sight (text_survey.py) |
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, assert_never

from pyspark.sql.types import StructField

from deltafold.algebra.errors import SourceError
from deltafold.algebra.local_path import printable
from deltafold.algebra.sources import Files
from deltafold.landing.containment import open_file_within
from deltafold.landing.decompression import DamagedFileError, decompress
from deltafold.landing.preflight.avro import avro_fault
from deltafold.landing.preflight.columnar import orc_fault, parquet_fault
from deltafold.landing.preflight.text_survey import (
    LONGEST_DOCUMENT,
    EncodingFault,
    LineFormat,
    TextOptions,
    has_rows_of_lines,
    row_fault,
    survey_text,
)
from deltafold.landing.preflight.xml_survey import xml_fault

ENCODING_FIX = "Save it as UTF-8, or declare its encoding (such as `options: {encoding: ISO-8859-1}`),"
TWO_OBJECTS = re.compile(r"\}\s*\{")
TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]')  # possessive: a long text takes no memory


def check_content(source: str, files: Files, columns: Sequence[StructField], root: Path, path: Path) -> None:
    """Raise SourceError for a file below a folder that Spark would read wrongly, or not at all because of its size."""
    with open_file_within(source, root, path) as file:
        try:
            reason = content_fault(file, files, columns, path)
            fix = ENCODING_FIX if isinstance(reason, EncodingFault) else "Correct the file"
        except DamagedFileError as error:
            reason = f" is not a complete {path.suffix} file as Spark reads it ({error})"
            fix = "Write the file again completely"
    if reason:
        raise SourceError(f"source {source} was not landed: {printable(path)}{reason}. {fix} and land again.")


def content_fault(file: BinaryIO, files: Files, columns: Sequence[StructField], path: Path) -> str:
    """Return the first fault of an open file, or nothing."""
    match files.format:
        case "parquet":
            return parquet_fault(file, columns)
        case "orc":
            return orc_fault(file, columns)
        case "avro":
            return avro_fault(file, columns, files.options)
        case "binary":
            return size_fault(file.seek(0, io.SEEK_END))
        case "xml":
            return xml_fault(decompress(file, path), files.options)
        case "csv" | "json" | "text":
            return text_fault(file, path, files, files.format)
        case _:
            assert_never(files.format)


def size_fault(size: int) -> str:
    """Return the fault of a file that is one row, by its bytes or characters; nothing if it has none."""
    if size == 0:
        return " is empty, and Spark would leave it out"
    return (
        f" has more than {LONGEST_DOCUMENT:,} bytes, which Spark would hold as a whole"
        if size > LONGEST_DOCUMENT
        else ""
    )


def text_fault(file: BinaryIO, path: Path, files: Files, format: LineFormat) -> str:
    """Return the first fault of a text, or nothing; looks a second time only where a fault is possible."""
    options = TextOptions.of(format, files.options)
    seen = survey_text(decompress(file, path), options)
    if seen.fault or (options.format == "text" and options.multiline):
        return seen.fault or size_fault(seen.length)
    doubtful = (seen.quotes % 2 and options.is_plain) or (seen.quotes and seen.length > options.longest)
    if doubtful and has_rows_of_lines(options):
        return row_fault(decompress(file, path), options)
    if options.format == "json" and not options.multiline and options.encoding is None and options.end is None:
        return object_fault(decompress(file, path))
    return ""


def object_fault(text: BinaryIO) -> str:
    """Return a fault if more than one JSON value is in a line; only suspicious lines are examined."""
    lines = io.TextIOWrapper(text, encoding="utf-8")
    try:
        for number, line in enumerate(lines, 1):
            if TWO_OBJECTS.search(line):
                end = first_end(line)
                if end is None:
                    return ""  # Spark finds the fault itself
                if line[end:] and not line[end:].isspace():
                    return f", line {number}, holds more than one JSON object"
    finally:
        lines.detach()  # else it would close the text
    return ""


def first_end(line: str) -> int | None:
    """Return where the first JSON object or array of a line ends, None if it does not; builds none of its content."""
    depth = 0
    for found in TOKEN.finditer(line):
        match line[found.start()]:
            case "{" | "[":
                depth += 1
            case "}" | "]":
                depth -= 1
                if depth <= 0:
                    return found.end() if depth == 0 else None
            case _:
                pass  # a text
    return None
