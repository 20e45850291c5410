"""Check the streams of pipeline.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StrictInt, model_validator

from deltafold.algebra.secrets import is_secret
from deltafold.algebra.sources import Malformed, key_fault, stream_fault
from deltafold.pipelines.declaration import schema
from deltafold.pipelines.declaration.places import VARIABLE_REFERENCE, Location
from deltafold.pipelines.declaration.values import Part, YamlText, limit_fault


def _no_secret(options: dict[str, str]) -> dict[str, str]:
    for name, value in options.items():
        if is_secret(name, value) and not VARIABLE_REFERENCE.fullmatch(value):
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
    schema_ddl: schema.Ddl = Field(alias="schema")
    options: Annotated[dict[str, YamlText], AfterValidator(_no_secret)] = Field(default={})
    key: str | None = None
    malformed: Malformed = "fail"
    quarantine_limit: StrictInt = 1000

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
