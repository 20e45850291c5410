"""Check the encoding of an input text or XML, and that no row is too long for Spark; reads parts of bounded size.

| Spark keeps in memory | limit |
| --- | --- |
| a line of JSON, or of CSV without quoted line breaks | LONGEST characters |
| a row of CSV, quoted line breaks included | LONGEST characters |
| a value of CSV | LONGEST characters, or the source's `maxCharsPerColumn`; Spark enforces it (reader.py) |
| JSON over several lines | LONGEST_DOCUMENT characters, of which Spark makes all rows at once |
| a row of XML | LONGEST_ROW bytes |

Nothing here waits for the end of a line, so a file that is one endless line is refused like any other.

Spark cuts an XML file into the elements called `rowTag` and parses each of them by itself. It does not notice that the
file ends within one, which encoding the file declares, or that an entity is defined outside the row, and leaves out
such rows and values. So XML is parsed here once more as a whole, without building a tree.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, assert_never, cast
from xml.parsers import expat

LineFormat = Literal["csv", "json", "text"]
SCAN_BYTES = 1 << 20  # read at once
LONGEST = 64_000_000
LONGEST_DOCUMENT = 256_000_000
NO_LIMIT = 1 << 62
BREAKS = ("\n", "\r")
LONGEST_ROW = 64_000_000  # bytes of a row of XML
ROW_TAG, ENCODING = "rowtag", ("encoding", "charset")


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The options by which Spark reads text.

    encoding: Python's name for it, None for UTF-8; end: that of a line, None for any line break; multiline: a row may
    have several lines; longest: the most characters that Spark may read into memory at once.
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
    def of(cls, format: LineFormat, source_options: Mapping[str, str]) -> TextOptions:
        """Return the options of a source, with Spark's defaults."""
        options = {name.lower(): value for name, value in source_options.items()}
        match format:
            case "csv":
                multiline = options.get("multiline", "true")
            case "json":
                multiline = options.get("multiline", "")
            case "text":
                multiline = options.get("wholetext", "")
            case _:
                assert_never(format)
        is_multiline = multiline.lower() == "true"
        is_document = is_multiline and format != "csv"
        return cls(
            format=format,
            encoding=_encoding(options.get("encoding", options.get("charset"))),
            end=options.get("linesep"),
            separator=options.get("sep", options.get("delimiter", ",")),
            quote=options.get("quote", '"'),
            escape=options.get("escape", '"'),
            multiline=is_multiline,
            longest=LONGEST_DOCUMENT if is_document else _longest(options.get("maxcharspercolumn", "")),
        )

    @property
    def is_plain(self) -> bool:
        """Whether it is CSV with the quotes of RFC 4180."""
        return self.format == "csv" and self.multiline and len(self.separator) == 1 and self.quote == self.escape == '"'

    def ends(self, part: str) -> tuple[str, ...]:
        """Return the line ends of a text, by its first part; of CSV with quoted line breaks, the first one there."""
        if self.format in ("json", "text") and self.multiline:
            return ()
        if self.end:
            return (self.end,)
        if not self.multiline:
            return BREAKS
        first = min((position for end in BREAKS if (position := part.find(end)) >= 0), default=-1)
        return ("\r",) if part[first : first + 1] == "\r" and part[first + 1 : first + 2] not in ("\n", "") else ("\n",)

    def length_fault(self, line: int) -> str:
        """Return the fault of a line, a row or a document that is too long."""
        size = f"more than {self.longest:,} characters, which Spark would read into memory at once"
        if self.format in ("json", "text") and self.multiline:
            return f" is a {'JSON document' if self.format == 'json' else 'text'} of {size}"
        return f", line {line}, {'begins a row of' if self.format == 'csv' else 'has'} {size}"


class EncodingFault(str):
    """The fault of a text that is not UTF-8, which another declared encoding may fix."""


@dataclass(frozen=True)
class Survey:
    """The number of characters and quotes of a text up to its first fault; fault: that, or nothing."""

    length: int
    quotes: int
    fault: str = ""


def survey_text(text: BinaryIO, options: TextOptions) -> Survey:
    """Read a text once; a fault is bytes that are not of its encoding, UTF-8 by default, or a line that is too long."""
    decoder = codecs.getincrementaldecoder(options.encoding or "utf-8")("replace" if options.encoding else "strict")
    length = quotes = run = 0  # run: the characters of the line so far
    line = 1
    ends = ()
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
        first = min((position for end in ends if (position := part.find(end)) >= 0), default=len(part))
        if run + first > options.longest:
            return Survey(length, quotes, options.length_fault(line))
        if not read:
            return Survey(length, quotes)
        last = max((part.rfind(end) for end in ends), default=-1)
        run = run + len(part) if last < 0 else len(part) - last - 1
        line += max(map(part.count, ends), default=0)
        length += len(part)
        quotes += part.count(options.quote) if options.quote else 0


