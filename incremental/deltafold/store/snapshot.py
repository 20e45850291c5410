"""Read a view as its readers see it: its answer and its status.

Only complete epochs are read: finished, and at their pinned versions. Interrupted epochs and chunks of a larger change
are skipped. If a later epoch has written to the table since, the version is the one from which that epoch began.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from deltafold.algebra.errors import SourceError, StateError, StorageError
from deltafold.algebra.recipe import name_computed_keys
from deltafold.algebra.results.upkeep import VIEW, Lag, Size, Status
from deltafold.algebra.tuning import Tuning
from deltafold.lake.catalog_names import no_data
from deltafold.lake.files import rows_in
from deltafold.lake.protocol import Table, VersionedTable
from deltafold.lake.version_diff import SourceVersions, by_commits
from deltafold.store.history import Event, Finished, as_complete, base_versions, tables_of
from deltafold.store.journal import never_refreshed
from deltafold.store.pinned_tables import is_pinned, refuse_recreated
from deltafold.store.view_store import Store
from deltafold.telemetry import seconds_since


@dataclass(frozen=True)
class LastAnswer:
    """The answer of the last complete epoch, even if the view's query has changed since."""

    store: Store

    @property
    def entry(self) -> Finished:
        """The last complete epoch. Raises StateError if there is none yet."""
        return self._find_epoch()[0]

    @property
    def exists(self) -> bool:
        """Whether there is a complete epoch."""
        return self.store.journal.last_complete() is not None

    @property
    def table(self) -> Table:
        """The table that contains the answer, beside reserved columns."""
        return self._table_of(self.entry)

    def explain(self) -> str:
        """Return how the last complete epoch was maintained, with the plan of its query if that was recorded."""
        intent = self.entry.intent
        recipe = self.store.journal.recipe(intent.fingerprint)
        plan = recipe.plan if recipe is not None else ()
        first = f"view {self.store.view}: {intent.mode}, epoch {intent.epoch} of generation {intent.generation}"
        return name_computed_keys("\n".join([first, *(f"  {line}" for line in plan)]))

    def read_consistently(self) -> tuple[Finished, DataFrame]:
        """Return the epoch and its table as of that epoch, consistent even while the view is refreshed."""
        entry, following = self._find_epoch()
        table = self._table_of(entry)
        version = (
            table.version() if following is None else following.intent.tables.get(answer_table(self.store.view, entry))
        )
        if following is None and self._find_epoch() != (entry, None):
            return self.read_consistently()  # an epoch began or ended meanwhile, and the version may belong to it
        if version is None:
            raise StateError(f"view {self.store.view}: its table {table.path} is gone. Rebuild the view.")
        return entry, table.at(version)

    def _find_epoch(self) -> tuple[Finished, Event | None]:
        """Return the epoch, and the one that continued from its tables, if there is one."""
        entries = self.store.journal.entries()
        for number in range(len(entries) - 1, -1, -1):
            if (entry := as_complete(entries[number])) is not None:
                following = [e for e in entries[number + 1 :] if e.intent.generation == entry.intent.generation]
                return entry, following[0] if following else None
        raise never_refreshed(self.store.view)

    def _table_of(self, entry: Finished) -> Table:
        return self.store.table(entry.intent.generation, answer_table(self.store.view, entry))


def answer_table(view: str, entry: Finished) -> str:
    """Return the name of the table with the answer after an epoch: the view's own, else the last state."""
    names = tables_of(entry)
    if not names:
        raise StateError(f"view {view}: its journal does not record its tables. Rebuild the view.")
    return VIEW if VIEW in names else max(names, key=lambda name: (len(name), name))


def status_of(store: Store, base: Callable[[str], VersionedTable]) -> Status:
    """Return the status of a view; base: the table of a base source by its path through the views. Runs no query.

    A source whose table cannot be found or read, or was replaced, is a problem of the status, no error.
    """
    last = store.journal.last()
    unfinished = None if last is None or as_complete(last) else last.intent.epoch
    complete = store.journal.last_complete()
    if complete is None:
        return Status(view=store.view, unfinished=unfinished)
    age = seconds_since(complete.report.finished)
    lags = dict[str, Lag]()
    problems = dict[str, str]()
    for source_path, version in base_versions(complete.intent.sources).items():
        try:
            table, pin = base(source_path), complete.intent.sources.get(source_path)  # a view below has its own pins
            if pin is not None and table.version() is not None and not is_pinned(pin, table):
                raise refuse_recreated(store.view, source_path, table)
            lags[source_path] = lag(source_path, table, version)
        except (SourceError, StorageError) as error:
            problems[source_path] = str(error)
    tables = {name: store.table(complete.intent.generation, name) for name in complete.after}
    return Status(
        view=store.view,
        epoch=complete.report.epoch,
        generation=complete.report.generation,
        verdict=complete.report.verdict,
        finished=complete.report.finished,
        age=round(age, 1),
        lag=lags,
        tables={name: _table_size(table, store.tuning) for name, table in tables.items()},
        unfinished=unfinished,
        problems=problems,
    )


def _table_size(table: Table, tuning: Tuning) -> Size:
    """Return the size of a table, with the number of fragmented partitions."""
    partitions = table.partitions(tuning.small_file_bytes)
    return Size(*table.size(), sum(part.is_fragmented(tuning) for part in partitions))


def lag(source: str, table: VersionedTable, version: int) -> Lag:
    """Return how far a source's table is ahead of a version, from Delta's log alone.

    Raises SourceError if there is no table any more.
    """
    latest = table.version()
    if latest is None:
        raise SourceError(no_data(source, table, was_read=True))
    behind = latest - version
    if behind == 0:
        return Lag(0, 0)
    change = by_commits(SourceVersions.of(table, version, version + behind))
    if change is None:
        return Lag(behind, None)
    removed, added, shrunk, rest = change.sides()
    # for a file with only another deletion vector, the difference in rows
    rows = rows_in([*removed, *added]) + abs(rows_in(shrunk) - rows_in(rest))
    return Lag(behind, None if math.isnan(rows) else int(rows))
