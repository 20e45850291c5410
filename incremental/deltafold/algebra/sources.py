"""Declare sources: Delta tables that others write, folders of input files, and streams.

Constraints on the rows of a source (a primary key, foreign keys, append-only) are checked in every refresh before
anything is written, and the work that they make unnecessary is omitted (constraints.py).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal, cast, get_args

from deltafold.algebra.added import cause_of, load_added
from deltafold.algebra.errors import DeltafoldError, SourceError
from deltafold.algebra.local_path import is_uri, local_path, locate_folder
from deltafold.algebra.secrets import INSTEAD, has_password, mask_secrets
from deltafold.algebra.sqltext import table_name_fault


@dataclass(frozen=True)
class ForeignKey:
    """Columns whose values, where none is NULL, are the primary key of some row of another source, column by column."""

    columns: tuple[str, ...]
    source: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", _column_tuple(self.columns, "foreign key"))
        if not self.columns:
            raise SourceError(f"foreign key to {self.source}: no column is named. Name those that refer to it.")


def _check_constraints(declared: SourceDeclaration) -> None:
    """Raise SourceError for a password in the address, and for constraints that contradict each other."""
    if has_password(declared.address):
        raise SourceError(f"source {mask_secrets(declared.address)}: its address contains a password. {INSTEAD}.")
    object.__setattr__(declared, "primary_key", _column_tuple(declared.primary_key, "primary key"))
    object.__setattr__(declared, "foreign_keys", tuple(declared.foreign_keys))
    if declared.invariant and declared.append_only:
        raise SourceError(
            f"source {declared.address}: both invariant and append_only are declared. "
            "Keep append_only if rows are added, else invariant."
        )
    if len(set(declared.foreign_keys)) < len(declared.foreign_keys):
        raise SourceError(f"source {declared.address}: a foreign key is declared twice. Remove one.")


def _column_tuple(columns: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Return column names as a tuple; raises SourceError for duplicates, and for a text instead of a list."""
    if isinstance(cast("object", columns), str):
        raise SourceError(f"{what}: {columns!r} is not a tuple of column names. Write ({columns!r},).")
    if len(set(columns)) < len(columns):
        raise SourceError(f"{what}: a column is named twice ({', '.join(columns)}). Name each once.")
    return tuple(columns)


@dataclass(frozen=True)
class Delta:
    """A Delta table, whoever writes it: by its path or by its name in the catalog, exactly one of them.

    path: its folder or URI; table: its name in Spark's catalog (`schema.t`, `catalog.schema.t`), looked up at each use;
    the session's current catalog and schema complete a shorter name when the source is declared, as in a SQL view;
    invariant: it never changes after a view's first epoch (a dimension table);
    primary_key: columns that no two rows share and that are never NULL; foreign_keys: those that refer to other
    sources; append_only: rows are added and never removed or changed.
    """

    path: str | None = None
    _: KW_ONLY
    invariant: bool = False
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    append_only: bool = False
    table: str | None = None

    def __post_init__(self) -> None:
        if (self.path is None) == (self.table is None) or (self.path is not None and not str(self.path).strip()):
            raise SourceError('Delta: a source has either a path or a table. Write Delta(path) or Delta(table="db.t").')
        if self.table is not None and (fault := table_name_fault(self.table)):
            raise SourceError(f"Delta: {fault}.")
        _check_constraints(self)

    @property
    def address(self) -> str:
        """The path or the name of the table, as it was declared."""
        return str(self.path if self.table is None else self.table)


