"""Check the sources that pipeline.yaml declares: their files, streams or tables, and the constraints on them.

Columns of files and streams are known from their schema; those of a Delta table are checked when it is first read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from deltafold.algebra.errors import DeltafoldError
from deltafold.algebra.secrets import is_secret
from deltafold.algebra.sources import (
    DURATION,
    Format,
    Malformed,
    find_source_format,
    format_fault,
    key_fault,
    option_fault,
    quarantine_fault,
    stream_fault,
)
from deltafold.pipelines.declaration import schema
from deltafold.pipelines.declaration.values import (
    VARIABLE_REFERENCE,
    FolderOrStore,
    Location,
    Options,
    Part,
    PipelineName,
    TableName,
    YamlText,
    limit_fault,
)


def _as_list(value: object) -> object:
    """Wrap a single column in a list."""
    return (value,) if isinstance(value, str) else value


Columns = Annotated[
    tuple[str, ...], BeforeValidator(_as_list, json_schema_input_type=str | list[str]), Field(min_length=1)
]


class ForeignKeyPart(Part):
    """Columns that refer to the primary key of another source, in its order."""

    columns: Columns
    """The columns of this source."""
    source: str
    """The source whose primary key they refer to."""


def _no_secret(options: dict[str, str]) -> dict[str, str]:
    for name, value in options.items():
        if is_secret(name, value) and not VARIABLE_REFERENCE.fullmatch(value):
            raise ValueError(
                f"`{name}` looks like a secret, which does not belong in this file. Write ${{NAME}}, and set that "
                "environment variable"
            )
    return options


class StreamSource(Part):
    """A stream of Spark's. Its schema is Spark DDL; a value in options may be `${VARIABLE}`, which is read when the
    stream is opened, so that secrets are in no listing.
    """

    format: str
    """`json`, `csv`, `text`, `parquet`, `orc`, `avro`, `kafka`, or another that Spark streams."""
    path: Location | None = None
    """Of files: a folder to which files are moved, or a URI."""
    schema_ddl: schema.Ddl = Field(alias="schema")
    """Spark DDL, or a mapping from column to type."""
    options: Annotated[dict[str, YamlText], AfterValidator(_no_secret)] = Field(default={})
    """Spark's options of the stream; a value may be `${VARIABLE}`."""
    key: str | None = None
    """Of a compacted Kafka topic: the column that is the messages' key."""
    malformed: Malformed = "fail"
    """Whether a record that does not fit stops the landing, or goes to the quarantine."""
    quarantine_limit: StrictInt = 1000
    """More records in quarantine stop the landing."""

    @model_validator(mode="after")
    def _can_be_landed(self) -> StreamSource:
        fault = stream_fault(self.format, self.path, self.options, self.malformed, self.quarantine_limit)
        fault = fault or key_fault(self.format, self.key, append_only=False)
        fault = fault or limit_fault(self.model_fields_set, self.malformed)
        if fault:
            raise ValueError(fault)
        return self

    @model_validator(mode="after")
    def _has_its_key(self) -> StreamSource:
        schema.check_names_column("key", self.key, self.schema_ddl)
        return self


class ExpirePart(Part):
    """Closes event time that is older than the newest landed one by a duration such as `30 days`."""

    column: str
    """The column with the event time."""
    after: str
    """How much older than the newest row a row may be, such as `30 days`."""

    @field_validator("after")
    @classmethod
    def _is_a_duration(cls, after: str) -> str:
        if DURATION.fullmatch(after.strip()) is None:
            raise ValueError(f"{after!r} is not a duration. Write one such as `30 days` or `12 hours`")
        return after


class FilesSource(Part):
    """Input files. Their schema is Spark DDL and includes the partition column."""

    path: FolderOrStore
    """A folder or a URI; with `partition_by: day` the files are in `day=2013-01-01/` below it."""
    format: Format
    """The format of the files."""
    schema_ddl: schema.Ddl = Field(alias="schema")
    """Spark DDL, or a mapping from column to type; it includes the partition column."""
    partition_by: str | None = None
    """The column in the names of the folders."""
    options: Options = Field(default={})
    """Spark's options of the reader."""
    malformed: Malformed = "fail"
    """Whether a row that does not fit stops the landing, or goes to the quarantine."""
    quarantine_limit: StrictInt = 1000
    """More rows in quarantine stop the landing."""
    expire: ExpirePart | None = None
    """Closes event time older than the newest row by this much."""

    @model_validator(mode="after")
    def _can_quarantine(self) -> FilesSource:
        fault = quarantine_fault(self.malformed, self.quarantine_limit, self.format, self.options)
        fault = option_fault(self.format, self.options) or format_fault(self.format, self.options) or fault
        fault = fault or limit_fault(self.model_fields_set, self.malformed)
        if fault:
            raise ValueError(fault)
        return self

    @model_validator(mode="after")
    def _expires_by_a_column(self) -> FilesSource:
        schema.check_names_column("expire", self.expire and self.expire.column, self.schema_ddl)
        return self

    @field_validator("partition_by")
    @classmethod
    def _is_a_column(cls, column: str | None, info: ValidationInfo) -> str | None:
        columns = schema.schema_columns(info.data["schema_ddl"]) if "schema_ddl" in info.data else ()
        if column is not None and columns and column not in columns:
            raise ValueError(
                f"`{column}` is not a column of the schema ({', '.join(columns)}). Add it there with its type"
            )
        return column


