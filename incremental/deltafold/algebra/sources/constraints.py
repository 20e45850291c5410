"""Declare constraints on the rows of a source: a primary key, foreign keys, append-only.

Every refresh checks them before anything is written, and omits the work that they make unnecessary
(algebra/constraints.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

from deltafold.algebra.errors import SourceError
from deltafold.algebra.secrets import INSTEAD, has_password, mask_secrets


@dataclass(frozen=True)
class ForeignKey:
    """Columns whose values, where none is NULL, are the primary key of some row of another source, column by column."""

    columns: tuple[str, ...]
    source: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", column_tuple(self.columns, "foreign key"))
        if not self.columns:
            raise SourceError(f"foreign key to {self.source}: no column is named. Name those that refer to it.")


class Constrained(Protocol):
    """A declared source, as far as its constraints are concerned."""

    @property
    def address(self) -> str:
        """Its path, name or topic in messages."""
        ...

    @property
    def invariant(self) -> bool:
        """Whether it never changes."""
        ...

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns that no two rows share."""
        ...

    @property
    def foreign_keys(self) -> tuple[ForeignKey, ...]:
        """The columns that refer to other sources."""
        ...

    @property
    def append_only(self) -> bool:
        """Whether rows are only added."""
        ...


def check_declaration(declared: Constrained) -> None:
    """Raise SourceError for constraints that contradict each other, whatever rows the source has."""
    if has_password(declared.address):
        raise SourceError(f"source {mask_secrets(declared.address)}: its address contains a password. {INSTEAD}.")
    object.__setattr__(declared, "primary_key", column_tuple(declared.primary_key, "primary key"))
    object.__setattr__(declared, "foreign_keys", tuple(declared.foreign_keys))
    if declared.invariant and declared.append_only:
        raise SourceError(
            f"source {declared.address}: both invariant and append_only are declared. "
            "Keep append_only if rows are added, else invariant."
        )
    if len(set(declared.foreign_keys)) < len(declared.foreign_keys):
        raise SourceError(f"source {declared.address}: a foreign key is declared twice. Remove one.")


def column_tuple(columns: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Return column names as a tuple; raises SourceError for duplicates, and for a text instead of a list."""
    if isinstance(cast("object", columns), str):
        raise SourceError(f"{what}: {columns!r} is not a tuple of column names. Write ({columns!r},).")
    if len(set(columns)) < len(columns):
        raise SourceError(f"{what}: a column is named twice ({', '.join(columns)}). Name each once.")
    return tuple(columns)
