"""Format numbers and lists for people."""

from __future__ import annotations

from collections.abc import Sequence


def format_bytes(size: float) -> str:
    """Format a number of bytes: 12 bytes, 3.4 MB."""
    if abs(size) < 1000:
        return f"{size:.0f} bytes"
    for unit in ("KB", "MB", "GB"):
        size /= 1000
        if abs(size) < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} TB"


def format_count(number: int, noun: str) -> str:
    """Format a number of things: 1 row, 2,000 rows."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_duration(seconds: float) -> str:
    """Format a time in its largest unit: 5 seconds, 2 days."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return format_count(int(seconds // length), unit)
    return format_count(int(seconds), "second")


def list_first(names: Sequence[str], most: int = 3) -> str:
    """Return the first of several names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
