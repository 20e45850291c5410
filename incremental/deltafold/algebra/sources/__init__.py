"""Declare sources: Delta tables, folders of input files, and streams."""

from __future__ import annotations

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sources.constraints import ForeignKey
from deltafold.algebra.sources.files import (
    DURATION,
    MARKED_FORMATS,
    SINGLE_VARIANT,
    Expire,
    Files,
    Format,
    Malformed,
    format_fault,
    option_fault,
    quarantine_fault,
)
from deltafold.algebra.sources.streams import Stream, key_fault, stream_fault
from deltafold.algebra.sources.tables import Delta

SourceDeclaration = Delta | Files | Stream


def is_name(name: object) -> bool:
    """Return whether something can name a source or a view, and so a folder."""
    return isinstance(name, str) and name.isidentifier() and not name.startswith("__") and len(name) <= 128


def check_source(name: str, declaration: object) -> SourceDeclaration:
    """Return the declaration, unchanged; raises SourceError for something else, such as a bare path."""
    if isinstance(declaration, Delta | Files | Stream):
        return declaration
    given = type(declaration).__name__
    raise SourceError(
        f"source {name}: {given} is not a declaration. "
        "Write Delta(path), Delta(table=name) for a table of the catalog, Files(…), Stream(…), or give a view."
    )


__all__ = [
    "DURATION",
    "MARKED_FORMATS",
    "SINGLE_VARIANT",
    "Delta",
    "Expire",
    "Files",
    "ForeignKey",
    "Format",
    "Malformed",
    "SourceDeclaration",
    "Stream",
    "check_source",
    "format_fault",
    "is_name",
    "key_fault",
    "option_fault",
    "quarantine_fault",
    "stream_fault",
]  # fmt: skip
