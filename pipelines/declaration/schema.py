"""Parse column schemas, DDL or a mapping, into a DDL string and column names.

Spark checks the types when the source is opened; here only the columns are found, so that a declaration can be checked
without a JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_OPENING, _CLOSING = "(<", ")>"


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
    ddl = ", ".join(f"{_quoted(name)} {kind}" for name, kind in columns.items())
    if schema_columns(ddl) != tuple(columns):
        raise ValueError(
            "a column's type is not one type. Write each column as `name: type`, for example `amount: DOUBLE`"
        )
    return ddl


def schema_columns(ddl: str) -> tuple[str, ...]:
    """Return the column names of a DDL string such as "id INT, tags MAP<STRING, INT>", in order.

    Raises ValueError, with the fix, if a column has no name or no type, or a name occurs twice.
    """
    names: list[str] = []
    for part in _split(ddl):
        name, rest = _first_word(part)
        if not name or not rest:
            raise ValueError(
                f"`{part.strip()}` is not a column. Write `name TYPE, name TYPE`, for example `id INT, day DATE`"
            )
        if name.lower() in (known.lower() for known in names):
            raise ValueError(f"column `{name}` is declared twice. Remove one")
        names.append(name)
    return tuple(names)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _split(ddl: str) -> Iterator[str]:
    """Split at the commas outside brackets and quotations."""
    depth, quote, start = 0, "", 0
    for position, character in enumerate(ddl):
        if quote:
            quote = "" if character == quote else quote
        elif character in "`'\"":
            quote = character
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif character == "," and depth == 0:
            yield ddl[start:position]
            start = position + 1
    if quote or depth:
        raise ValueError("a bracket or quotation mark is not closed. Close it")
    yield ddl[start:]


def _first_word(part: str) -> tuple[str, str]:
    """Return a column's name, unquoted, and the rest of its text. `name: TYPE` is DDL too."""
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
