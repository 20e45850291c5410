"""Return the current time in the format of reports."""

from __future__ import annotations

import datetime


def now() -> str:
    """Return the current time: UTC, ISO 8601, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def seconds_since(moment: str) -> float:
    """Return the seconds since a time in the form of `now`."""
    return (datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(moment)).total_seconds()
