"""Declare streams: whatever Spark's Structured Streaming reads, landed exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from deltafold.algebra.errors import SourceError
from deltafold.algebra.local_path import is_uri, local_path
from deltafold.algebra.sources.constraints import ForeignKey, check_declaration
from deltafold.algebra.sources.files import EVERY_ROW, Malformed, malformed_fault, option_fault, options_as_text

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
_FIXED_OPTIONS = {
    **dict.fromkeys(("mode", "columnnameofcorruptrecord"), EVERY_ROW),
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
        object.__setattr__(self, "options", options_as_text(self.path or f"stream of {self.format}", self.options))
        fault = stream_fault(self.format, self.path, self.options, self.malformed, self.quarantine_limit)
        if fault := fault or key_fault(self.format, self.key, self.append_only):
            raise SourceError(f"{self.address}: {fault}.")
        check_declaration(self)

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


def stream_fault(format: str, path: str | None, options: Mapping[str, str], malformed: str, limit: int) -> str:
    """Return why a stream cannot be landed as declared, and the fix; empty if it can."""
    if because := _ELSEWHERE.get(format.lower()):
        return f"a stream of {format} is not landed: {because}"
    if not format.strip():
        return f"a stream needs a format. Write one of {', '.join(FILE_FORMATS)}, or another one that Spark streams"
    if (path is None) == (format in FILE_FORMATS):
        fix = "Give `path`" if path is None else "Remove `path`"
        return f"a stream of {format} {'needs a folder' if path is None else 'has no folder'}. {fix}"
    return _option_fault(format, options) or _quarantine_fault(format, malformed, limit)


def key_fault(format: str, key: str | None, append_only: bool) -> str:
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


def _option_fault(format: str, options: Mapping[str, str]) -> str:
    of_stream = {name.lower() for name in FILE_OPTIONS}
    for name in options:
        because = _FIXED_OPTIONS.get(name.lower())
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


def _quarantine_fault(format: str, malformed: str, limit: int) -> str:
    if fault := malformed_fault(malformed, limit):
        return fault
    if malformed == "quarantine" and format not in PARSED_FORMATS:
        return f"records of {format} cannot be quarantined: Spark reads each, or none of them. Use `malformed: fail`"
    return ""
