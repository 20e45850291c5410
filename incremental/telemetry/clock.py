"""The current time, as reports show it."""

from __future__ import annotations

import datetime


def now() -> str:
    """This moment: UTC, ISO 8601, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def seconds_since(moment: str) -> float:
    """Seconds since a moment that a report shows."""
    return (datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(moment)).total_seconds()
