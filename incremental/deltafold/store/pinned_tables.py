"""Check whether a table is still the one whose version an epoch pinned."""

from __future__ import annotations

from deltafold.algebra.errors import LostSourceError, SourceError
from deltafold.lake.protocol import VersionedTable
from deltafold.store.history import Pin


def is_pinned(pin: Pin, table: VersionedTable) -> bool:
    """Return whether the log of a table contains the commit that made the pinned version.

    CREATE OR REPLACE TABLE and its like give a table another id, and their commit follows all earlier ones: the id of
    the pinned commit decides. Where its writer gave it none, or the log was cleaned up, the id of the table does, as of
    now or of the pinned version: a table that was dropped and created again never had it.
    """
    latest = table.version()
    if latest is None or latest < pin.after:
        return False
    commit = table.commit_id(pin.after) if pin.commit else ""
    if commit:
        return commit == pin.commit
    return table.metadata().id == pin.identity or identity_at(table, pin.after) == pin.identity


def identity_at(table: VersionedTable, version: int) -> str:
    """Return the id of a table at a version; empty if that can no longer be read."""
    try:
        return table.metadata(version).id
    except SourceError:
        return ""


def refuse_recreated(view: str, name: str, table: VersionedTable) -> LostSourceError:
    """Return the error for a table whose log does not contain the pinned version."""
    other = "" if table.label == table.path else f", or its name now refers to another table, at {table.path}"
    return LostSourceError(
        f"source {name} at {table.label} was replaced since the last epoch: it was dropped and created again, or its "
        f"history was replaced, such as from a copy{other}. Rebuild the view {view}."
    )
