"""Check the streams of pipeline.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, StrictInt, field_validator, model_validator

from incremental.algebra.secrets import is_secret
from incremental.algebra.sources import Malformed, key_fault, stream_fault
from pipelines.declaration import schema
from pipelines.declaration.places import VARIABLE, Location
from pipelines.declaration.values import Part, Text


def _no_secret(options: dict[str, str]) -> dict[str, str]:
    for name, value in options.items():
        if is_secret(name, value) and not VARIABLE.fullmatch(value):
            raise ValueError(
                f"`{name}` looks like a secret, which does not belong in this file. Write ${{NAME}}, and set that "
                "environment variable"
            )
    return options


class StreamSource(Part):
    """A stream of Spark's. schema_ddl is Spark DDL; a value in options may be `${VARIABLE}`, which is read when the
    stream is opened, so that secrets are in no listing.
    """

    format: str
    path: Location | None = None
    schema_ddl: Annotated[str, BeforeValidator(schema.as_ddl)] = Field(alias="schema")
    options: Annotated[dict[str, Text], AfterValidator(_no_secret)] = Field(default={})
    key: str | None = None
    malformed: Malformed = "fail"
    quarantine_limit: StrictInt = 1000

    @model_validator(mode="after")
    def _can_be_landed(self) -> StreamSource:
        fault = stream_fault(self.format, self.path, self.options, self.malformed, self.quarantine_limit)
        fault = fault or key_fault(self.format, self.key, False)
        if not fault and "quarantine_limit" in self.model_fields_set and self.malformed == "fail":
            fault = "`quarantine_limit` is for `malformed: quarantine`. Add that, or remove the limit"
        if fault:
            raise ValueError(fault)
        return self

    @model_validator(mode="after")
    def _has_its_key(self) -> StreamSource:
        columns = schema.schema_columns(self.schema_ddl)
        if self.key is not None and columns and self.key not in columns:
            known = ", ".join(columns)
            raise ValueError(f"`key` names `{self.key}`, not a column of the schema ({known}). Correct it")
        return self

    @field_validator("schema_ddl")
    @classmethod
    def _has_columns(cls, ddl: str) -> str:
        schema.check_types(ddl)
        return ddl
