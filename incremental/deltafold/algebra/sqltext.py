"""Write names and texts in Spark SQL, and inspect its types."""

from __future__ import annotations

import re

STORED_TYPES = {
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "char", "varchar",
    "binary", "date", "timestamp", "timestamp_ntz", "variant", "array", "map", "struct",
}  # fmt: skip
QUOTED = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'")
LENGTH, COMMENT, FIELD = re.compile(r"\([^)]*\)"), re.compile(r" comment x"), re.compile(r"(?<=[<,])[^<>,:]*:")


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
    found = (part.strip() for part in re.split("[<>,]", FIELD.sub("", text)))
    return tuple(part for part in found if part)


def first_unstored_type(type_: str) -> str | None:
    """Return the first type at any depth that Delta does not store (`interval day`), None if it stores all."""
    return next((part for part in simple_types(type_) if part not in STORED_TYPES), None)


def is_unordered(type_: str) -> bool:
    """Return whether a type contains a map or a variant, whose values Spark neither orders nor compares."""
    return not {"map", "variant"}.isdisjoint(simple_types(type_))
