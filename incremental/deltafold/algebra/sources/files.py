"""Declare folders of input files, and check the options with which Spark reads them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from deltafold.algebra.errors import SourceError
from deltafold.algebra.local_path import locate_folder
from deltafold.algebra.sources.constraints import ForeignKey, check_declaration

Malformed = Literal["fail", "quarantine"]
Format = Literal["csv", "json", "xml", "text", "parquet", "orc", "avro", "binary"]
DURATION = re.compile(r"[1-9][0-9]{0,5} (minute|hour|day|week)s?")
MARKED_FORMATS = ("csv", "json")  # of a malformed row Spark can give the text; of XML it gives that of the file
SINGLE_VARIANT = "singlevariantcolumn"  # a reader option, in lower case: each row is one VARIANT
EVERY_ROW = (
    "a landing reads every row and stops at malformed ones. Remove it, or keep those rows apart with "
    "`malformed: quarantine`"
)
_EVERY_FILE = "a landing reads every file of its folder. Remove it, and keep files that are not data elsewhere"
# Spark's reader options, in lower case, that decide which rows are read
_FIXED_OPTIONS = {
    **dict.fromkeys(("mode", "columnnameofcorruptrecord"), EVERY_ROW),
    **dict.fromkeys(
        ("__globpaths__", "basepath", "ignorecorruptfiles", "ignoreextension", "ignoremissingfiles", "modifiedafter",
         "modifiedbefore", "pathglobfilter", "recursivefilelookup"),
        _EVERY_FILE,
    ),
}  # fmt: skip
_TEXT_OPTIONS = (
    "charset compression dateFormat enableDateTimeParsingFallback encoding lineSep locale multiLine samplingRatio "
    "singleVariantColumn timeFormat timeZone timestampFormat timestampNTZFormat "
)
# Spark's reader options by format, which ignores others
READER_OPTIONS = {
    "csv": _TEXT_OPTIONS + "charToEscapeQuoteEscaping codec columnPruning comment delimiter emptyValue enforceSchema "
    "escape escapeQuotes extension header ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace inferSchema inputBufferSize "
    "maxCharsPerColumn maxColumns nanValue negativeInf nullValue positiveInf preferDate quote quoteAll sep "
    "unescapedQuoteHandling",
    "json": _TEXT_OPTIONS + "allowBackslashEscapingAnyCharacter allowComments allowNonNumericNumbers "
    "allowNumericLeadingZeros allowSingleQuotes allowUnquotedControlChars allowUnquotedFieldNames dropFieldIfAllNull "
    "ignoreNullFields inferTimestamp prefersDecimal pretty primitivesAsString sortKeys useUnsafeRow "
    "writeNonAsciiCharacterAsCodePoint",
    "xml": _TEXT_OPTIONS.replace("lineSep ", "") + "arrayElementName attributePrefix declaration excludeAttribute "
    "ignoreNamespace ignoreSurroundingSpaces indent inferSchema nullValue preferDate prefersDecimal rootTag rowTag "
    "rowValidationXSDPath useLegacyXMLParser validateName valueTag wildcardColName",
    "text": "compression encoding lineSep wholetext",
    "avro": "avroSchema datetimeRebaseMode enableStableIdentifiersForUnionType stableIdentifierPrefixForUnionType",
    "orc": "compression mergeSchema",
    "parquet": "compression datetimeRebaseMode int96RebaseMode mergeSchema",
}


@dataclass(frozen=True)
class Expire:
    """Closes old event time: rows older than the newest landed event time less a duration are not landed any more.

    column: the event time, a DATE or a TIMESTAMP; after: a number of minutes, hours, days or weeks, such as `30 days`.
    """

    column: str
    after: str

    def __post_init__(self) -> None:
        if DURATION.fullmatch(self.after.strip()) is None:
            raise SourceError(
                f"expire after {self.after!r}: not a duration. Write one such as '30 days' or '12 hours'."
            )

    @property
    def count(self) -> int:
        """The number of units."""
        return int(self.after.split()[0])

    @property
    def unit(self) -> str:
        """The unit in SQL, such as `DAY`."""
        return self.after.split()[1].rstrip("s").upper()


@dataclass(frozen=True)
class Files:
    """A folder of input files, landed into a Delta table of the warehouse first.

    path: a local folder, relative to the current one, or file:///folder, or a folder in a store (`s3a://bucket/folder`),
    whose changed files a landing copies to this machine;
    format: csv, json, xml, text (a line a row), parquet, orc, avro or binary (a file a row);
    schema: Spark DDL of all columns, the partition column included;
    partition_by: the partition column, whose folders are named `column=value`, or None for one folder of files;
    options: Spark's reader options (CSV has a header by default), as texts, numbers, or true and false;
    primary_key, foreign_keys, append_only: as of a Delta table;
    malformed: a row that does not fit the schema stops the landing (`fail`), or goes to a quarantine table with file,
    line and reason (`quarantine`); more than `quarantine_limit` rows in it stop the landing;
    expire: closes old event time; rows that are too late are treated as malformed ones.
    """

    path: str
    format: Format
    schema: str
    partition_by: str | None = None
    invariant: bool = False
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    append_only: bool = False
    malformed: Malformed = "fail"
    quarantine_limit: int = 1000
    expire: Expire | None = None

    def __post_init__(self) -> None:
        # Python and the JVM may have different current folders
        object.__setattr__(self, "path", locate_folder("the folder of input files", self.path))
        object.__setattr__(self, "options", options_as_text(self.path, self.options))
        if self.format not in get_args(Format):
            known = ", ".join(get_args(Format))
            raise SourceError(f"{self.path}: unknown format {self.format!r}. Land the files as one of {known}.")
        fault = quarantine_fault(self.malformed, self.quarantine_limit, self.format, self.options)
        if fault := option_fault(self.format, self.options) or format_fault(self.format, self.options) or fault:
            raise SourceError(f"{self.path}: {fault}.")
        check_declaration(self)

    @property
    def address(self) -> str:
        """The folder."""
        return self.path


def options_as_text(where: str, options: Mapping[str, object]) -> dict[str, str]:
    """Return options as Spark takes them: true, false and numbers as texts. Raises SourceError for another value."""
    texts = dict[str, str]()
    for name, value in options.items():
        if not isinstance(text := as_text(value), str):
            given = type(value).__name__
            raise SourceError(f"{where}: the option `{name}` cannot be of type {given}. Give a text or a number.")
        texts[name] = text
    return texts


def as_text(value: object) -> object:
    """Return a truth value or a number as Spark's options and settings have it, and any other value as it is."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def format_fault(format: str, options: Mapping[str, str]) -> str:
    """Return why files of a format cannot be read with these options, and the fix; empty if they can."""
    if format == "xml" and not any(name.lower() == "rowtag" and value.strip() for name, value in options.items()):
        return "XML needs the name of the element that is a row. Set the option `rowTag`"
    return ""


