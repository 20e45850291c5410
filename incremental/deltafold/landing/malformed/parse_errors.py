"""Extract the file and the reason from Spark's exceptions about an input file."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote

from deltafold.algebra.local_path import printable
from deltafold.landing.decompression import decompress
from deltafold.spark.java_errors import first_line

NAMED_FILE = re.compile(r"(?:reading file|CSV file:|^|\s)(?: ?file:)/+(\S+)")
OTHER_NUMBER = "it has another number of values than the declared schema has columns"
NO_RECORD = "it is not a record"
BARE_QUOTE = "a quote within quotes in it is not doubled"
LONGEST_TEXT_SHOWN = 500  # characters of a row, or of Spark's message
LONGEST_READ = 4000  # characters of a message, which may quote a value of any length, made to keep a search busy
WRONG_TYPE = "a value in it is not of its column's type"
LIMITS: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (r"exceeds the maximum number of characters defined in your parser settings \((\d+)\)",
     lambda m: f"a value in it has more than {int(m[1]):,} characters, which Spark would hold as a whole"),
    (r"Unescaped quote character", lambda _: f"{BARE_QUOTE}, or one is not closed; if a backslash stands before it, as "
     "Spark writes it, declare the option escape: \"\\\\\""),
    (r"\bArrayIndexOutOfBoundsException\b", lambda _: "a row in it has more values than `maxColumns` (20,480)"),
)  # fmt: skip
"""Errors within the CSV reader, whose innermost message is not the useful one."""
REASONS: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (r"Expected: (.*?) but found: (.*?)\n", lambda m: f"its header has {m[2]} where the declared schema has {m[1]}"),
    (r"Header length: (\d+), schema size: (\d+)",
     lambda m: f"its header has {m[1]} columns, the declared schema {m[2]}"),
    (r"Parquet column \[(.*?)\]\. Expected Spark type (\w+), actual Parquet type (\w+)",
     lambda m: f"its column {m[1]} is {m[3]}, in the declared schema {m[2]}"),
    (r"Malformed CSV record", lambda _: OTHER_NUMBER),
    (r"field name '(.*?)' and the value (.*?) of the JSON token type (\w+).*target Spark data type \"(.*?)\"",
     lambda m: f"{as_written(m[2], m[3])} in {m[1]} is not a valid {m[4]}"),
    (r"the value (.*?) of the JSON token type (\w+).*target Spark data type \"(.*?)\"",
     lambda m: f"{as_written(m[1], m[2])} is not a valid {m[3]}"),
    (r"The value ('.*?') of the type .*? cannot be cast to \"(.*?)\"", lambda m: f"{m[1]} is not a valid {m[2]}"),
    (r"Avro logical type (?:[\w.]+\$)?(\w+)@\w+ cannot be converted to SQL type (\w+)",
     lambda m: f"Avro's {m[1]} cannot be read as {m[2]}"),
    (r"^\w+Exception$", lambda _: NO_RECORD),
    (r"For input string: (\".*?\")", lambda m: f"{m[1]} is not of its column's type"),
)  # fmt: skip


def as_written(value: str, token: str) -> str:
    """Return a JSON value as its file has it; Spark's message omits the quotes of text."""
    return json.dumps(value, ensure_ascii=False) if token.endswith("STRING") else value


def file_of(messages: Sequence[str]) -> Path | None:
    """Return the file named by the innermost message that names one; outer ones may name the table being written."""
    for message in reversed(messages):
        found = NAMED_FILE.search(message)
        if found:
            return Path("/" + unquote(found[1]).rstrip(".,:;"))
    return None


def reason_of(messages: Sequence[str]) -> str:
    """Return why a file cannot be read: the innermost message that we know, else the innermost."""
    known = [(message, *limit) for limit in LIMITS for message in messages]
    known += [(message, *reason) for message in reversed(messages) for reason in REASONS]
    for message, pattern, words in known:
        found = re.search(pattern, message[:LONGEST_READ], re.DOTALL)
        if found:
            return shorten(words(found))
    return shorten(first_line(messages[-1]).rstrip("."))


def line_of(path: Path, row: str) -> int:
    """Return the line number where a row begins; a landed file was surveyed, so its lines end."""
    wanted = row.splitlines()[0] if row else ""
    with path.open("rb") as file:
        lines = io.TextIOWrapper(decompress(file, path), encoding="utf-8", errors="replace")
        return next((number for number, line in enumerate(lines, 1) if line.rstrip("\r\n") == wanted), 1)


def shorten(text: str) -> str:
    """Shorten a text for a line of a message."""
    shown = printable(text[:LONGEST_TEXT_SHOWN])
    return shown if len(text) <= LONGEST_TEXT_SHOWN else f"{shown}…"
