"""Load what installed packages add to a family of ours, by entry points."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from deltafold.algebra.errors import UsageError


@cache
def load_added(group: str) -> Mapping[str, Any]:
    """Return the objects of a group of entry points by name; raises UsageError for one that cannot be loaded."""
    return {entry.name: _load(entry, group) for entry in entry_points(group=group)}


def _load(entry: EntryPoint, group: str) -> Any:
    try:
        return entry.load()
    except Exception as error:
        cause = f"{type(error).__name__}: {error}".rstrip(".")
        raise UsageError(
            f"entry point {entry.name} of {group}: loading {entry.value} fails ({cause}). Correct or remove its "
            "package."
        ) from error
