"""Runtime room: back to an earlier epoch. In: an epoch of the journal. Out: a new generation that begins with it.

RESTORE would leave the marks of later epochs in the tables, and Delta would skip the next writes of these epochs; so
the tables are copied at the versions that the journal has for the epoch, as epoch 1 of a new generation, with its pins.
The intent is an ordinary one: after a crash the next refresh finishes it, and what was not copied yet is computed anew
from the pinned versions, which gives the same rows. Readers keep the old generation until the new one is complete.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pyspark.sql import functions as F

from incremental.algebra.errors import ChangedQueryError, SourceError, StateError
from incremental.algebra.program import BUCKET
from incremental.algebra.report import Report
from incremental.runtime.chain import Progress
from incremental.runtime.epoch import Epoch
from incremental.runtime.events import told
from incremental.runtime.journal import Entry, Intent, lock
from incremental.runtime.maintain import Effect
from incremental.runtime.metrics import measured
from incremental.runtime.publish import COPIES_PER_EPOCH, COPY
from incremental.runtime.refresh import LOCK_SECONDS, Refresh
from incremental.runtime.reporting import report_of
from incremental.runtime.storage import Storage, arranged

ROLLED_BACK = "rolled back"


class Rollback(Refresh):
    """Takes one view back."""

    def to(self, epoch: int, generation: int | None, progress: Progress | None) -> Report:
        """Go back to a finished epoch of a generation, by default the last one's.

        Raises StateError for one that there is not, or whose files are gone, ChangedQueryError for another query's.
        """
        work = partial(self._to, epoch, generation, progress)
        view = {"view": self._store.view}
        return measured(self._store, self.inputs, lambda: told("rollback", view, work))

    def _to(self, epoch: int, generation: int | None, progress: Progress | None) -> Report:
        view = self._store.view
        with lock(self._store.folder, f"view {view}", "refreshed or maintained", LOCK_SECONDS):
            entry = self._entry(epoch, generation)
            self._maintenance = self._ways.of(entry.intent.mode)
            if entry.intent.fingerprint != self._maintenance.fingerprint:
                raise ChangedQueryError(
                    f"{named(entry)} of view {view} is of another query: restore that query, or rebuild the view"
                )
            self._same_query(entry)
            self.inputs.check(entry.intent.sources)
            self._check_files(entry)
            pins = {
                name: replace(pin, before=None, left=None, start=None) for name, pin in entry.intent.sources.items()
            }
            number = self._store.unused_generation()
            return self._copied(
                entry,
                replace(entry.intent, generation=number, epoch=1, sources=pins, tables={}, relied=[], part=None),
                progress,
            )

    def _entry(self, epoch: int, generation: int | None) -> Entry:
        """The journal's entry of the epoch to go to."""
        entries, view = self._store.journal.entries(), self._store.view
        finished = [entry for entry in entries if entry.complete and entry.after]
        if not finished:
            raise StateError(f"view {view} has no finished epoch yet: refresh it first")
        wanted = finished[-1].intent.generation if generation is None else generation
        known = {e.intent.epoch: e for e in finished if e.intent.generation == wanted}
        if epoch not in known:
            there = "; ".join(
                f"generation {number} has {', '.join(str(e.intent.epoch) for e in finished if is_of(e, number))}"
                for number in sorted({entry.intent.generation for entry in finished})
            )
            raise StateError(
                f"the journal of view {view} has no finished epoch {epoch} of generation {wanted}: choose one of it "
                f"({there})"
            )
        if known[epoch] is entries[-1]:
            raise StateError(f"view {view} stands at {named(known[epoch])} already: choose an earlier one, or refresh")
        return known[epoch]

    def _check_files(self, entry: Entry) -> None:
        """Refuse an epoch whose tables cannot be read any more."""
        for name, version in (entry.after or {}).items():
            table = Storage(self._store.spark, self._store.table(entry.intent.generation, name).path)
            try:
                gone = version is None or table.version() is None or bool(table.missing(version))
            except SourceError:
                gone = True
            if gone:
                raise StateError(
                    f"the files of {named(entry)} of view {self._store.view} were removed (vacuum, or its generation "
                    "was superseded): choose a later epoch, or refresh to the versions of that time"
                )

    def _copied(self, entry: Entry, intent: Intent, progress: Progress | None) -> Report:
        journal, epoch = self._store.journal, self._epoch(intent, progress)
        cost = epoch.measure.cost
        journal.begin(intent)
        effect = self._measured(epoch, f"{intent.view} back to {named(entry)}", lambda: self._copy(entry, epoch))
        report = report_of(intent, effect, cost, ROLLED_BACK)
        sentence = f"{intent.view}: back to {named(entry)}, as {named_intent(intent)}, {cost.seconds:.1f} s"
        report = replace(report, sentence=sentence)
        journal.finish(intent, report, {name: table.version() for name, table in epoch.tables.items()})
        return report

    def _copy(self, entry: Entry, epoch: Epoch) -> Effect:
        """Every table as the epoch left it."""
        for name, table in epoch.tables.items():
            old = self._store.table(entry.intent.generation, name)
            version = (entry.after or {})[name]
            assert version is not None
            with epoch.measure.phase(f"copy {name}"):
                rows = arranged(old.at(version), entry.intent.buckets, self._maintenance.sorted_by(name))
                if COPY in rows.columns:  # epochs count from 1 again: their copies must not meet those that are there
                    rows = rows.withColumn(COPY, F.col(COPY) - F.lit((entry.intent.epoch + 1) * COPIES_PER_EPOCH))
                table.append(rows, epoch.mark(name), BUCKET, old.mapped)
        return Effect(paths=dict.fromkeys(epoch.tables, "copied"))


def is_of(entry: Entry, generation: int) -> bool:
    """Whether an epoch is of a generation."""
    return entry.intent.generation == generation


def named(entry: Entry) -> str:
    """An epoch in words."""
    return named_intent(entry.intent)


def named_intent(intent: Intent) -> str:
    """The same, of what was begun."""
    return f"epoch {intent.epoch} of generation {intent.generation}"
