"""Record the views that this process has declared, so that a view is not dropped while one of them reads it.

Views that other processes refreshed are recorded in the folder of the view that they read (store/dependents.py).
"""

from __future__ import annotations

from typing import Protocol
from weakref import WeakValueDictionary

from deltafold.algebra.errors import DeltafoldError
from deltafold.lake.remote.remote_path import Place


class DeclaredView(Protocol):
    """A declared view, refreshed or not."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def folder(self) -> Place:
        """The folder of its journal and tables."""
        ...

    def reads(self, folder: Place) -> bool:
        """Return whether its query reads the view in a folder; raises DeltafoldError if it cannot be analysed."""
        ...


DECLARED: WeakValueDictionary[Place, DeclaredView] = WeakValueDictionary()  # the latest declaration for each folder


def remember(view: DeclaredView) -> None:
    """Record a view as a reader of the views that it reads, for as long as its warehouse exists."""
    DECLARED[view.folder] = view


def forget(folder: Place) -> None:
    """Remove a dropped view from the record."""
    DECLARED.pop(folder, None)


def readers(folder: Place) -> list[str]:
    """Return the names of the declared views that read the view in a folder; a query that fails counts as a reader."""
    return [view.name for view in list(DECLARED.values()) if may_read(view, folder)]


def may_read(view: DeclaredView, folder: Place) -> bool:
    """Return whether a view reads another one; True if its query cannot be analysed now."""
    try:
        return view.reads(folder)
    except DeltafoldError:
        return True