def malformed_fault(malformed: str, limit: int) -> str:
    """Return why a handling of malformed rows, or the limit of a quarantine, cannot be; empty if both can."""
    if malformed not in get_args(Malformed):
        return f"malformed is `fail` or `quarantine`, not {malformed!r}. Choose one of them"
    if malformed == "quarantine" and limit < 1:
        return f"invalid quarantine_limit {limit}. Give 1 or more, or use `malformed: fail`"
    return ""


def quarantine_fault(malformed: str, limit: int, format: str, options: Mapping[str, str]) -> str:
    """Return why the declared handling of malformed rows is invalid, and the fix; empty if it is valid."""
    if malformed == "fail":
        return ""
    if fault := malformed_fault(malformed, limit):
        return fault
    if format not in MARKED_FORMATS:
        because = "each is read completely or not at all"
        return f"rows of {format} files cannot be quarantined: {because}. Use `malformed: fail`"
    lines = {name.lower(): value.lower() for name, value in options.items()}
    if SINGLE_VARIANT in lines:
        return "rows read as one VARIANT cannot be quarantined: Spark marks none of them. Use `malformed: fail`"
    if format == "json" and lines.get("multiline") == "true":
        return "JSON over several lines is read whole or not at all. Write a line a row, or use `malformed: fail`"
    return ""


def option_fault(format: str, options: Mapping[str, str]) -> str:
    """Return why a source of a format cannot have one of its reader options, and the fix; empty if it can have all.

    A name with a dot is a setting of Hadoop's, which Spark passes on.
    """
    known = {name.lower(): name for name in READER_OPTIONS.get(format, "").split()}
    for name in options:
        if because := _FIXED_OPTIONS.get(name.lower()):  # Spark ignores the case
            return f"`{name}` cannot be an option: {because}"
        if known and name.lower() not in known and "." not in name:
            near = difflib.get_close_matches(name.lower(), known, n=1)
            fix = f"Write `{known[near[0]]}`" if near else "Remove it, or look its name up in Spark's docs"
            return f"Spark's reader of {format} files has no option `{name}`. {fix}"
    return ""
