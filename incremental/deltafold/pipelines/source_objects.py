"""Make the sources of the API from those that a pipeline declares."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.declaration.places import substitute
from deltafold.pipelines.declaration.sources import Source

if TYPE_CHECKING:
    from deltafold.algebra.sources import SourceDeclaration

COMMON = {"path", "format", "options", "malformed", "quarantine_limit"}


def declare(source: Source) -> SourceDeclaration:
    """Return a declared source, other than a view, for `Warehouse.source`."""
    from deltafold.api import Delta, Expire, Files, ForeignKey, Stream

    keys: Any = {
        "primary_key": source.primary_key,
        "foreign_keys": tuple(ForeignKey(key.columns, key.source) for key in source.foreign_keys),
        "append_only": source.append_only,
    }
    if source.stream is not None:
        given: Any = source.stream.model_dump(include={*COMMON, "key"})
        given["options"] = {name: source_option(name, value) for name, value in given["options"].items()}
        return Stream(**given, schema=source.stream.schema_ddl, **keys)
    if source.files is None:
        return Delta(source.delta, table=source.table, invariant=source.invariant, **keys)
    files = source.files
    given = files.model_dump(include={*COMMON, "partition_by"})
    given |= {"schema": files.schema_ddl, "invariant": source.invariant}
    return Files(**given, expire=files.expire and Expire(files.expire.column, files.expire.after), **keys)


def source_option(name: str, value: str) -> str:
    """Return the value of a stream's option with its variables; raises DeclarationError for one that is not set."""
    try:
        return substitute(value, os.environ)
    except ValueError as error:
        raise DeclarationError(f"the option `{name}` of a stream: {error}.") from None
