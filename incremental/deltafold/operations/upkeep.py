"""Maintain the tables of a view: compact and remove files, without changing rows.

1. compact fragmented partitions: a state's bucket sorted by lineage key, others by Delta's OPTIMIZE; one commit a table
2. vacuum files that no version within the retention, and no pinned version (operations/retention.py), needs
3. remove the folders of generations superseded longer ago than the retention, and old journal entries
Each step is one commit or a removal that can be repeated: after a crash, run it again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deltafold.algebra.errors import DeltafoldError, StateError, UsageError
from deltafold.algebra.program import BUCKET
from deltafold.algebra.results.report import Report
from deltafold.algebra.results.upkeep import TableUpkeep, Upkeep
from deltafold.lake.protocol import HOUR, PartitionFiles, Table
from deltafold.lake.records import records_at
from deltafold.lake.remote.remote_path import Place, check_leases
from deltafold.landing.folder import HIVE_NULL
from deltafold.landing.writer import partition_condition
from deltafold.operations.metrics import update_metrics
from deltafold.operations.retention import Need, needs_of_sources, needs_of_view, superseded_since
from deltafold.refresh.compatibility import find_redefinition
from deltafold.refresh.incremental_refresh import RefreshStrategy
from deltafold.refresh.mode import ModePolicy
from deltafold.refresh.sources.upstream import Inputs, Progress
from deltafold.spark.catalyst import JavaError
from deltafold.spark.java_errors import cause
from deltafold.store.answer_pointer import AnswerPointer
from deltafold.store.history import AnswerPin, Finished, as_complete
from deltafold.store.journal import never_refreshed, refresh_first
from deltafold.store.pinned_tables import is_pinned
from deltafold.store.plain_answer import PLAIN, PlainAnswer
from deltafold.store.view_store import Store
from deltafold.telemetry import log_work, now, seconds_since

WEEK_HOURS = 168.0
METADATA = '{"deltafold": "upkeep"}'


@dataclass(frozen=True)
class _UpkeepRun:
    """One upkeep of a view and its landed sources."""

    store: Store
    strategy: RefreshStrategy
    hours: float
    progress: Progress | None = None

    def run(self, last: Finished) -> Upkeep:
        """Run all steps; the caller has the view's lock. last: the last epoch, which is finished."""
        start = time.monotonic()
        generation = last.intent.generation
        needs = list(needs_of_view(self.store.folder))
        tables: dict[str, TableUpkeep] = {}
        for name in self.strategy.tables:
            self._show_progress(name)
            table = self.store.table(generation, name)
            done = self._compact(table, self.strategy.storage_of(name, 1).sorted_by)
            tables[name] = self._vacuum(table, done, [need for need in needs if need.table == f"g{generation}/{name}"])
        plain = PlainAnswer(self.store).table
        if plain.version() is not None:
            self._show_progress(PLAIN)
            files = plain.size()[0]
            done = _table_upkeep("as it was", partitions=0, files=(files, files))
            tables[PLAIN] = self._vacuum(plain, done, ())
        for name, pin in last.intent.sources.items():
            table = self._table("sources", name)
            is_landed = not isinstance(pin, AnswerPin) and records_at(self._root / "landed" / name).exists()
            if is_landed and is_pinned(pin, table):
                self._show_progress(f"landed {name}")
                tables[f"landed/{name}"] = self._maintain_landed(name, table)
                quarantine = self._table("quarantine", name)
                if quarantine.version() is not None:
                    tables[f"quarantine/{name}"] = self._maintain_landed(name, quarantine, pinned=False)
        self._show_progress("superseded generations")
        generations = self._remove_generations(generation, needs)
        entries = self.store.journal.prune(self.store.tuning.kept_epochs)
        return Upkeep(
            view=self.store.view,
            retention_hours=self.hours,
            tables=tables,
            generations=generations,
            entries=entries,
            keeps=self._retention(tables),
            seconds=round(time.monotonic() - start, 3),
            finished=now(),
        )

    def _compact(self, table: Table, keys: Sequence[str]) -> TableUpkeep:
        """Rewrite the fragmented buckets of one of the view's tables."""
        files, size = table.size()
        tuning = self.store.tuning
        parts = table.partitions(tuning.small_file_bytes)
        fragmented = [part.value or "0" for part in self._find_fragmented(parts)]
        if fragmented and keys:
            table.sort(fragmented, keys, size * len(fragmented) // len(parts) // tuning.file_bytes, METADATA)
        elif fragmented:
            table.compact(f"{BUCKET} IN ({', '.join(fragmented)})")
        work = "as it was" if not fragmented else "sorted" if keys else "compacted"
        return _table_upkeep(work, partitions=len(fragmented), files=(files, table.size()[0]))

    def _find_fragmented(self, parts: Sequence[PartitionFiles]) -> list[PartitionFiles]:
        """Return the partitions that a compaction would improve."""
        return [part for part in parts if part.is_fragmented(self.store.tuning)]

    def _table(self, folder: str, source: str) -> Table:
        """Return a table of a landed source."""
        return self.store.lake.table(self.store.spark, str(self._root / folder / source))

    @property
    def _root(self) -> Place:
        """The warehouse."""
        return self.store.folder.parents[1]

    def _maintain_landed(self, name: str, table: Table, *, pinned: bool = True) -> TableUpkeep:
        """Maintain a landed source or its quarantine, under its lock; pinned: views may pin versions of it."""
        seconds = self.store.tuning.landing_lock_seconds
        landed = records_at(self._root / "landed" / name)
        with landed.lock(f"source {name}", "landed or maintained", seconds, private=True):
            files = table.size()[0]
            column = next(iter(table.metadata().partition_columns), None)
            parts = self._find_fragmented(table.partitions(self.store.tuning.small_file_bytes))
            if parts and column is None:
                table.compact("true")
            elif parts and column is not None:
                values = [HIVE_NULL if part.value is None else part.value for part in parts]
                table.compact(partition_condition(column, table.schema()[column].dataType, values))
            work = "compacted" if parts else "as it was"
            done = _table_upkeep(work, partitions=len(parts), files=(files, table.size()[0]))
            needs = needs_of_sources(self._root / "views") if pinned else ()
            return self._vacuum(table, done, [need for need in needs if need.table == name])

    def _vacuum(self, table: Table, done: TableUpkeep, needs: Sequence[Need]) -> TableUpkeep:
        """Remove files that neither the retention nor any reader needs."""
        kept = tuple[str, ...]()
        hours = self.hours
        oldest = min(needs, key=lambda need: need.version, default=None)
        if oldest is not None:
            needed = table.needed_hours(oldest.version)
            if needed is None:
                return replace(
                    done, kept=(f"all files, since {oldest.who} still reads the old version {oldest.version}",)
                )
            if needed > hours:
                hours = needed
                kept = (f"files of version {oldest.version}, which {oldest.who} reads",)
        files, size = table.usage()
        if files > done.files[1]:
            check_leases(self.store.folder)
            table.remove_older(hours)
        files_after, size_after = table.usage()
        return replace(done, removed=files - files_after, freed=size - size_after, kept=kept)

    def _remove_generations(self, current: int, needs: Sequence[Need]) -> tuple[int, ...]:
        """Remove the tables of superseded generations that are old enough and unread, and of copies that failed."""
        needed = {current, *(int(need.table.partition("/")[0][1:]) for need in needs)}
        removed: list[int] = []
        for number in self.store.generations():
            if number not in needed and (number > current or self._is_superseded(number)):
                records_at(self.store.folder / f"g{number}").remove()
                removed.append(number)
        return tuple(removed)

    def _is_superseded(self, generation: int) -> bool:
        """Return whether readers moved to a later generation before the retention began."""
        since = superseded_since(self.store.folder, generation)
        return since is not None and seconds_since(since) / HOUR >= self.hours

    def _retention(self, tables: dict[str, TableUpkeep]) -> tuple[str, ...]:
        return (
            f"files of the versions of the last {self.hours:g} hours, and those that each view's last epoch reads",
            *(f"of {name} {kept}" for name, done in tables.items() for kept in done.kept),
            f"generations superseded less than {self.hours:g} hours ago",
            f"the newest {self.store.tuning.kept_epochs} epochs of the journal",
            "Delta's logs for 30 days, or as delta.logRetentionDuration is set",
        )

    def _show_progress(self, step: str) -> None:
        if self.progress is not None:
            self.progress(f"maintain {step}")


def _table_upkeep(work: str, *, partitions: int, files: tuple[int, int]) -> TableUpkeep:
    """Return the upkeep of a table from which no file has been removed yet."""
    return TableUpkeep(work=work, partitions=partitions, files=files, removed=0, freed=0)


def check_hours(view: str, hours: object) -> None:
    """Raise UsageError for a retention that is not a number from 0."""
    if not isinstance(hours, int | float) or not 0 <= hours < math.inf:
        raise UsageError(f"view {view}: it cannot retain {hours!r} hours. Give a number, 0 or more.")


def upkeep(
    store: Store, mode_policy: ModePolicy, inputs: Inputs, hours: float = WEEK_HOURS, progress: Progress | None = None
) -> Upkeep:
    """Maintain a view's tables under its lock; inputs: the sources of its query.

    Raises StateError if an epoch is unfinished or there is none, BusyError if another process works on the view.
    """
    with update_metrics(store, inputs, attempt=False), log_work("upkeep", {"view": store.view}) as work:
        work.result = done = _upkeep_locked(store, mode_policy, hours, progress)
    return done


def _upkeep_locked(store: Store, mode_policy: ModePolicy, hours: float, progress: Progress | None) -> Upkeep:
    """Check that the view can be maintained, take its lock, and run all steps."""
    view = store.view
    with store.lock("refreshed or maintained"):
        newest = store.journal.forget_copy()
        if newest is None:
            raise never_refreshed(view)
        if (last := as_complete(newest)) is None:
            raise StateError(f"view {view}: epoch {newest.intent.epoch} was interrupted. {refresh_first(view)}.")
        strategy = mode_policy.of(last.intent.mode)
        if redefinition := find_redefinition(view, store.journal, last, mode_policy.current, strategy):
            raise redefinition.refuse("Rebuild the view, or restore what changed")
        AnswerPointer(store).begin()  # so that no reader is still pointed to a table that is removed below
        try:
            return _UpkeepRun(store, strategy, hours, progress).run(last)
        except JavaError as error:
            raise DeltafoldError(
                f"Delta could not maintain the tables of view {view}: {cause(error)}. Try again; nothing is lost."
            ) from error


def with_growth(done: Upkeep, grown: Report) -> Upkeep:
    """Add the copy into more buckets that was made before an upkeep."""
    return replace(done, grown=grown, sentence="")