class ExternalSource(Part):
    """A table of a format that an installed package adds (entry points `deltafold.sources`)."""

    format: str
    """The name of the format."""
    options: Annotated[dict[str, YamlText], AfterValidator(_no_secret)] = Field(default={})
    """What the format needs to find the table; a value may be `${VARIABLE}`."""

    @field_validator("format")
    @classmethod
    def _is_installed(cls, format: str) -> str:
        try:
            find_source_format(format)
        except DeltafoldError as error:
            raise ValueError(str(error).rstrip(".")) from None
        return format


class Source(Part):
    """One table of the query, exactly one of: a Delta table by path or name, files, a stream, another table, a view."""

    delta: Location | None = None
    """The path or URI of a Delta table, whoever writes it."""
    table: TableName | None = None
    """A Delta table by its name in Spark's catalog."""
    files: FilesSource | None = None
    """Input files, landed by partition."""
    stream: StreamSource | None = None
    """A stream; each landing takes what has arrived."""
    external: ExternalSource | None = None
    """A table of another format with versions."""
    view: PipelineName | None = None
    """The answer of another pipeline in this folder, refreshed first."""
    invariant: StrictBool = False
    """The source never changes: no change of it is computed."""
    primary_key: Columns = ()
    """Columns that are never NULL and that no two rows share."""
    foreign_keys: tuple[ForeignKeyPart, ...] = ()
    """Columns that refer to the primary keys of other sources."""
    append_only: StrictBool = False
    """Rows are only added; checked, like keys, in each refresh."""

    @model_validator(mode="after")
    def _one_kind(self) -> Source:
        origins = {
            "delta": self.delta,
            "table": self.table,
            "files": self.files,
            "stream": self.stream,
            "external": self.external,
            "view": self.view,
        }
        declared = [f"`{key}`" for key, origin in origins.items() if origin is not None]
        if len(declared) != 1:
            raise ValueError(
                f"a source has one origin, this one has {' and '.join(declared) or 'none'}. Write one of "
                "`delta: path`, `table: name`, `files: {path, format, schema}`, `stream: {format, schema}`, "
                "`external: {format, options}` and `view: pipeline`"
            )
        if self.stream and self.invariant:
            raise ValueError("a stream cannot be invariant: it grows. Remove `invariant`")
        if self.external and self.append_only:
            raise ValueError("a table of another format cannot be declared append-only. Remove `append_only`")
        if self.view and self.invariant:
            raise ValueError("a view cannot be invariant: it changes with its sources. Remove `invariant`")
        if self.view and (self.primary_key or self.foreign_keys or self.append_only):
            raise ValueError(
                "constraints of a view cannot be declared. Remove `primary_key`, `foreign_keys`, `append_only`"
            )
        return self

    @model_validator(mode="after")
    def _keys_fit(self) -> Source:
        landed = self.files or self.stream
        _check_keys(self.primary_key, self.foreign_keys, landed and landed.schema_ddl)
        if self.invariant and self.append_only:
            raise ValueError("it is both `invariant` and `append_only`. Keep `append_only` if rows are added to it")
        return self


def _check_keys(primary: Sequence[str], foreign: Sequence[ForeignKeyPart], ddl: str | None) -> None:
    """Raise ValueError, with a fix, for keys that the schema of a source (None: unknown) cannot have."""
    columns = () if ddl is None else schema.schema_columns(ddl)
    _check_columns("primary key", primary, columns)
    for key in foreign:
        _check_columns("foreign key", key.columns, columns)
    if len(set(foreign)) < len(foreign):
        raise ValueError("a foreign key is declared twice. Remove one")


def _check_columns(what: str, named: Sequence[str], columns: Sequence[str]) -> None:
    """Raise ValueError, with a fix, for columns that are named twice or that a schema (empty: unknown) lacks."""
    for column in named:
        if columns and column not in columns:
            raise ValueError(
                f"the {what} names `{column}`, which is not a column of the schema ({', '.join(columns)}). Correct it"
            )
        if list(named).count(column) > 1:
            raise ValueError(f"the {what} names `{column}` twice. Remove one")


def check_references(sources: Mapping[str, Source]) -> None:
    """Raise ValueError, with a fix, for a foreign key that refers to no primary key of a declared source."""
    for name, source in sources.items():
        for part in source.foreign_keys:
            what = f"the foreign key ({', '.join(part.columns)}) of `{name}` refers to `{part.source}`"
            if part.source not in sources:
                raise ValueError(f"{what}, which is not declared. Declare it, or name one of {', '.join(sources)}")
            key = sources[part.source].primary_key
            if not key:
                raise ValueError(f"{what}, which declares no `primary_key`. Add it there, or remove the foreign key")
            if len(key) != len(part.columns):
                raise ValueError(f"{what}, whose primary key is ({', '.join(key)}). Name one column for each")
