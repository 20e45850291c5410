"""Refuse an XML file that Spark would read wrongly without an error.

Spark cuts a file into the elements called `rowTag` and parses each of them by itself. It never sees that the file ends
within one, which encoding the file declares, or that an entity is defined outside the row, and leaves out what it
cannot find. So the file is parsed here once more as a whole, in parts of bounded size, without building anything.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast
from xml.parsers import expat

from deltafold.landing.preflight.text_survey import SCAN_BYTES

LONGEST_ROW = 64_000_000  # bytes of a row, which Spark holds as a whole
ROW_TAG, ENCODING = "rowtag", ("encoding", "charset")


@dataclass
class _Rows:
    """Measures the rows of a document while it is parsed; fault: the first one."""

    parser: Any
    tag: str
    encoding: str
    depth: int = 0
    begins: int = 0
    rows: int = 0
    fault: str = field(default="")

    def start(self, name: str, _: Mapping[str, str]) -> None:
        if name == self.tag:
            self.begins = self.parser.CurrentByteIndex if not self.depth else self.begins
            self.depth, self.rows = self.depth + 1, self.rows + (not self.depth)

    def end(self, name: str) -> None:
        self.depth -= name == self.tag

    def declaration(self, _: str, encoding: str | None, __: int) -> None:
        if encoding and not same_encoding(encoding, self.encoding):
            self.fault = f" declares the encoding {encoding} and is read as {self.encoding}: set the option `encoding`"

    def entity(self, name: str, *_: object) -> None:
        self.fault = self.fault or f" defines or refers to the entity {name}, which is not read"


def xml_fault(file: BinaryIO, options: Mapping[str, str]) -> str:
    """Return the first fault of an XML file, or nothing. options: those of the source."""
    given = {name.lower(): value for name, value in options.items()}
    encoding = next((given[name] for name in ENCODING if name in given), "UTF-8")
    parser = cast(Any, expat.ParserCreate(encoding))
    rows = _Rows(parser, given.get(ROW_TAG, ""), encoding)
    parser.StartElementHandler, parser.EndElementHandler = rows.start, rows.end
    parser.XmlDeclHandler, parser.EntityDeclHandler = rows.declaration, rows.entity
    parser.SkippedEntityHandler, parser.buffer_text = rows.entity, True
    read = 0
    try:
        while part := file.read(SCAN_BYTES):
            parser.Parse(part, False)
            read += len(part)
            if rows.depth and read - rows.begins > LONGEST_ROW:
                return f" has a row of more than {LONGEST_ROW:,} bytes, which Spark would hold as a whole"
            if rows.fault:
                return rows.fault
        if read:  # an empty file has no rows
            parser.Parse(b"", True)
    except expat.ExpatError as error:
        return rows.fault or f", line {error.lineno}, is not well-formed XML ({expat.ErrorString(error.code)})"
    except (LookupError, ValueError) as error:
        return f" cannot be read as {encoding} ({error})"
    return rows.fault or ("" if rows.rows or not read else f" has no element {rows.tag}, the `rowTag` of its source")


def same_encoding(one: str, other: str) -> bool:
    """Return whether two names are of one encoding."""
    try:
        return codecs.lookup(one).name == codecs.lookup(other).name
    except LookupError:
        return one.lower() == other.lower()
