"""Check the encoding of an input text, and that no row is too long for Spark; reads blocks of bounded size.

| Spark keeps in memory | so it may have |
| --- | --- |
| a line of JSON, or of CSV without quoted line breaks | LONGEST characters |
| a row of CSV, quoted line breaks included | LONGEST characters |
| a value of CSV | LONGEST characters, or the source's own `maxCharsPerColumn`; Spark sees to it (reader.py) |
| JSON over several lines | LONGEST_DOCUMENT characters, of which Spark makes all rows at once |

Nothing here waits for the end of a line, so a file that is one endless line is refused like any other.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, assert_never

LineFormat = Literal["csv", "json", "text"]
SCAN_BYTES = 1 << 20  # read at once
LONGEST = 64_000_000
LONGEST_DOCUMENT = 256_000_000
NO_LIMIT = 1 << 62
BREAKS = ("\n", "\r")


@dataclass(frozen=True)
class TextOptions:
    """The options by which Spark reads text.

    encoding: Python's name for it, None for UTF-8; end: what ends a line, None for any line break; multiline: a row may
    have several lines; longest: the characters that Spark may hold as a whole.
    """

    format: LineFormat
    encoding: str | None
    end: str | None
    separator: str
    quote: str
    escape: str
    multiline: bool
    longest: int

    @classmethod
    def of(cls, format: LineFormat, given: Mapping[str, str]) -> TextOptions:
        """Return the shape by the options of a source, or by default."""
        options = {name.lower(): value for name, value in given.items()}
        match format:
            case "csv":
                multiline, document = options.get("multiline", "true").lower() == "true", False
            case "json":
                multiline = document = options.get("multiline", "").lower() == "true"
            case "text":
                multiline = document = options.get("wholetext", "").lower() == "true"
            case _:
                assert_never(format)
        return cls(
            format=format,
            encoding=_encoding(options.get("encoding", options.get("charset"))),
            end=options.get("linesep"),
            separator=options.get("sep", options.get("delimiter", ",")),
            quote=options.get("quote", '"'),
            escape=options.get("escape", '"'),
            multiline=multiline,
            longest=LONGEST_DOCUMENT if document else _longest(options.get("maxcharspercolumn", "")),
        )

    @property
    def is_plain(self) -> bool:
        """Return whether it is CSV with the quotes of RFC 4180."""
        return self.format == "csv" and self.multiline and len(self.separator) == 1 and self.quote == self.escape == '"'

    def ends(self, part: str) -> tuple[str, ...]:
        """Return the line end of a text that begins so; of CSV with quoted line breaks, the first one present."""
        if self.format in ("json", "text") and self.multiline:
            return ()
        if self.end:
            return (self.end,)
        if not self.multiline:
            return BREAKS
        first = min((place for end in BREAKS if (place := part.find(end)) >= 0), default=-1)
        return ("\r",) if part[first : first + 1] == "\r" and part[first + 1 : first + 2] not in ("\n", "") else ("\n",)

    def length_fault(self, line: int) -> str:
        """Return the fault of a line, a row or a document that is too long."""
        if self.format in ("json", "text") and self.multiline:
            document = "JSON document" if self.format == "json" else "text"
            return f" is a {document} of more than {self.longest:,} characters, which Spark would hold as a whole"
        what = "begins a row of" if self.format == "csv" else "has"
        return f", line {line}, {what} more than {self.longest:,} characters, which Spark would hold as a whole"


class EncodingFault(str):
    """The fault of a text that is not UTF-8, which another declared encoding may fix."""


@dataclass(frozen=True)
class Survey:
    """What a text has: its characters and quotes, up to its first fault, and that, or nothing."""

    length: int
    quotes: int
    fault: str = ""


def survey_text(text: BinaryIO, options: TextOptions) -> Survey:
    """Read a text once; a fault is bytes that are not of its encoding, UTF-8 by default, or a line that is too long."""
    decoder = codecs.getincrementaldecoder(options.encoding or "utf-8")("replace" if options.encoding else "strict")
    length = quotes = run = 0  # run: the characters of the line so far
    line, ends = 1, ()
    while True:
        read = text.read(min(SCAN_BYTES, options.longest))
        try:
            part = decoder.decode(read, final=not read)
        except UnicodeDecodeError as error:
            line += error.object[: error.start].count(b"\n")
            return Survey(
                length, quotes, EncodingFault(f", line {line}, is not UTF-8, and its source names no other encoding")
            )
        ends = options.ends(part) if line == 1 else ends
        first = min((place for end in ends if (place := part.find(end)) >= 0), default=len(part))
        if run + first > options.longest:
            return Survey(length, quotes, options.length_fault(line))
        if not read:
            return Survey(length, quotes)
        last = max((part.rfind(end) for end in ends), default=-1)
        run = run + len(part) if last < 0 else len(part) - last - 1
        line += max(map(part.count, ends), default=0)
        length, quotes = length + len(part), quotes + (part.count(options.quote) if options.quote else 0)


def row_fault(text: BinaryIO, options: TextOptions) -> str:
    """Return the fault of the first CSV row that is too long with its quoted line breaks, or is never closed."""
    used, begins, unclosed = 0, 1, False

    def count_lines(lines: io.TextIOWrapper) -> Iterator[str]:
        nonlocal used, unclosed
        for line in lines:
            used += len(line)
            if used > options.longest:
                raise OverflowError
            yield line
        unclosed = used > 0  # a row that was complete would have been taken before more is asked for

    try:
        with _open_rows(text, options) as lines:
            rows = csv.reader(count_lines(lines), **_dialect(options))
            for _ in rows:
                if not unclosed:
                    used, begins = 0, rows.line_num + 1
    except OverflowError:
        return options.length_fault(begins)
    except csv.Error:
        return ""  # Spark finds the fault itself
    return f", line {begins}, begins a row with a quote that is never closed" if unclosed and options.is_plain else ""


def bare_quote_line(text: BinaryIO, options: TextOptions) -> int | None:
    """Return the line of the first CSV row with something between a closing quote and the next separator.

    None if there is none before the first row that Python cannot read otherwise.
    """
    begins = 1
    try:
        with _open_rows(text, options) as lines:
            rows = csv.reader(lines, strict=True, **_dialect(options))
            for _ in rows:
                begins = rows.line_num + 1
    except csv.Error as error:
        return begins if "expected after" in str(error) else None
    return None


@contextmanager
def _open_rows(text: BinaryIO, options: TextOptions) -> Generator[io.TextIOWrapper]:
    """Yield the lines of a text for Python's reader, whose values may be as long as a row; the text stays open."""
    lines = io.TextIOWrapper(text, encoding=options.encoding or "utf-8", errors="replace", newline="")
    limit = csv.field_size_limit(options.longest + SCAN_BYTES)
    try:
        yield lines
    finally:
        csv.field_size_limit(limit)
        lines.detach()  # else it would close the text


def has_rows_of_lines(options: TextOptions) -> bool:
    """Return whether `row_fault` can find the rows of a text."""
    return options.format == "csv" and options.multiline and options.end is None and len(options.quote) == 1


def _dialect(options: TextOptions) -> dict[str, Any]:
    """Return the dialect for Python's reader; of a long separator its last character, after which quotes begin."""
    doubled = options.escape == options.quote
    escape = options.escape if len(options.escape) == 1 and not doubled else None
    return {
        "delimiter": options.separator[-1], "quotechar": options.quote, "doublequote": doubled, "escapechar": escape
    }  # fmt: skip


def _encoding(name: str | None) -> str | None:
    """Return Python's name of an encoding; Latin-1, which accepts any bytes, for one that Python lacks."""
    try:
        found = codecs.lookup(name or "utf-8").name
    except LookupError:
        return "iso8859-1"
    return None if found == "utf-8" else found


def _longest(given: str) -> int:
    """Return the longest row if the source limits its values; -1 means no limit."""
    try:
        most = int(given)
    except ValueError:
        return LONGEST
    return max(most, LONGEST) if most > 0 else NO_LIMIT
