"""Check the streams of pipeline.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, StrictInt, field_validator, model_validator

from incremental.algebra.sources import Malformed, stream_fault
from pipelines.declaration import schema
from pipelines.declaration.places import Location
from pipelines.declaration.values import Options, Part


class StreamSource(Part):
    """A stream of Spark's. schema_ddl is Spark DDL."""

    format: str
    path: Location | None = None
    schema_ddl: Annotated[str, BeforeValidator(schema.as_ddl)] = Field(alias="schema")
    options: Options = Field(default={})
    malformed: Malformed = "fail"
    quarantine_limit: StrictInt = 1000

    @model_validator(mode="after")
    def _can_be_landed(self) -> StreamSource:
        fault = stream_fault(self.format, self.path, self.options, self.malformed, self.quarantine_limit)
        if not fault and "quarantine_limit" in self.model_fields_set and self.malformed == "fail":
            fault = "`quarantine_limit` is for `malformed: quarantine`. Add that, or remove the limit"
        if fault:
            raise ValueError(fault)
        return self

    @field_validator("schema_ddl")
    @classmethod
    def _has_columns(cls, ddl: str) -> str:
        schema.check_types(ddl)
        return ddl
