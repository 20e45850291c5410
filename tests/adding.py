"""A package that is not installed adds something by an entry point."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from deltafold.algebra import added


@dataclass(frozen=True)
class Entry:
    """An entry point; an exception is raised where it is loaded."""

    name: str
    object: Any
    value: str = "package:object"

    def load(self) -> Any:
        if isinstance(self.object, Exception):
            raise self.object
        return self.object


@contextmanager
def package(wanted: str, name: str, object: Any) -> Iterator[None]:
    """As long as it is open, a group of entry points has an object."""
    with patch.object(added, "entry_points", lambda *, group: [Entry(name, object)] * (group == wanted)):
        added.load_added.cache_clear()
        yield
    added.load_added.cache_clear()
