"""Refuse dropped files that Spark would read wrongly without a word, or that would fill its memory.

| Spark would | where |
| --- | --- |
| put � | text is not UTF-8 |
| read the rest of the file as one value | a CSV file ends within quotes |
| read the first one only | two JSON objects stand in one line |
| put NULL | a Parquet file lacks a column |
| read no rows | a Parquet file is empty; a compressed file is not what its name says |
| fill its memory | a line, a row or a document has no end in sight (text_survey.py) |
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from incremental.algebra.errors import SourceError
from incremental.algebra.local_path import printable
from incremental.algebra.sources import Files
from incremental.landing.containment import open_file_within
from incremental.landing.decompression import DamagedFileError, decompress
from incremental.landing.text_survey import NOT_UTF8, TextOptions, has_rows_of_lines, row_fault, survey_text

ENCODING_FIX = "Save it as UTF-8, or declare its encoding (such as `options: {encoding: ISO-8859-1}`),"
TWO_OBJECTS = re.compile(r"\}\s*\{")
TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]')  # possessive: a long text takes no memory


def check_content(source: str, files: Files, columns: Sequence[str], path: Path) -> None:
    """Raise SourceError for a file that Spark would read wrongly, or not at all because of its size."""
    with open_file_within(source, Path(files.path), path) as file:
        try:
            reason = parquet_fault(file, columns) if files.format == "parquet" else text_fault(file, path, files)
            fix = ENCODING_FIX if reason.endswith(NOT_UTF8) else "Correct the file"
        except DamagedFileError as error:
            reason = f" is not a complete {path.suffix} file as Spark reads it ({error})"
            fix = "Write the file again completely"
    if reason:
        raise SourceError(f"source {source} was not landed: {printable(path)}{reason}. {fix} and land again.")


def text_fault(file: BinaryIO, path: Path, files: Files) -> str:
    """Return the first fault of a text, or nothing; looks a second time only where a fault is possible."""
    options = TextOptions.of(files.format, files.options)
    seen = survey_text(decompress(file, path), options)
    if seen.fault:
        return seen.fault
    doubtful = (seen.quotes % 2 and options.is_plain) or (seen.quotes and seen.length > options.longest)
    if doubtful and has_rows_of_lines(options):
        return row_fault(decompress(file, path), options)
    if options.format == "json" and not options.whole and options.encoding is None and options.end is None:
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


def parquet_fault(file: BinaryIO, columns: Sequence[str]) -> str:
    """Return a fault if a file is no Parquet, or lacks a column."""
    from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]  # late: it is slow to load

    try:
        names = {str(name).lower() for name in cast(Any, parquet).read_schema(file).names}
    except (ValueError, OSError) as error:  # Arrow's own error for what is no Parquet file is a ValueError
        return f" is not a complete Parquet file ({str(error).split('. ')[0].splitlines()[0]})"
    lacking = [name for name in columns if name.lower() not in names]
    return f" lacks the column {lacking[0]} of the declared schema" if lacking else ""
