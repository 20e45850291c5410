"""Algebra room: what Spark's text of a type tells. In: the text. Out: can it be stored, ordered."""

from __future__ import annotations

import re

STORED = {
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "char", "varchar",
    "binary", "date", "timestamp", "timestamp_ntz", "variant", "array", "map", "struct",
}  # fmt: skip
QUOTED = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'")
LENGTH, COMMENT, FIELD = re.compile(r"\([^)]*\)"), re.compile(r" comment x"), re.compile(r"(?<=[<,])[^<>,:]*:")


def simple_types(type_: str) -> tuple[str, ...]:
    """The types at any depth of a type, in lower case, without names of fields, comments and lengths."""
    text = LENGTH.sub("", COMMENT.sub("", QUOTED.sub("x", type_).lower()))
    found = (part.strip() for part in re.split("[<>,]", FIELD.sub("", text)))
    return tuple(part for part in found if part)


def unstored(type_: str) -> str | None:
    """What of a type Delta does not store (`interval day to second`); None where it stores all of it."""
    return next((part for part in simple_types(type_) if part not in STORED), None)


def orderless(type_: str) -> bool:
    """Whether a type has maps or variants at any depth: Spark neither orders nor compares their values."""
    return not {"map", "variant"}.isdisjoint(simple_types(type_))
