"""The time. In: nothing. Out: moments as reports tell them."""

from __future__ import annotations

import datetime


def now() -> str:
    """This moment, UTC, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def seconds_since(moment: str) -> float:
    """Seconds since a moment that a report tells."""
    return (datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(moment)).total_seconds()
