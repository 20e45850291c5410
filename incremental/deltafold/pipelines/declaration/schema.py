"""Parse column schemas, DDL or a mapping, into a DDL string and column names.

Only the columns and the names of their types are checked here, so that a declaration can be checked without a JVM;
Spark checks the rest when the source is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from deltafold.pipelines.declaration import types


def as_ddl(value: object) -> object:
    """Return the DDL of a mapping from column name to Spark type; any other value unchanged, for its own check."""
    if not isinstance(value, Mapping):
        return value
    if not all(isinstance(part, str) for entry in value.items() for part in entry):
        raise ValueError("every column of the mapping needs a type. Write `name: TYPE`")
    return mapping_to_ddl(value)


def mapping_to_ddl(columns: Mapping[str, str]) -> str:
    """Return the DDL of a mapping from column name to Spark type.

    Each entry must be one column: a type that would add columns raises ValueError.
    """
    ddl = ", ".join(f"{_quote(name)} {kind}" for name, kind in columns.items())
    if schema_columns(ddl) != tuple(columns):
        raise ValueError(
            "a column's type is not one type. Write each column as `name: type`, for example `amount: DOUBLE`"
        )
    return ddl


def schema_columns(ddl: str) -> tuple[str, ...]:
    """Return the column names of a DDL string such as "id INT, tags MAP<STRING, INT>", in order; raises as `fields`."""
    return tuple(name for name, _ in ddl_fields(ddl))


def check_types(ddl: str) -> str:
    """Return the DDL; raises ValueError, with the fix, for a column whose type Spark does not have."""
    for name, kind in ddl_fields(ddl):
        if fault := types.type_fault(kind):
            raise ValueError(f"column `{name}` has {fault}")
    return ddl


def check_names_column(key: str, column: str | None, ddl: str) -> None:
    """Raise ValueError if a key of the declaration names a column that the schema does not have."""
    columns = schema_columns(ddl)
    if column is not None and columns and column not in columns:
        raise ValueError(f"`{key}` names `{column}`, not a column of the schema ({', '.join(columns)}). Correct it")


def ddl_fields(ddl: str) -> list[tuple[str, str]]:
    """Return the name and type of each column of a DDL string, in order.

    Raises ValueError, with the fix, if a column has no name or no type, or a name occurs twice.
    """
    found: list[tuple[str, str]] = []
    for part in types.split(ddl):
        name, kind = types.first_word(part)
        if not name or not kind:
            raise ValueError(
                f"`{part.strip()}` is not a column. Write `name TYPE, name TYPE`, for example `id INT, day DATE`"
            )
        if name.lower() in (known.lower() for known, _ in found):
            raise ValueError(f"column `{name}` is declared twice. Remove one")
        found.append((name, kind))
    return found


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


Ddl = Annotated[str, BeforeValidator(as_ddl), AfterValidator(check_types)]
