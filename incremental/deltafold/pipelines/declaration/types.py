"""Check the names of Spark's types in a DDL schema, without Spark."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

_OPENING, _CLOSING = "(<", ")>"
_WORD = re.compile(r"[A-Za-z_]\w*")
# the number of types within angle brackets; None: fields with names
_NESTED = {"ARRAY": 1, "MAP": 2, "STRUCT": None}
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


def type_fault(text: str) -> str:
    """Return what is wrong with the name of a type or of one within it, and the fix; empty if nothing is."""
    word = _WORD.match(text.strip())
    if word is None:
        return f"no type in `{text.strip()}`. Write one, for example `STRING`"
    name, rest = word[0].upper(), text.strip()[word.end() :].lstrip()
    if name not in _KNOWN:
        return f"the unknown type `{word[0]}`. {_near(name)}"
    if name in _SIZED and not rest.startswith("("):
        return f"type `{word[0]}` without a length. Write `{name}(20)`, or `STRING`"
    if name not in _NESTED:
        return ""
    if not rest.startswith("<"):
        return f"type `{word[0]}` without the types in it. Write `{_EXAMPLES[name]}`"
    inner = list(split(_within(rest)))
    if (most := _NESTED[name]) is not None and len(inner) != most:
        return f"type `{word[0]}` with {len(inner)} types in it. Write `{_EXAMPLES[name]}`"
    kinds = inner if most is not None else [_field_type(part) for part in inner if part.strip()]
    return next(filter(None, map(type_fault, kinds)), "")


def split(text: str) -> Iterator[str]:
    """Split at the commas outside brackets and quotations; raises ValueError if one of these is not closed."""
    depth, quote, start = 0, "", 0
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


def first_word(part: str) -> tuple[str, str]:
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
    colon, blank = text.find(":"), text.find(" ")
    return colon >= 0 and (blank < 0 or colon <= blank)


def _field_type(part: str) -> str:
    """Return the type of a field of a STRUCT."""
    return first_word(part)[1]


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
