"""Check the constraints that pipeline.yaml declares on a pipeline's sources.

Columns of input files are known from their schema; those of a Delta table are checked when it is first read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from deltafold.pipelines.declaration import schema


def _as_list(value: object) -> object:
    """Wrap a single column in a list."""
    return (value,) if isinstance(value, str) else value


Columns = Annotated[tuple[str, ...], BeforeValidator(_as_list), Field(min_length=1)]


class ForeignKeyPart(BaseModel):
    """Columns that refer to the primary key of another source, in its order."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    columns: Columns
    source: str


def check_keys(primary: Sequence[str], foreign: Sequence[ForeignKeyPart], ddl: str | None) -> None:
    """Raise ValueError, with a fix, for keys that the schema of a source (None: unknown) cannot have."""
    known = () if ddl is None else schema.schema_columns(ddl)
    check_columns("primary key", primary, known)
    for key in foreign:
        check_columns("foreign key", key.columns, known)
    if len(set(foreign)) < len(foreign):
        raise ValueError("a foreign key is declared twice. Remove one")


def check_columns(what: str, columns: Sequence[str], known: Sequence[str]) -> None:
    """Raise ValueError, with a fix, for columns that occur twice or that a schema (empty: unknown) lacks."""
    for column in columns:
        if known and column not in known:
            raise ValueError(
                f"the {what} names `{column}`, which is not a column of the schema ({', '.join(known)}). Correct it"
            )
        if list(columns).count(column) > 1:
            raise ValueError(f"the {what} names `{column}` twice. Remove one")


def check_references(keys: Mapping[str, Sequence[str]], foreign_keys: Mapping[str, Sequence[ForeignKeyPart]]) -> None:
    """Raise ValueError, with a fix, for a foreign key that refers to no primary key of a declared source.

    keys: the primary key of every source, empty where it has none.
    """
    for name, parts in foreign_keys.items():
        for part in parts:
            what = f"the foreign key ({', '.join(part.columns)}) of `{name}` refers to `{part.source}`"
            if part.source not in keys:
                raise ValueError(f"{what}, which is not declared. Declare it, or name one of {', '.join(keys)}")
            key = keys[part.source]
            if not key:
                raise ValueError(f"{what}, which declares no `primary_key`. Add it there, or remove the foreign key")
            if len(key) != len(part.columns):
                raise ValueError(f"{what}, whose primary key is ({', '.join(key)}). Name one column for each")
