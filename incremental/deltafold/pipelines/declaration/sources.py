"""Check the sources of pipeline.yaml."""

from __future__ import annotations

from pydantic import Field, StrictBool, StrictInt, ValidationInfo, field_validator, model_validator

from deltafold.algebra.sources import DURATION, Format, Malformed, format_fault, option_fault, quarantine_fault
from deltafold.pipelines.declaration import schema
from deltafold.pipelines.declaration.constraints import Columns, ForeignKeyPart, check_keys
from deltafold.pipelines.declaration.places import FolderOrStore, Location, TableName
from deltafold.pipelines.declaration.streams import StreamSource
from deltafold.pipelines.declaration.values import Options, Part, PipelineName, limit_fault


class ExpirePart(Part):
    """Closes event time that is older than the newest landed one by a duration such as `30 days`."""

    column: str
    after: str

    @field_validator("after")
    @classmethod
    def _is_a_duration(cls, after: str) -> str:
        if DURATION.fullmatch(after.strip()) is None:
            raise ValueError(f"{after!r} is not a duration. Write one such as `30 days` or `12 hours`")
        return after


class FilesSource(Part):
    """Input files. schema_ddl is Spark DDL and includes the partition column."""

    path: FolderOrStore
    format: Format
    schema_ddl: schema.Ddl = Field(alias="schema")
    partition_by: str | None = None
    options: Options = Field(default={})
    malformed: Malformed = "fail"
    quarantine_limit: StrictInt = 1000
    expire: ExpirePart | None = None

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


class Source(Part):
    """One table of the query, exactly one of: a Delta table by path or name, input files, a stream, a view."""

    delta: Location | None = None
    table: TableName | None = None
    files: FilesSource | None = None
    stream: StreamSource | None = None
    view: PipelineName | None = None
    invariant: StrictBool = False
    primary_key: Columns = ()
    foreign_keys: tuple[ForeignKeyPart, ...] = ()
    append_only: StrictBool = False

    @model_validator(mode="after")
    def _one_kind(self) -> Source:
        origins = {
            "delta": self.delta,
            "table": self.table,
            "files": self.files,
            "stream": self.stream,
            "view": self.view,
        }
        found = [f"`{key}`" for key, origin in origins.items() if origin is not None]
        if len(found) != 1:
            raise ValueError(
                f"a source has one origin, this one has {' and '.join(found) or 'none'}. Write one of `delta: path`, "
                "`table: name`, `files: {path, format, schema}`, `stream: {format, schema}` and `view: pipeline`"
            )
        if self.stream and self.invariant:
            raise ValueError("a stream cannot be invariant: it grows. Remove `invariant`")
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
        check_keys(self.primary_key, self.foreign_keys, landed and landed.schema_ddl)
        if self.invariant and self.append_only:
            raise ValueError("it is both `invariant` and `append_only`. Keep `append_only` if rows are added to it")
        return self
