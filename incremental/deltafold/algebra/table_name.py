"""Read and write the names of tables in a catalog, such as `catalog.schema.table`, as Spark SQL does."""

from __future__ import annotations

import re

from deltafold.algebra.sqltext import quoted

PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # valid in SQL without backquotes
NAME_PART = re.compile(r"`(?:[^`\x00-\x1f\x7f]|``)+`|\w+")


def table_name_parts(name: str) -> tuple[str, ...] | None:
    """Return the parts of a name without their backquotes; None if it is not a name."""
    found, start = list[str](), 0
    while part := NAME_PART.match(name, start):
        text, start = part[0], part.end()
        found.append(text[1:-1].replace("``", "`") if text[0] == "`" else text)
        if start == len(name):
            return tuple(found)
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
