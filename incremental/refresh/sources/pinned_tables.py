"""Check whether a table is still the one whose version an epoch pinned."""

from __future__ import annotations

from incremental.algebra.errors import SourceError
from incremental.lake.protocol import VersionedTable
from incremental.store.journal import Pin


def is_pinned(pin: Pin, table: VersionedTable) -> bool:
    """Return whether a table is the one whose version was pinned, with the same history up to it."""
    if table.identity() != pin.identity:
        return False
    found = table.commit_id(pin.after) if pin.commit else ""
    return found in ("", pin.commit)


def refuse_recreated(view: str, name: str, table: VersionedTable) -> SourceError:
    """Return the error for a table with another identity than before."""
    other = "" if table.label == table.path else f", or its name now refers to another table, at {table.path}"
    return SourceError(
        f"source {name} at {table.label} was replaced since the last epoch: it was dropped and created again, or its "
        f"history was replaced, such as from a copy{other}. Rebuild the view {view}."
    )
