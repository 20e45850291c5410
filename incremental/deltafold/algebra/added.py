"""Load what installed packages add to a family of ours, by entry points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from deltafold.algebra.errors import DeltafoldError, UsageError


@cache
def load_added(group: str) -> Mapping[str, Any]:
    """Return the objects of a group of entry points by name; raises UsageError for one that cannot be loaded."""
    return dict(load_each(group, UsageError))


def load_each(group: str, fault: type[DeltafoldError]) -> Iterator[tuple[str, Any]]:
    """Yield the name and the object of each entry point of a group; raises `fault` for one that cannot be loaded."""
    for entry in entry_points(group=group):
        try:
            added = entry.load()
        except Exception as error:
            raise fault(
                f"entry point {entry.name} of {group}: loading {entry.value} fails ({cause_of(error)}). Correct or "
                "remove its package."
            ) from error
        yield entry.name, added


def cause_of(error: Exception) -> str:
    """Return the class and the text of an error in another package's code, for within a sentence."""
    return f"{type(error).__name__}: {error}".rstrip(".")
