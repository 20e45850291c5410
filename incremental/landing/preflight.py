"""What Spark would read wrongly without a word. In: a dropped file. Out: nothing, or an error.

| Spark would | where |
| --- | --- |
| put � | text is not UTF-8 |
| read the rest of the file as one value | a CSV file ends within quotes |
| read the first one only | two JSON objects stand in one line |
| put NULL | a Parquet file lacks a column |
| read no rows | a Parquet file is empty |
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from incremental.algebra.errors import SourceError
from incremental.algebra.sources import Files

CHUNK = 1 << 20
COMPRESSED = {".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate", ".xz"}
TWO_OBJECTS = re.compile(r"\}\s*\{")


def check_content(source: str, files: Files, columns: Sequence[str], path: Path) -> None:
    """Raises SourceError for a file that Spark would read wrongly; a compressed one is trusted."""
    options = {name.lower(): value for name, value in files.options.items()}
    if files.format == "parquet":
        reason = parquet_fault(path, columns)
    elif path.suffix in COMPRESSED or options.keys() & {"encoding", "charset"}:
        return
    else:
        reason = encoding_fault(path)
        if not reason and files.format == "csv" and not options.keys() & {"quote", "escape", "multiline"}:
            reason = quote_fault(path, options.get("sep", options.get("delimiter", ",")))
        if not reason and files.format == "json" and options.get("multiline", "false").lower() != "true":
            reason = object_fault(path)
    if reason:
        raise SourceError(f"source {source} was not landed: {path}{reason}: correct the file and land again")


def encoding_fault(path: Path) -> str:
    """What is wrong with the bytes of a text, or nothing."""
    decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
    with path.open("rb") as file:
        while True:
            chunk = file.read(CHUNK)
            try:
                line += decoder.decode(chunk, final=not chunk).count("\n")
            except UnicodeDecodeError as error:
                line += error.object[: error.start].count(b"\n")
                return f", line {line}, is not UTF-8, and its source names no other encoding"
            if not chunk:
                return ""


def quote_fault(path: Path, separator: str) -> str:
    """Whether a CSV text ends within quotes; a look at each row only where the quotes are odd in number."""
    with path.open("rb") as file:
        odd = sum(chunk.count(b'"') for chunk in iter(lambda: file.read(CHUNK), b"")) % 2
    if not odd or len(separator) != 1:
        return ""
    with path.open(encoding="utf-8", newline="") as text:
        rows = csv.reader(text, delimiter=separator, strict=True)
        line = 1
        try:
            for _ in rows:
                line = rows.line_num + 1
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                return f", line {line}, begins a row with a quote that is never closed"
    return ""


def object_fault(path: Path) -> str:
    """Whether more than one JSON value stands in a line; only lines that look so are parsed."""
    with path.open(encoding="utf-8") as text:
        for number, line in enumerate(text, 1):
            if TWO_OBJECTS.search(line):
                try:
                    _, end = json.JSONDecoder().raw_decode(line.strip())
                except ValueError:
                    return ""  # Spark finds the fault itself
                if line.strip()[end:].strip():
                    return f", line {number}, holds more than one JSON object"
    return ""


def parquet_fault(path: Path, columns: Sequence[str]) -> str:
    """Whether a file is no Parquet, or lacks a column."""
    from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]  # late: it is slow to load

    try:
        names = {str(name).lower() for name in cast(Any, parquet).read_schema(path).names}
    except (ValueError, OSError) as error:  # Arrow's own error for what is no Parquet file is a ValueError
        return f" is no whole Parquet file ({str(error).split('. ')[0].splitlines()[0]})"
    lacking = [name for name in columns if name.lower() not in names]
    return f" lacks the column {lacking[0]} of the declared schema" if lacking else ""
