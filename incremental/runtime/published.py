"""Runtime room: what readers of a view see. In: its folder and the modes it may be kept in. Out: the last answer.

An epoch counts when it is finished and has arrived at its pinned versions: neither an interrupted one nor a part of a
larger change is looked at. Its table may have gone on since; then the version is that which the next epoch began from.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from incremental.algebra.errors import StateError
from incremental.runtime.choice import Ways
from incremental.runtime.journal import Entry
from incremental.runtime.lake import Table
from incremental.runtime.store import Store


@dataclass(frozen=True)
class Published:
    """The answer of the last epoch that counts."""

    store: Store
    ways: Ways

    @property
    def entry(self) -> Entry:
        """The epoch; raises StateError where there is none yet."""
        return self._found()[0]

    @property
    def table(self) -> Table:
        """The table that holds the answer, beside reserved columns."""
        return self._table(self.entry)

    def rows(self) -> DataFrame:
        """The table as of the epoch."""
        entry, following = self._found()
        table = self._table(entry)
        version = table.version() if following is None else following.intent.tables.get(self._name(entry))
        if version is None:
            raise StateError(f"the table {table.path} of view {self.store.view} is gone: rebuild the view")
        return table.at(version)

    def _found(self) -> tuple[Entry, Entry | None]:
        """The epoch, and the one that went on from its tables, if there is one."""
        entries = self.store.journal.entries()
        for number in range(len(entries) - 1, -1, -1):
            entry = entries[number]
            if entry.report is not None and entry.intent.arrives:
                following = [e for e in entries[number + 1 :] if e.intent.generation == entry.intent.generation]
                return entry, following[0] if following else None
        raise StateError(f"view {self.store.view} has no finished epoch yet: refresh it first")

    def _table(self, entry: Entry) -> Table:
        return self.store.table(entry.intent.generation, self._name(entry))

    def _name(self, entry: Entry) -> str:
        return self.ways.of(entry.intent.mode).tables[-1]