def row_fault(text: BinaryIO, options: TextOptions) -> str:
    """Return the fault of the first CSV row that is too long with its quoted line breaks, or is never closed."""
    length = 0  # of the row so far
    begins = 1
    unclosed = False

    def count_characters(lines: io.TextIOWrapper) -> Iterator[str]:
        nonlocal length, unclosed
        for line in lines:
            length += len(line)
            if length > options.longest:
                raise OverflowError
            yield line
        unclosed = length > 0  # the reader returns a complete row before it asks for another line

    try:
        with _open_rows(text, options) as lines:
            rows = csv.reader(count_characters(lines), **_dialect(options))
            for _ in rows:
                if not unclosed:
                    length = 0
                    begins = rows.line_num + 1
    except OverflowError:
        return options.length_fault(begins)
    except csv.Error:
        return ""  # Spark finds the fault itself
    return f", line {begins}, begins a row with a quote that is never closed" if unclosed and options.is_plain else ""


def bare_quote_line(text: BinaryIO, options: TextOptions) -> int | None:
    """Return the line of the first CSV row with text between a closing quote and the next separator.

    None if there is none before a row that Python cannot read for another reason.
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
    return {
        "delimiter": options.separator[-1],
        "quotechar": options.quote,
        "doublequote": doubled,
        "escapechar": options.escape if len(options.escape) == 1 and not doubled else None,
    }


def _encoding(name: str | None) -> str | None:
    """Return Python's name of an encoding; Latin-1, which accepts any bytes, for one that Python lacks."""
    try:
        encoding = codecs.lookup(name or "utf-8").name
    except LookupError:
        return "iso8859-1"
    return None if encoding == "utf-8" else encoding


def _longest(value_limit: str) -> int:
    """Return the longest row for the limit of a value that a source declares; -1 means no limit."""
    try:
        limit = int(value_limit)
    except ValueError:
        return LONGEST
    return max(limit, LONGEST) if limit > 0 else NO_LIMIT


@dataclass(kw_only=True)
class _XmlRows:
    """Measures the rows of a document while it is parsed; begins: the offset of the row; fault: the first one."""

    parser: Any
    tag: str
    encoding: str
    depth: int = 0
    begins: int = 0
    rows: int = 0
    fault: str = ""

    def start(self, name: str, _: Mapping[str, str]) -> None:
        if name == self.tag:
            if self.depth == 0:
                self.begins = self.parser.CurrentByteIndex
                self.rows += 1
            self.depth += 1

    def end(self, name: str) -> None:
        self.depth -= name == self.tag

    def declaration(self, _: str, encoding: str | None, __: int) -> None:
        if encoding and not _is_same_encoding(encoding, self.encoding):
            self.fault = f" declares the encoding {encoding} and is read as {self.encoding}: set the option `encoding`"

    def entity(self, name: str, *_: object) -> None:
        self.fault = self.fault or f" defines or refers to the entity {name}, which is not read"


def xml_fault(file: BinaryIO, options: Mapping[str, str]) -> str:
    """Return the first fault of an XML file, or nothing. options: those of the source."""
    by_name = {name.lower(): value for name, value in options.items()}
    encoding = next((by_name[name] for name in ENCODING if name in by_name), "UTF-8")
    parser = cast(Any, expat.ParserCreate(encoding))
    rows = _XmlRows(parser=parser, tag=by_name.get(ROW_TAG, ""), encoding=encoding)
    parser.StartElementHandler = rows.start
    parser.EndElementHandler = rows.end
    parser.XmlDeclHandler = rows.declaration
    parser.EntityDeclHandler = rows.entity
    parser.SkippedEntityHandler = rows.entity
    parser.buffer_text = True
    read = 0
    try:
        while part := file.read(SCAN_BYTES):
            parser.Parse(part)
            read += len(part)
            if rows.depth and read - rows.begins > LONGEST_ROW:
                return f" has a row of more than {LONGEST_ROW:,} bytes, which Spark would read into memory at once"
            if rows.fault:
                return rows.fault
        if read:  # an empty file has no rows
            parser.Parse(b"", 1)  # 1: this is the end
    except expat.ExpatError as error:
        return rows.fault or f", line {error.lineno}, is not well-formed XML ({expat.ErrorString(error.code)})"
    except (LookupError, ValueError) as error:
        return f" cannot be read as {encoding} ({error})"
    return rows.fault or ("" if rows.rows or not read else f" has no element {rows.tag}, the `rowTag` of its source")


def _is_same_encoding(one: str, other: str) -> bool:
    """Return whether two names are of one encoding."""
    try:
        return codecs.lookup(one).name == codecs.lookup(other).name
    except LookupError:
        return one.lower() == other.lower()
