"""Refresh a view: lock it, decide the versions, plan an epoch (planner.py), run it (executor.py).

An interrupted epoch is finished first, from its pinned versions. The protocol is in docs/design.md.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from deltafold.algebra.errors import DeltafoldWarning, LostSourceError, QueryError
from deltafold.algebra.results.report import RESUMED, Report
from deltafold.lake.durable import lock
from deltafold.lake.log.delta_log import cached_snapshots
from deltafold.lake.remote.remote_path import Place
from deltafold.refresh.compatibility import REBUILD, check_tables
from deltafold.refresh.executor import Executor
from deltafold.refresh.mode import ModePolicy
from deltafold.refresh.planner import EpochPlan, Planner
from deltafold.refresh.reporting import merge_chunk_reports, unchanged_report, with_resumed, with_upstream
from deltafold.refresh.sources.upstream import Done, Inputs, Progress, Targets, UpstreamState, UpstreamView
from deltafold.refresh.take_back import BY_ITSELF, finish_taking_back
from deltafold.store.answer_pointer import AnswerPointer
from deltafold.store.journal import Entry, Pin, base_versions
from deltafold.store.view_store import Store
from deltafold.telemetry import log, log_work


@dataclass(frozen=True)
class Beginning:
    """What a refresh does first.

    rebuild: whether it rebuilds the view; resumed: the report of an interrupted epoch that it finished; lost: why the
    view has to be rebuilt, where a source lost what such an epoch, or the last one, read.
    """

    rebuild: bool
    resumed: Report | None = None
    lost: LostSourceError | None = None


class Refresh:
    """Refreshes one view, each epoch in the mode of the last one, until the policy chooses another mode.

    on_change: `refuse` or `rebuild` the view if its query, the schema of a source, or the settings changed.
    on_lost: `refuse` or `rebuild` the view if a source lost what the last epoch read.
    """

    def __init__(
        self,
        store: Store,
        mode_policy: ModePolicy,
        inputs: Inputs,
        on_change: str = "refuse",
        on_lost: str = "refuse",
    ) -> None:
        self.inputs = inputs
        self._store, self._mode_policy, self._on_change, self._on_lost = store, mode_policy, on_change, on_lost
        self._pointer = AnswerPointer(store)
        self._planner = Planner(store, mode_policy, inputs)
        self._executor = Executor(store, mode_policy, inputs, self._pointer)

    def run(
        self,
        versions: Mapping[str, int] | None,
        progress: Progress | None,
        *,
        rebuild: bool = False,
        chunk_bytes: int | None = None,
    ) -> Report:
        """Refresh to the given or the latest versions, after finishing an interrupted epoch.

        chunk_bytes: bytes of source files that one epoch takes in; a larger change takes several.
        """
        store = self._store
        folder = store.folder.resolve()
        locks = lock_views(folder, self.inputs, self.inputs.chain, store.tuning.lock_seconds)
        with log_work("refresh", {"view": store.view}) as work, locks as below, cached_snapshots():
            self.inputs.announce_chain(folder)
            begun = self._begin(progress, rebuild=rebuild)
            done: Done = {}
            last = store.journal.last_complete()
            read = base_versions(last.intent.sources) if last is not None else ()
            targets = self.inputs.targets(versions or {}, read)
            reached = self.inputs.reach(targets, done, progress)
            below.close()
            report = self._advance(begun, targets, reached, progress, chunk_bytes)
            work.result = report = with_upstream(report, [each.report for each in done.values()])
        return report

    def run_within(self, targets: Targets, done: Done, progress: Progress | None, *, rebuild: bool = False) -> Report:
        """Refresh to the versions of a pipeline, as `reach`; done: what it refreshed, all views below among them."""
        store, folder = self._store, self._store.folder.resolve()
        locks = lock_views(folder, self.inputs, self.inputs.read_views, store.tuning.lock_seconds)
        with log_work("refresh", {"view": store.view}) as work, locks as below, cached_snapshots():
            self.inputs.announce(folder)
            below.close()  # another one may refresh them further: their epochs of this run are pinned
            last = store.journal.last_complete()
            self.inputs.check_targets(targets, base_versions(last.intent.sources) if last is not None else ())
            work.result = report = self.reach(targets, done, progress, rebuild=rebuild).report
        return report

    def reach(self, targets: Targets, done: Done, progress: Progress | None, *, rebuild: bool = False) -> UpstreamState:
        """Refresh to the versions that a view above requests; if they are in the past, return an earlier epoch."""
        folder = self._store.folder.resolve()
        if folder in done:
            self._check_query(done[folder].entry)
            return done[folder]
        begun = self._begin(progress, rebuild=rebuild)
        last = None if begun.rebuild else self._store.journal.last()
        if last is not None:
            self._check_query(last)
            try:
                self.inputs.check(last.intent.sources)
            except LostSourceError as error:
                begun, last = self._begin_anew(error, begun.resumed), None
        if last is not None and self.inputs.find_passed(last.intent.sources, targets):
            entry = self.inputs.earlier(self._store.journal, targets, last)
            sentence = f"{self._store.view}: epoch {entry.intent.epoch} is at the requested versions"
            report = replace(unchanged_report(self._store.view, entry, entry.intent.sources), sentence=sentence)
        else:
            reached = self.inputs.reach(targets, done, progress)
            report = self._advance(begun, targets, reached, progress)
            entry = self._store.journal.last()
        assert entry is not None
        done[folder] = UpstreamState(entry, self._mode_policy.of(entry.intent.mode).tables[-1], report)
        return done[folder]

    def _begin(self, progress: Progress | None, *, rebuild: bool = False) -> Beginning:
        """Point readers to the answer, and finish an interrupted epoch."""
        self._pointer.begin()
        rebuild = rebuild or self._replaces(progress)
        last = self._store.journal.forget_copy()
        if last is None or rebuild or last.complete:
            return Beginning(rebuild=rebuild)
        if last.intent.takes_back:
            last = finish_taking_back(self._store, last.intent)
        try:
            resumed = None if last is None or last.complete else self._resume(last, progress)
        except LostSourceError as error:
            return self._begin_anew(error)
        return Beginning(self._has_failed() or self._replaces(progress), resumed)

    def _begin_anew(self, error: LostSourceError, resumed: Report | None = None) -> Beginning:
        """Rebuild the view, which cannot go on from its last epoch; raises the error where that was not asked for."""
        if self._on_lost != REBUILD:
            raise error
        return Beginning(rebuild=True, resumed=resumed, lost=error)

    def _advance(
        self,
        begun: Beginning,
        targets: Targets,
        reached: Mapping[str, UpstreamState],
        progress: Progress | None,
        chunk_bytes: int | None = None,
    ) -> Report:
        """Refresh to these versions in as many epochs as it takes, from nothing where a source lost what was read."""
        if begun.lost is not None:
            self._check_healing(begun.lost, targets, progress)
        try:
            lost = "" if begun.lost is None else str(begun.lost)
            report = self._refresh_to(
                targets, reached, progress, rebuild=begun.rebuild, chunk_bytes=chunk_bytes, lost=lost
            )
            report = self._finish_chunks(progress, report) or report
            if (last := self._store.journal.last()) is not None and not last.complete:
                report = self._refresh_to(targets, reached, progress)
            return with_resumed(report, begun.resumed)
        except LostSourceError as error:
            if begun.rebuild:
                raise
            anew = self._begin_anew(error, begun.resumed)
        return self._advance(anew, targets, reached, progress, chunk_bytes)

    def _check_healing(self, lost: LostSourceError, targets: Targets, progress: Progress | None) -> None:
        """Say that the view is rebuilt; raises the error where a rebuild could not read its sources either."""
        tables, places = self.inputs.tables, self.inputs.places
        if not all(table.is_readable(targets[places[name]]) for name, table in tables.items()):
            raise lost
        because = str(lost).split(". ")[0].rstrip(".")
        log(logging.WARNING, "source lost", {"view": self._store.view, "sentence": lost.logged})
        warnings.warn(
            f"view {self._store.view}: it is rebuilt, as on_lost asks for, since a source lost what the last epoch "
            f"read. It was: {because}.",
            DeltafoldWarning,
            stacklevel=4,
        )
        if progress is not None:
            progress(f"rebuilding: {because}")

    def _resume(self, last: Entry, progress: Progress | None) -> Report | None:
        """Finish an interrupted epoch, and the chunks after it."""
        self._check_query(last)
        plan = self._planner.resume(last)
        if last.report is not None:
            return self._finish_chunks(progress, None)
        resumed = self._run(plan, progress)
        return resumed and self._finish_chunks(progress, resumed)

    def _finish_chunks(self, progress: Progress | None, begun: Report | None) -> Report | None:
        """Run the remaining chunks of the last epoch's change; return their report merged with `begun`.

        It ends before a chunk that fails by itself: `_refresh_to` takes in what is left.
        """
        report = begun
        while (last := self._store.journal.last()) and last.report and (chunk := last.intent.part) and not chunk.last:
            if progress is not None:
                left = last.report.seconds * (chunk.of - chunk.number)
                progress(f"chunk {chunk.number + 1} of {chunk.of}, about {left:.0f} s left")
            done = self._run(self._planner.next_chunk(last), progress)
            if done is None:
                break
            report = done
        if report is None or (report is begun and report.verdict != RESUMED):
            return report
        return merge_chunk_reports(self._store.journal.entries(), report)

    def _run(self, plan: EpochPlan, progress: Progress | None) -> Report | None:
        """Run an epoch; return None where it failed by itself and another one may not: a chunk, or an interrupted one.

        Between two chunks a source has rows that none of its versions has: a cycle, two rows of a key, a sum of zero.
        """
        intent, part = plan.intent, plan.intent.part
        try:
            return self._executor.run(plan, progress)
        except BY_ITSELF as error:
            if plan.is_resumed:
                what = f"epoch {intent.epoch}, which was interrupted, fails by itself. The latest versions are next"
            elif part is None or intent.takes_rest:
                raise
            else:
                what = (
                    f"chunk {part.number} of {part.of} fails by itself. What is left of the change is taken in at "
                    "once; a greater chunk avoids this"
                )
            because = str(error).split(". ")[0].rstrip(".")  # without its advice: another epoch follows
            warnings.warn(f"view {intent.view}: {what}. The error was: {because}.", DeltafoldWarning, stacklevel=4)
            return None

    def _has_failed(self) -> bool:
        """Return whether the last epoch is a first load that failed by itself after it wrote a part."""
        last = self._store.journal.last()
        return last is not None and last.report is None

    def _refresh_to(
        self,
        targets: Targets,
        reached: Mapping[str, UpstreamState],
        progress: Progress | None,
        *,
        rebuild: bool = False,
        chunk_bytes: int | None = None,
        lost: str = "",
    ) -> Report:
        """Refresh to these versions in one epoch; in none if nothing changed, in two if a state can be reused.

        What chunks left is taken in at once.
        """
        last = self._store.journal.last()
        if last is not None and not rebuild:
            self._check_query(last)
            check_tables(self._store, last)
        pins = self._planner.pins(last, targets, reached, rebuild=rebuild)
        if last is not None and not rebuild and not last.complete:
            report = self._executor.run(self._planner.rest(last, pins), progress)
            return merge_chunk_reports(self._store.journal.entries(), report)
        if last is not None and not rebuild and all(p.before == p.after and p.left is None for p in pins.values()):
            return self._keep_epoch(last, pins)
        plan = self._planner.next(last, pins, rebuild=rebuild, chunk_bytes=chunk_bytes, lost=lost)
        report = self._run(plan, progress)
        if report is None:
            return self._refresh_to(targets, reached, progress, rebuild=rebuild or self._has_failed())
        return (
            with_resumed(self._refresh_to(targets, reached, progress, chunk_bytes=chunk_bytes), report)
            if plan.falls_short
            else report
        )

    def _keep_epoch(self, last: Entry, pins: Mapping[str, Pin]) -> Report:
        """Keep the last epoch, and record the base versions of the views below, which may have advanced."""
        assert last.report is not None
        if any(pin.bases != last.intent.sources[name].bases for name, pin in pins.items()):
            self._store.journal.finish(replace(last.intent, sources=dict(pins)), last.report, last.after)
        return unchanged_report(self._store.view, last, pins)

    def _check_query(self, last: Entry) -> None:
        """Raise ChangedQueryError for a state of another query or in other tables; record the query's recipe."""
        if found := self._planner.find_redefinition(last):
            raise found.refuse("Rebuild the view, or restore what changed")
        self._store.journal.record(self._mode_policy.current.recipe)  # earlier releases did not record it

    def _replaces(self, progress: Progress | None) -> bool:
        """Return whether the changes since the last epoch require a new generation."""
        last = self._store.journal.last()
        redefinition = None if last is None else self._planner.find_redefinition(last)
        if redefinition is None or not (self._on_change == REBUILD or redefinition.goes_on):
            return False
        if progress is not None:
            progress(f"rebuilding: {redefinition.what}")
        return True


@contextmanager
def lock_views(
    folder: Place, inputs: Inputs, read: Mapping[Place, UpstreamView], seconds: float
) -> Generator[ExitStack]:
    """Lock a view and those below it that its refresh reads, in a fixed order, so that no two refreshes deadlock.

    Yields an object whose `close` frees the locks of those below early.
    """
    if folder in inputs.chain:
        raise QueryError(
            f"view {inputs.view}: it reads itself, through {', '.join(inputs.views)}. Give one another name."
        )
    folders = {folder: inputs.view, **{path: below.store.view for path, below in read.items()}}
    with ExitStack() as own, ExitStack() as below:
        for each in sorted(folders, key=str):
            held = lock(each, f"view {folders[each]}", "refreshed", seconds)
            (own if each == folder else below).enter_context(held)
        yield below
