"""Roll a view back to an earlier epoch, or rewrite its last one with another number of buckets, as a new generation.

RESTORE would leave the marks of later epochs in the tables, and Delta would skip the next writes of these epochs; so
the tables are copied at the versions that the journal has for the epoch, as epoch 1 of a new generation, with its pins.
After a crash the next refresh finishes a rollback, whose intent is an ordinary one: what was not copied yet is
recomputed from the pinned versions, which gives the same rows. It forgets a copy into other buckets. Readers keep the
old generation until the new one is complete; a copy that fails leaves the view as it was.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from pyspark.sql import functions as F

from deltafold.algebra.errors import StateError, UsageError
from deltafold.algebra.program import BUCKET
from deltafold.algebra.results.formats import format_count
from deltafold.algebra.results.notes import FilesGone, Rebucketed, RolledBack
from deltafold.algebra.results.report import REBUCKETED, ROLLED_BACK, Report
from deltafold.dataflow.publish import COPIES_PER_EPOCH, COPY
from deltafold.lake.physical_layout import arrange
from deltafold.lake.snapshot import Snapshot
from deltafold.operations.metrics import update_metrics
from deltafold.refresh.compatibility import check_layout
from deltafold.refresh.epoch import Epoch
from deltafold.refresh.executor import Executor
from deltafold.refresh.incremental_refresh import EpochResult, RefreshStrategy
from deltafold.refresh.mode import ModePolicy
from deltafold.refresh.planner import Planner
from deltafold.refresh.reporting import report_of
from deltafold.refresh.sources.upstream import Inputs, Progress
from deltafold.refresh.state_reuse import COPIED
from deltafold.store.answer_pointer import AnswerPointer
from deltafold.store.history import WHOLE, AnswerPin, Begun, Copying, Finished, Intent, as_complete
from deltafold.store.journal import never_refreshed
from deltafold.store.view_store import Store
from deltafold.telemetry import Work, log_work


class Rollback:
    """Rolls one view back, or rewrites its last epoch with another number of buckets."""

    def __init__(self, store: Store, mode_policy: ModePolicy, inputs: Inputs) -> None:
        self._store = store
        self._mode_policy = mode_policy
        self._inputs = inputs
        self._pointer = AnswerPointer(store)
        self._planner = Planner(store, mode_policy, inputs)
        self._executor = Executor(store, mode_policy, inputs, self._pointer)

    def rebucket(self, buckets: int, progress: Progress | None) -> Report:
        """Rewrite the last epoch's tables with a number of buckets, without reading the sources.

        Raises UsageError for a number that is impossible or the present one, StateError if that epoch is unfinished.
        """
        view = self._store.view
        most = self._store.tuning.most_buckets
        if type(buckets) is not int or not 1 <= buckets <= most:
            raise UsageError(f"view {view}: it cannot be stored in {buckets!r} buckets. Choose 1 to {most}.")
        with self._lock("rebucket") as work:
            last = as_complete(self._store.journal.last())
            if last is None or not last.after:
                raise never_refreshed(view)
            if last.intent.buckets == buckets:
                raise UsageError(
                    f"view {view}: it is stored in {format_count(buckets, 'bucket')} already. Choose another number."
                )
            work.result = report = self._start_generation(last, "change its buckets", buckets, progress)
        return report

    def grow(self, progress: Progress | None) -> Report | None:
        """Rewrite the last epoch's tables in more buckets if these have become too large; returns None if not.

        Does nothing where that epoch is unfinished, or of another query: upkeep refuses both.
        """
        last = as_complete(self._store.journal.last())
        if last is None or not last.after or self._planner.find_redefinition(last):
            return None
        strategy = self._mode_policy.of(last.intent.mode)
        tuning = self._store.tuning
        buckets = last.intent.buckets
        divided = [name for name in strategy.tables if strategy.storage_of(name, 2).is_divided]
        size = max((self._store.table(last.intent.generation, name).size()[1] for name in divided), default=0)
        wanted = min(tuning.most_buckets, math.ceil(2 * size / tuning.full_bucket_bytes))
        is_full = size > buckets * tuning.full_bucket_bytes
        return self.rebucket(wanted, progress) if is_full and wanted > buckets else None

    def to(self, epoch: int, generation: int | None, progress: Progress | None) -> Report:
        """Roll back to a finished epoch of a generation, by default the last generation.

        Raises UsageError for anything but numbers, StateError if there is no such epoch or its files are gone,
        ChangedQueryError if another query made it.
        """
        for what, value in (("epoch", epoch), ("generation", generation)):
            if type(value) is not int and not (what == "generation" and value is None):
                raise UsageError(f"view {self._store.view}: {what} {value!r} is not a number. Give one such as 1.")
        with self._lock("rollback") as work:
            entry = self._find_entry(epoch, generation)
            work.result = report = self._start_generation(
                entry, f"go back to {_describe(entry.intent)}", entry.intent.buckets, progress
            )
        return report

    @contextmanager
    def _lock(self, what: str) -> Generator[Work]:
        """Take the view's lock, log the work, and write the view's metrics after it."""
        store = self._store
        held = store.lock("refreshed or maintained")
        with update_metrics(store, self._inputs), log_work(what, {"view": store.view}) as work, held:
            store.journal.forget_copy()
            yield work

    def _start_generation(self, entry: Finished, what: str, buckets: int, progress: Progress | None) -> Report:
        """Copy an epoch as the first one of a new generation; what: the purpose, for an error."""
        self._pointer.begin()
        strategy = self._mode_policy.of(entry.intent.mode)
        self._check_files(entry)  # first: restoring the query would be in vain if the files are gone
        if redefinition := self._planner.find_redefinition(entry):
            raise redefinition.refuse(f"To {what}, restore what was; else rebuild the view")
        self._inputs.check(entry.intent.sources)
        check_layout(self._store, entry.intent.generation, strategy)
        pins = {name: pin.from_nothing() for name, pin in entry.intent.sources.items()}
        number = self._store.unused_generation()
        begun = replace(entry.intent, generation=number, epoch=1, sources=pins, tables={}, relied=[], lost="")
        begun = replace(begun, extent=WHOLE, buckets=buckets)
        return self._commit_copy(entry, strategy, begun, progress)

    def _find_entry(self, epoch: int, generation: int | None) -> Finished:
        """Return the journal entry of the epoch to go to."""
        entries = self._store.journal.entries()
        view = self._store.view
        finished = [done for entry in entries if (done := as_complete(entry)) and done.after]
        if not finished:
            raise never_refreshed(view)
        wanted = finished[-1].intent.generation if generation is None else generation
        epochs: dict[int, dict[int, Finished]] = {}  # by generation
        for entry in finished:
            epochs.setdefault(entry.intent.generation, {})[entry.intent.epoch] = entry
        choice = "; ".join(
            f"generation {number} has {', '.join(map(str, entries_of))}"
            for number, entries_of in sorted(epochs.items())
        )
        chosen = epochs.get(wanted, {}).get(epoch)
        if chosen is None:
            raise StateError(
                f"view {view}: no finished epoch {epoch} of generation {wanted}. Choose one that it has ({choice})."
            )
        if chosen is entries[-1]:
            instead = f"Choose an earlier one ({choice}), or refresh" if len(finished) > 1 else "It has no earlier one"
            raise StateError(f"view {view}: it is at {_describe(chosen.intent)} already. {instead}.")
        return chosen

    def _check_files(self, entry: Finished) -> None:
        """Raise StateError if a table of the epoch, or of a view that it read, can no longer be read."""
        pins = entry.intent.sources
        below = [source for name, source in self._inputs.of(pins).items() if isinstance(pins[name], AnswerPin)]
        is_lost = any(source.after.table.version() is None for source in below)
        for name, version in entry.after.items():
            table = self._store.table(entry.intent.generation, name)
            if is_lost or version is None or table.version() is None or not Snapshot(table, version).is_readable:
                raise StateError(
                    f"view {self._store.view}: the files of {_describe(entry.intent)} were removed (vacuum, or its "
                    "generation was superseded). Choose a later epoch, or refresh to the versions of that time."
                )

    def _commit_copy(
        self, entry: Finished, strategy: RefreshStrategy, intent: Intent, progress: Progress | None
    ) -> Report:
        journal = self._store.journal
        epoch = self._executor.epoch(strategy, intent, progress, resumed=False)
        cost = epoch.measure.cost
        rearranges = intent.buckets != entry.intent.buckets
        journal.begin(Copying(intent) if rearranges else Begun(intent))
        self._store.create_folders(intent.generation, strategy.tables, strategy.tables[-1])
        number, generation = entry.intent.epoch, entry.intent.generation
        if rearranges:
            verdict = REBUCKETED
            note = Rebucketed(epoch=number, generation=generation, buckets=intent.buckets)
        else:
            verdict = ROLLED_BACK
            note = RolledBack(epoch=number, generation=generation)
        with self._executor.counting(epoch, f"{intent.view} {verdict}: {_describe(entry.intent)}", is_copy=True):
            effect = self._copy_tables(entry, strategy, epoch)
        report = report_of(intent, effect, cost, verdict)
        report = replace(report, notes=(note, *_missing_files(epoch)))
        journal.finish(Finished(intent, report, {name: table.version() for name, table in epoch.tables.items()}))
        self._pointer.point()
        return report

    def _copy_tables(self, entry: Finished, strategy: RefreshStrategy, epoch: Epoch) -> EpochResult:
        """Copy every table at its version of the epoch."""
        for name, table in epoch.tables.items():
            old = self._store.table(entry.intent.generation, name)
            version = entry.after[name]
            assert version is not None
            with epoch.measure.phase(f"copy {name}"):
                stored = strategy.storage_of(name, epoch.intent.buckets)
                rows = old.at(version)
                if epoch.intent.buckets != entry.intent.buckets:
                    rows = rows.withColumn(BUCKET, F.expr(stored.bucket))
                files = old.size()[1] // epoch.tuning.file_bytes
                rows = arrange(rows, epoch.intent.buckets, stored.sorted_by, files)
                if COPY in rows.columns:  # epochs count from 1 again: new copy numbers must not equal existing ones
                    rows = rows.withColumn(COPY, F.col(COPY) - F.lit((entry.intent.epoch + 1) * COPIES_PER_EPOCH))
                table.append(rows, epoch.mark(name), BUCKET, name_mapping=old.metadata().is_mapped)
        return EpochResult(paths=dict.fromkeys(epoch.tables, COPIED))


def _missing_files(epoch: Epoch) -> tuple[FilesGone, ...]:
    """Return a note of the pinned versions whose files were removed, if there are any."""
    missing = {name: each.after.version for name, each in epoch.sources.items() if not each.after.is_readable}
    return (FilesGone(versions=missing),) if missing else ()


def _describe(intent: Intent) -> str:
    return f"epoch {intent.epoch} of generation {intent.generation}"
