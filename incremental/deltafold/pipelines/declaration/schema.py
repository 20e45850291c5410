"""Parse column schemas, DDL or a mapping, into a DDL string and column names.

Only the columns and the names of their types are checked here, so that a declaration can be checked without a JVM;
Spark checks the rest when the source is opened.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, cast

from pydantic import AfterValidator, BeforeValidator

_OPENING = "(<"
_CLOSING = ")>"
_WORD = re.compile(r"[A-Za-z_]\w*")
# the number of types within angle brackets; None: fields with names
_NESTED: dict[str, int | None] = {"ARRAY": 1, "MAP": 2, "STRUCT": None}
_EXAMPLES = {"ARRAY": "ARRAY<INT>", "MAP": "MAP<STRING, INT>", "STRUCT": "STRUCT<id: INT, name: STRING>"}
_SIZED = {"CHAR", "CHARACTER", "VARCHAR"}
_PLAIN = (
    "BIGINT", "BINARY", "BOOLEAN", "BYTE", "DATE", "DEC", "DECIMAL", "DOUBLE", "FLOAT", "GEOGRAPHY", "GEOMETRY", "INT",
    "INTEGER", "INTERVAL", "LONG", "NUMERIC", "REAL", "SHORT", "SMALLINT", "STRING", "TIME", "TIMESTAMP",
    "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "TINYINT", "VARIANT", "VOID",
)  # fmt: skip
_KNOWN = {*_PLAIN, *_SIZED, *_NESTED}
# names of types elsewhere
_ELSEWHERE = {
    "BLOB": "BINARY", "BOOL": "BOOLEAN", "BYTES": "BINARY", "DATETIME": "TIMESTAMP", "DICT": "MAP<STRING, STRING>",
    "FLOAT32": "FLOAT", "FLOAT64": "DOUBLE", "INT16": "SMALLINT", "INT32": "INT", "INT64": "BIGINT", "INT8": "TINYINT",
    "JSON": "VARIANT", "LIST": "ARRAY<STRING>", "MONEY": "DECIMAL(18,2)", "NUMBER": "DECIMAL(18,2)",
    "OBJECT": "VARIANT", "STR": "STRING", "TEXT": "STRING", "TIMESTAMPTZ": "TIMESTAMP", "UUID": "STRING",
}  # fmt: skip


def _type_fault(text: str) -> str:
    """Return what is wrong with the name of a type or of one within it, and the fix; empty if nothing is."""
    word = _WORD.match(text.strip())
    if word is None:
        return f"no type in `{text.strip()}`. Write one, for example `STRING`"
    name = word[0].upper()
    rest = text.strip()[word.end() :].lstrip()
    if name not in _KNOWN:
        return f"the unknown type `{word[0]}`. {_near(name)}"
    if name in _SIZED and not rest.startswith("("):
        return f"type `{word[0]}` without a length. Write `{name}(20)`, or `STRING`"
    if name not in _NESTED:
        return ""
    if not rest.startswith("<"):
        return f"type `{word[0]}` without the types in it. Write `{_EXAMPLES[name]}`"
    inner = list(_split(_within(rest)))
    number = _NESTED[name]
    if number is None:
        inner = [_first_word(part)[1] for part in inner if part.strip()]
    elif len(inner) != number:
        return f"type `{word[0]}` with {len(inner)} types in it. Write `{_EXAMPLES[name]}`"
    faults = (_type_fault(part) for part in inner)
    return next((fault for fault in faults if fault), "")


def _split(text: str) -> Iterator[str]:
    """Split at the commas outside brackets and quotations; raises ValueError if one of these is not closed."""
    depth = 0
    quote = ""
    start = 0
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "`'\"":
            quote = character
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    if quote or depth:
        raise ValueError("a bracket or quotation mark is not closed. Close it")
    yield text[start:]


def _first_word(part: str) -> tuple[str, str]:
    """Return the name of a column or field, unquoted, and the rest of its text. `name: TYPE` is DDL too."""
    text = part.strip()
    if not text.startswith("`"):
        name, _, rest = text.replace(":", " ", 1).partition(" ") if _colon_first(text) else text.partition(" ")
        return name, rest.strip()
    position = 1
    while (position := text.find("`", position)) >= 0 and text[position : position + 2] == "``":
        position += 2
    return text[1:position].replace("``", "`"), text[position + 1 :].strip().removeprefix(":").strip()


def _colon_first(text: str) -> bool:
    """Return whether the name ends at a colon rather than at a blank (`name: TYPE`, not `name STRUCT<a: INT>`)."""
    colon = text.find(":")
    blank = text.find(" ")
    return colon >= 0 and (blank < 0 or colon <= blank)


def _within(text: str) -> str:
    """Return what the angle bracket at the start of a text encloses."""
    depth = 0
    for position, character in enumerate(text):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if depth == 0:
            return text[1:position]
    return text[1:]


def _near(name: str) -> str:
    """Return a sentence with the type that was probably meant."""
    close = difflib.get_close_matches(name, sorted(_KNOWN), n=1, cutoff=0.6)
    if near := _ELSEWHERE.get(name, close[0] if close else ""):
        return f"Did you mean `{_EXAMPLES.get(near, near)}`?"
    return "Spark has INT, BIGINT, DOUBLE, DECIMAL(18,2), BOOLEAN, STRING, DATE, TIMESTAMP and others."


def _as_ddl(value: object) -> object:
    """Return the DDL of a mapping from column name to Spark type; any other value unchanged, for its own check."""
    if not isinstance(value, Mapping):
        return value
    columns = cast(Mapping[object, object], value)
    if not all(isinstance(name, str) and isinstance(kind, str) for name, kind in columns.items()):
        raise ValueError("every column of the mapping needs a type. Write `name: TYPE`")
    return _mapping_to_ddl(cast(Mapping[str, str], value))


def _mapping_to_ddl(columns: Mapping[str, str]) -> str:
    """Return the DDL of a mapping; raises ValueError for a type that would add columns."""
    ddl = ", ".join(f"{_quote(name)} {kind}" for name, kind in columns.items())
    if schema_columns(ddl) != tuple(columns):
        raise ValueError(
            "a column's type is not one type. Write each column as `name: type`, for example `amount: DOUBLE`"
        )
    return ddl


def schema_columns(ddl: str) -> tuple[str, ...]:
    """Return the column names of DDL such as "id INT, tags MAP<STRING, INT>", in order; raises as `_ddl_fields`."""
    return tuple(name for name, _ in _ddl_fields(ddl))


def _check_types(ddl: str) -> str:
    """Return the DDL; raises ValueError, with the fix, for a column whose type Spark does not have."""
    for name, kind in _ddl_fields(ddl):
        if fault := _type_fault(kind):
            raise ValueError(f"column `{name}` has {fault}")
    return ddl


def check_names_column(key: str, column: str | None, ddl: str) -> None:
    """Raise ValueError if a key of the declaration names a column that the schema does not have."""
    columns = schema_columns(ddl)
    if column is not None and columns and column not in columns:
        raise ValueError(f"`{key}` names `{column}`, not a column of the schema ({', '.join(columns)}). Correct it")


def _ddl_fields(ddl: str) -> list[tuple[str, str]]:
    """Return the name and type of each column of a DDL string, in order.

    Raises ValueError, with the fix, if a column has no name or no type, or a name occurs twice.
    """
    fields: list[tuple[str, str]] = []
    for part in _split(ddl):
        name, kind = _first_word(part)
        if not name or not kind:
            raise ValueError(
                f"`{part.strip()}` is not a column. Write `name TYPE, name TYPE`, for example `id INT, day DATE`"
            )
        if name.lower() in (earlier.lower() for earlier, _ in fields):
            raise ValueError(f"column `{name}` is declared twice. Remove one")
        fields.append((name, kind))
    return fields


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


Ddl = Annotated[
    str, BeforeValidator(_as_ddl, json_schema_input_type=str | dict[str, str]), AfterValidator(_check_types)
]
