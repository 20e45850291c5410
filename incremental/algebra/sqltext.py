"""Names and texts inside SQL text."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A column name inside SQL text."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text inside SQL text."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