Malformed = Literal["fail", "quarantine"]
Format = Literal["csv", "json", "xml", "text", "parquet", "orc", "avro", "binary"]
DURATION = re.compile(r"[1-9][0-9]{0,5} (minute|hour|day|week)s?")
MARKED_FORMATS = ("csv", "json")  # of a malformed row Spark can give the text; of XML it gives that of the file
SINGLE_VARIANT = "singlevariantcolumn"  # a reader option, in lower case: each row is one VARIANT
_EVERY_ROW = (
    "a landing reads every row and stops at malformed ones. Remove it, or keep those rows apart with "
    "`malformed: quarantine`"
)
_EVERY_FILE = "a landing reads every file of its folder. Remove it, and keep files that are not data elsewhere"
# Spark's reader options, in lower case, that decide which rows are read
_FIXED_FILE_OPTIONS = {
    **dict.fromkeys(("mode", "columnnameofcorruptrecord"), _EVERY_ROW),
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
    _: KW_ONLY
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
        object.__setattr__(self, "options", _options_as_text(self.path, self.options))
        if self.format not in get_args(Format):
            formats = ", ".join(get_args(Format))
            raise SourceError(f"{self.path}: unknown format {self.format!r}. Land the files as one of {formats}.")
        fault = quarantine_fault(self.malformed, self.quarantine_limit, self.format, self.options)
        if fault := option_fault(self.format, self.options) or format_fault(self.format, self.options) or fault:
            raise SourceError(f"{self.path}: {fault}.")
        _check_constraints(self)

    @property
    def address(self) -> str:
        """The folder."""
        return self.path


def _options_as_text(where: str, options: Mapping[str, object]) -> dict[str, str]:
    """Return options as Spark takes them: true, false and numbers as texts. Raises SourceError for another value."""
    texts = dict[str, str]()
    for name, value in options.items():
        if not isinstance(text := as_text(value), str):
            raise SourceError(
                f"{where}: the option `{name}` cannot be of type {type(value).__name__}. Give a text or a number."
            )
        texts[name] = text
    return texts


def as_text(value: object) -> object:
    """Return a truth value or a number as Spark's options and settings write it; any other value unchanged."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def format_fault(format: str, options: Mapping[str, str]) -> str:
    """Return why files of a format cannot be read with these options, and the fix; empty if they can."""
    if format == "xml" and not any(name.lower() == "rowtag" and value.strip() for name, value in options.items()):
        return "XML needs the name of the element that is a row. Set the option `rowTag`"
    return ""


def _malformed_fault(malformed: str, limit: int) -> str:
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
    if fault := _malformed_fault(malformed, limit):
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
    readable = {name.lower(): name for name in READER_OPTIONS.get(format, "").split()}
    for name in options:
        if because := _FIXED_FILE_OPTIONS.get(name.lower()):  # Spark ignores the case
            return f"`{name}` cannot be an option: {because}"
        if readable and name.lower() not in readable and "." not in name:
            near = difflib.get_close_matches(name.lower(), readable, n=1)
            fix = f"Write `{readable[near[0]]}`" if near else "Remove it, or look its name up in Spark's docs"
            return f"Spark's reader of {format} files has no option `{name}`. {fix}"
    return ""


KAFKA = "kafka"
FILE_FORMATS = ("avro", "csv", "json", "orc", "parquet", "text")
ParsedFormat = Literal["csv", "json", "text", "kafka"]  # Spark, or Deltafold, marks their malformed rows
PARSED_FORMATS = get_args(ParsedFormat)
# of Spark's file streams, for each format
FILE_OPTIONS = (
    "cleanSource", "fileNameOnly", "maxBytesPerTrigger", "maxCachedFiles", "maxFilesPerTrigger", "pathGlobFilter",
    "recursiveFileLookup", "sourceArchiveDir",
)  # fmt: skip
_ALL_FILES = "a landing takes every file once, however old it is. Remove it"
_FIXED_STREAM_OPTIONS = {
    **dict.fromkeys(("mode", "columnnameofcorruptrecord"), _EVERY_ROW),
    **dict.fromkeys(("latestfirst", "maxfileage", "ignorecorruptfiles", "ignoremissingfiles"), _ALL_FILES),
    "multiline": "a record of a JSON stream is a line. Write a line a record, or land the folder with Files(…)",
    "singlevariantcolumn": "the records of a stream have declared columns. Declare one of type VARIANT among them",
    "path": "it is an argument of its own. Write Stream(…, path=…)",
    "failondataloss": "a landing stops where Kafka has deleted messages that it has not read. Remove it, and replay "
    "the source after such a loss",
    "includeheaders": "headers are not landed. Remove it",
}
TOPICS = ("subscribe", "subscribepattern", "assign")
# columns of a Kafka stream that are not fields of its messages, with their types; a tuple: any of these
KAFKA_COLUMNS = {
    "_key": ("string", "binary"), "_value": ("string", "binary"), "_topic": ("string",), "_partition": ("int",),
    "_offset": ("bigint",), "_timestamp": ("timestamp",),
}  # fmt: skip
_ELSEWHERE = {
    "delta": "a Delta table is a source itself, deletions included. Declare Delta(path)",
    "socket": "Spark reads lines of a socket once and loses them in a crash. Write them to files with "
    "`deltafold listen`, and land these",
    "xml": "XML is landed by whole files. Declare Files(path, 'xml', schema)",
    "binary": "whole files are landed by Files(path, 'binary', schema). Declare that",
    "binaryfile": "whole files are landed by Files(path, 'binary', schema). Declare that",
}


@dataclass(frozen=True)
class Stream:
    """A stream of Spark's, landed into a Delta table of the warehouse: each landing takes what has arrived since.

    format: a folder to which files are only added (json, csv, text, parquet, orc or avro), kafka, or any other source
    that Spark streams and reads again from a position, such as rate;
    schema: Spark DDL of the columns, by name; of kafka, fields of the messages, which are JSON objects, and any of
    _key, _value, _topic, _partition, _offset and _timestamp;
    path: of a format of files, the folder, local or a URI; a file is taken once, when its name first appears, so write
    it elsewhere and move it there;
    options: Spark's options of the stream, such as maxFilesPerTrigger or kafka.bootstrap.servers, and of the reader of
    its format;
    key: of a compacted Kafka topic, the column that is the key of its messages: of each key the latest message is a
    row, and one without a value deletes it;
    primary_key, foreign_keys, append_only: as of a Delta table;
    malformed: a record that does not fit the schema stops the landing (`fail`), or goes to a quarantine table with its
    origin and the reason (`quarantine`); more than `quarantine_limit` records in it stop the landing.
    """

    format: str
    schema: str
    _: KW_ONLY
    path: str | None = None
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    key: str | None = None
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    append_only: bool = False
    malformed: Malformed = "fail"
    quarantine_limit: int = 1000

    def __post_init__(self) -> None:
        if self.path is not None and not is_uri(self.path):
            # Python and the JVM may have different current folders
            object.__setattr__(self, "path", str(local_path("the folder of a stream", self.path)))
        object.__setattr__(self, "options", _options_as_text(self.path or f"stream of {self.format}", self.options))
        fault = stream_fault(self.format, self.path, self.options, self.malformed, self.quarantine_limit)
        if fault := fault or key_fault(self.format, self.key, append_only=self.append_only):
            raise SourceError(f"{self.address}: {fault}.")
        _check_constraints(self)

    @property
    def address(self) -> str:
        """The folder, the topics, or the format."""
        return self.path or " ".join(["stream of", self.format, *self._topics.values()])

    @property
    def invariant(self) -> bool:
        """Whether it never changes."""
        return False

    @property
    def of_files(self) -> bool:
        """Whether it takes the files of a folder."""
        return self.format in FILE_FORMATS

    @property
    def identity(self) -> dict[str, str]:
        """What a position in the stream belongs to: with another one, the position means nothing."""
        return {
            "format": self.format,
            "path": self.path or "",
            **self._topics,
            **({"key": self.key} if self.key else {}),
        }

    @property
    def _topics(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.options.items() if name.lower() in TOPICS}


@dataclass(frozen=True)
class External:
    """A table of another format with versions; Iceberg's is `lake.iceberg.Iceberg`.

    address: its name in messages, and its location in lineage; open: called with the Spark session, returns how its
    versions are read, with the methods of `lake.external_table.VersionedSource`;
    invariant, primary_key, foreign_keys: as of a Delta table.
    """

    address: str
    open: Callable[[Any], Any] = field(repr=False)
    _: KW_ONLY
    invariant: bool = False
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    append_only: ClassVar[bool] = False

    def __post_init__(self) -> None:
        address, opened = cast("tuple[object, object]", (self.address, self.open))
        if not isinstance(address, str) or not address.strip():
            raise SourceError(f"External: {address!r} is not the address of a table. Write External(address, open).")
        _check_constraints(self)
        if not callable(opened):
            raise SourceError(
                f"source {address}: {type(opened).__name__} cannot be called with the Spark session. Pass a function "
                "that returns how its versions are read."
            )


SOURCE_FORMATS = "deltafold.sources"


def find_source_format(name: str) -> Callable[[Mapping[str, str]], External]:
    """Return how a table of another format is declared from its options.

    A package adds a format by an entry point of the group `deltafold.sources`: its name, and such a function. Raises
    SourceError for a name that there is none of, and UsageError for a package that cannot be loaded.
    """
    formats = load_added(SOURCE_FORMATS)
    if name not in formats:
        raise SourceError(
            f"source format {name!r}: no installed package adds it. Install one with this entry point of "
            f"{SOURCE_FORMATS}, or write one of: {', '.join(sorted(formats)) or 'none'}."
        )
    return formats[name]


def declare_external(format: str, options: Mapping[str, str]) -> External:
    """Declare a table of another format; raises as `find_source_format`, and SourceError for options it fails for."""
    declare = find_source_format(format)
    try:
        declared = cast(object, declare(options))
    except DeltafoldError:
        raise
    except Exception as error:
        given = ", ".join(options) or "none"
        raise SourceError(
            f"source format {format}: it fails ({cause_of(error)}) for these options: {given}. Correct them."
        ) from error
    if not isinstance(declared, External):
        kind = type(declared).__name__
        raise SourceError(
            f"source format {format}: it returns a {kind}, not an External. Correct or remove its package."
        )
    return declared


SourceDeclaration = Delta | Files | Stream | External


def is_name(name: object) -> bool:
    """Return whether something can name a source or a view, and so a folder."""
    return isinstance(name, str) and name.isidentifier() and not name.startswith("__") and len(name) <= 128


def check_source(name: str, declaration: object) -> SourceDeclaration:
    """Return the declaration, unchanged; raises SourceError for something else, such as a bare path."""
    if isinstance(declaration, Delta | Files | Stream | External):
        return declaration
    raise SourceError(
        f"source {name}: {type(declaration).__name__} is not a declaration. "
        "Write Delta(path), Delta(table=name) for a table of the catalog, Files(…), Stream(…), External(…), or give a "
        "view."
    )


def stream_fault(format: str, path: str | None, options: Mapping[str, str], malformed: str, limit: int) -> str:
    """Return why a stream cannot be landed as declared, and the fix; empty if it can."""
    if because := _ELSEWHERE.get(format.lower()):
        return f"a stream of {format} is not landed: {because}"
    if not format.strip():
        return f"a stream needs a format. Write one of {', '.join(FILE_FORMATS)}, or another one that Spark streams"
    if (path is None) == (format in FILE_FORMATS):
        fix = "Give `path`" if path is None else "Remove `path`"
        return f"a stream of {format} {'needs a folder' if path is None else 'has no folder'}. {fix}"
    return _stream_option_fault(format, options) or _stream_quarantine_fault(format, malformed, limit)


def key_fault(format: str, key: str | None, *, append_only: bool) -> str:
    """Return why the rows of a stream cannot be the latest ones by a key, and the fix; empty if they can."""
    if key is None:
        return ""
    if format != KAFKA:
        return f"`key` is for the messages of kafka, which are in order; a stream of {format} has none. Remove it"
    if key in KAFKA_COLUMNS:
        return f"`key` names a column of its own, which gets the keys of the messages, not {key}. Name another one"
    if append_only:
        return "rows of a stream with a `key` are replaced and deleted. Remove `append_only`"
    return ""


def _stream_option_fault(format: str, options: Mapping[str, str]) -> str:
    of_stream = {name.lower() for name in FILE_OPTIONS}
    for name in options:
        because = _FIXED_STREAM_OPTIONS.get(name.lower())
        if because and (name.lower(), format) != ("multiline", "csv"):
            return f"`{name}` cannot be an option: {because}"
    if format == KAFKA:
        return _kafka_fault({name.lower() for name in options})
    if format not in FILE_FORMATS:
        return ""  # only Spark knows them
    return option_fault(format, {name: value for name, value in options.items() if name.lower() not in of_stream})


def _kafka_fault(names: set[str]) -> str:
    if "kafka.bootstrap.servers" not in names:
        return "a stream of kafka needs its brokers. Set the option `kafka.bootstrap.servers`"
    if len(names & set(TOPICS)) != 1:
        return "a stream of kafka has one of the options `subscribe`, `subscribePattern`, `assign`. Set one of them"
    return ""


def _stream_quarantine_fault(format: str, malformed: str, limit: int) -> str:
    if fault := _malformed_fault(malformed, limit):
        return fault
    if malformed == "quarantine" and format not in PARSED_FORMATS:
        return f"records of {format} cannot be quarantined: Spark reads each, or none of them. Use `malformed: fail`"
    return ""
