"""Remember which views this process has declared, so that a view is not dropped while one of them reads it.

Views that other processes have refreshed are known from the folder of the view that they read (store/dependents.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

from incremental.algebra.errors import DeltafoldError


class DeclaredView(Protocol):
    """A view as it was declared, refreshed or not."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def folder(self) -> Path:
        """Where all is kept of it."""
        ...

    def reads(self, folder: Path) -> bool:
        """Whether its query reads the view in a folder; raises DeltafoldError where it cannot be analysed."""
        ...


DECLARED: WeakValueDictionary[Path, DeclaredView] = WeakValueDictionary()  # the latest of each folder


def remember(view: DeclaredView) -> None:
    """Count a view among the readers of those that it reads, as long as its warehouse is there."""
    DECLARED[view.folder] = view


def forget(folder: Path) -> None:
    """Count a dropped view no more, until it is declared again."""
    DECLARED.pop(folder, None)


def readers(folder: Path) -> list[str]:
    """The names of the declared views that read the view in a folder, or may: a query that fails may be mended."""
    return [view.name for view in list(DECLARED.values()) if may_read(view, folder)]


def may_read(view: DeclaredView, folder: Path) -> bool:
    """Whether a view reads another one; true where its query cannot be analysed as things are."""
    try:
        return view.reads(folder)
    except DeltafoldError:
        return True
