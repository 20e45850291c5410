"""Find out why Spark cannot read an input file, or why it marked a row of one as malformed.

The file and the reason are in the messages of Spark's exceptions. A marked row has no message: it is read again as
text, and a value that is present there but NULL in the row does not fit its column.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never
from urllib.parse import unquote

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from deltafold.algebra.local_path import printable
from deltafold.algebra.sources import Format
from deltafold.algebra.sqltext import quoted
from deltafold.landing.decompression import decompress
from deltafold.spark.java_errors import first_line

CORRUPT = "__corrupt"
PERMISSIVE = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
VALUE_LIMIT = "maxCharsPerColumn"
LONGEST_VALUE_SHOWN = 100  # characters of a value that a reason shows
NAMED_FILE = re.compile(r"(?:reading file|CSV file:|^|\s)(?: ?file:)/+(\S+)")
OTHER_NUMBER = "it has another number of values than the declared schema has columns"
NO_RECORD = "it is not a record"
BARE_QUOTE = "a quote within quotes in it is not doubled"
LONGEST_TEXT_SHOWN = 500  # characters of a row, or of Spark's message
LONGEST_SEARCHED = 4000  # characters of a message: it may quote a long value that was made to slow down a search
WRONG_TYPE = "a value in it is not of its column's type"
LIMITS: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (r"exceeds the maximum number of characters defined in your parser settings \((\d+)\)",
     lambda m: f"a value in it has more than {int(m[1]):,} characters, which Spark would read into memory at once"),
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
     lambda m: f"{_as_written(m[2], m[3])} in {m[1]} is not a valid {m[4]}"),
    (r"the value (.*?) of the JSON token type (\w+).*target Spark data type \"(.*?)\"",
     lambda m: f"{_as_written(m[1], m[2])} is not a valid {m[3]}"),
    (r"The value ('.*?') of the type .*? cannot be cast to \"(.*?)\"", lambda m: f"{m[1]} is not a valid {m[2]}"),
    (r"Avro logical type (?:[\w.]+\$)?(\w+)@\w+ cannot be converted to SQL type (\w+)",
     lambda m: f"Avro's {m[1]} cannot be read as {m[2]}"),
    (r"^\w+Exception$", lambda _: NO_RECORD),
    (r"For input string: (\".*?\")", lambda m: f"{m[1]} is not of its column's type"),
)  # fmt: skip


@dataclass(frozen=True)
class MalformedReason:
    """The reasons for malformed rows, in a frame with their columns and CORRUPT.

    fields: the columns; options: Spark's reader options.
    """

    format: Format
    fields: Sequence[StructField]
    options: Mapping[str, str]

    def column(self) -> Column:
        """Return why a row is malformed."""
        fields = [(field.name, field.dataType.simpleString()) for field in self.fields]
        texts = self._parse_again("STRING")
        _, no_row = _row_parser(self.format)
        faults = [
            F.when(
                texts[name].isNotNull() & F.col(quoted(name)).isNull(),
                F.concat(
                    F.left(shown, F.lit(LONGEST_VALUE_SHOWN)), F.lit(f" in {name} is not a valid {type_.upper()}")
                ),
            )
            for (name, type_), shown in zip(fields, self._as_written(texts), strict=True)
        ]
        return F.when(texts[CORRUPT].isNotNull(), no_row).otherwise(F.coalesce(*faults, F.lit(WRONG_TYPE)))

    def _parse_again(self, kind: str) -> Column:
        """Parse a malformed row again, every value as one type; the whole row as text if it is not a record.

        Without the limit of a value's length: the row has been read, and each parser would allocate the limit.
        """
        types = {**{field.name: kind for field in self.fields}, CORRUPT: "STRING"}
        parse, _ = _row_parser(self.format)
        ddl = ", ".join(f"{quoted(name)} {type_}" for name, type_ in types.items())
        options = {name: value for name, value in self.options.items() if name.lower() != VALUE_LIMIT.lower()}
        return parse(F.col(CORRUPT), ddl, {**options, **PERMISSIVE})

    def _as_written(self, texts: Column) -> list[Column]:
        """Return the values of a malformed row as in its file: in JSON, 12 is not "12"."""
        names = [field.name for field in self.fields]
        if self.format != "json":
            return [texts[name] for name in names]
        values = self._parse_again("VARIANT")
        return [
            F.when(F.schema_of_variant(values[name]) == "STRING", F.to_json(values[name])).otherwise(texts[name])
            for name in names
        ]


def _row_parser(format: Format) -> tuple[Callable[[Column, str, dict[str, str]], Column], str]:
    """Return Spark's parser of one row, and the reason for a text that is not a row at all.

    For the formats whose malformed rows Spark marks (`MARKED_FORMATS`).
    """
    match format:
        case "csv":
            return F.from_csv, OTHER_NUMBER
        case "json":
            return F.from_json, NO_RECORD
        case "xml" | "text" | "parquet" | "orc" | "avro" | "binary":
            raise AssertionError(f"Spark marks no rows of {format} files")
        case _:
            assert_never(format)


def _as_written(value: str, token: str) -> str:
    """Return a JSON value as its file has it; Spark's message omits the quotes of text."""
    return json.dumps(value, ensure_ascii=False) if token.endswith("STRING") else value


def file_of(messages: Sequence[str]) -> Path | None:
    """Return the file named by the innermost message that names one; outer ones may name the table being written."""
    for message in reversed(messages):
        named = NAMED_FILE.search(message)
        if named:
            return Path("/" + unquote(named[1]).rstrip(".,:;"))
    return None


def reason_of(messages: Sequence[str]) -> str:
    """Return why a file cannot be read: from the innermost message with a known pattern, else from the innermost."""
    candidates = [(message, *limit) for limit in LIMITS for message in messages]
    candidates += [(message, *reason) for message in reversed(messages) for reason in REASONS]
    for message, pattern, describe in candidates:
        match_ = re.search(pattern, message[:LONGEST_SEARCHED], re.DOTALL)
        if match_:
            return shorten(describe(match_))
    return shorten(first_line(messages[-1]).rstrip("."))


def line_of(path: Path, row: str) -> int:
    """Return the line number where a row begins; no line is too long, since the file was checked before."""
    first = row.splitlines()[0] if row else ""
    with path.open("rb") as file:
        lines = io.TextIOWrapper(decompress(file, path), encoding="utf-8", errors="replace")
        return next((number for number, line in enumerate(lines, 1) if line.rstrip("\r\n") == first), 1)


def shorten(text: str) -> str:
    """Return a text as one line of a message, shortened."""
    shown = printable(text[:LONGEST_TEXT_SHOWN])
    return shown if len(text) <= LONGEST_TEXT_SHOWN else f"{shown}…"
