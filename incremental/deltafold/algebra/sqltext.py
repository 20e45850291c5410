"""Write names and texts in Spark SQL, read and write the names of tables, and inspect types."""

from __future__ import annotations

import re

STORED_TYPES = {
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "char", "varchar",
    "string collate utf8_binary", "binary", "date", "timestamp", "timestamp_ntz", "variant", "array", "map", "struct",
}  # fmt: skip
QUOTED = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'")
LENGTH = re.compile(r"\([^)]*\)")
COMMENT = re.compile(r" comment x")
FIELD = re.compile(r"(?<=[<,])[^<>,:]*:")


def quoted(name: str) -> str:
    """Quote a column name for SQL text."""
    return "`" + name.replace("`", "``") + "`"


def unquote(name: str) -> str:
    """Return the column name that `quoted` made SQL text of; a name without quotes is returned as it is."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def literal(text: str) -> str:
    """Write a text as an SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def simple_types(type_: str) -> tuple[str, ...]:
    """Return the types at any depth of a type, in lower case, without field names, comments and lengths."""
    text = LENGTH.sub("", COMMENT.sub("", QUOTED.sub("x", type_).lower()))
    parts = (part.strip() for part in re.split("[<>,]", FIELD.sub("", text)))
    return tuple(part for part in parts if part)


def first_unstored_type(type_: str) -> str | None:
    """Return the first type at any depth that Delta does not store (`interval day`), None if it stores all."""
    return next((part for part in simple_types(type_) if part not in STORED_TYPES), None)


def is_unordered(type_: str) -> bool:
    """Return whether a type contains a map or a variant, whose values Spark neither orders nor compares."""
    return not {"map", "variant"}.isdisjoint(simple_types(type_))


PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # valid in SQL without backquotes
NAME_PART = re.compile(r"`(?:[^`\x00-\x1f\x7f]|``)+`|\w+")


def table_name_parts(name: str) -> tuple[str, ...] | None:
    """Return the parts of a name without their backquotes; None if it is not a name."""
    parts = list[str]()
    start = 0
    while part := NAME_PART.match(name, start):
        parts.append(unquote(part[0]))
        start = part.end()
        if start == len(name):
            return tuple(parts)
        if name[start] != ".":
            return None
        start += 1
    return None


def table_name_of(parts: tuple[str, ...]) -> str:
    """Return the name with these parts, in backquotes where they need them."""
    return ".".join(part if PLAIN_NAME.fullmatch(part) else quoted(part) for part in parts)


def table_name_fault(name: object) -> str | None:
    """Return why a table's name is invalid in any catalog, and the fix; None if it is valid."""
    parts = table_name_parts(name) if isinstance(name, str) else None
    if parts is None:
        how = "Write `catalog.schema.table` or `schema.table`, and backquotes around a part with other characters"
        return f"{name!r} is not the name of a table. {how}; a folder or a URI is a path"
    if "/" in parts[-1] and parts[0].lower() == "delta":  # delta.`/lake/orders` is a table in SQL
        return f"{name} is a path, not a name in the catalog. Declare the path {parts[-1]}"
    return None
