"""Run the epoch that a plan describes: write its intent, its tables with the epoch's mark, the view last, its report.

A crash anywhere leaves an intent without report; the next refresh finishes that epoch from its pinned versions first.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from deltafold.algebra.errors import DeltafoldError, NotConvergedError, StateError
from deltafold.algebra.results.report import Report
from deltafold.lake.snapshot import Snapshot
from deltafold.lake.version_diff import SourceVersions
from deltafold.refresh.chunks import sources_of_chunk
from deltafold.refresh.compatibility import reason
from deltafold.refresh.epoch import Epoch, EpochResult
from deltafold.refresh.incremental_refresh import RefreshStrategy
from deltafold.refresh.mode import ModePolicy
from deltafold.refresh.planner import EpochPlan
from deltafold.refresh.reporting import report_of, unaffected_report, with_choice, with_reason
from deltafold.refresh.shared_changes import SharedChange
from deltafold.refresh.sources.constraint_checks import check_constraints
from deltafold.refresh.sources.upstream import Inputs, Progress
from deltafold.refresh.state_reuse import find_reusable
from deltafold.refresh.take_back import BY_ITSELF, take_back
from deltafold.spark.java_errors import explain_errors
from deltafold.spark.job_stats import Measure
from deltafold.store.answer_pointer import AnswerPointer
from deltafold.store.history import Begun, Finished, Intent, Whole
from deltafold.store.view_store import Store
from deltafold.telemetry import log_work


@dataclass(frozen=True)
class Executor:
    """Runs the epochs of one view; the caller has the view's lock.

    shared: the changes that other datasets of a run read, too, by the location of the table.
    """

    store: Store
    mode_policy: ModePolicy
    inputs: Inputs
    pointer: AnswerPointer
    shared: Mapping[str, SharedChange] = field(default_factory=dict[str, SharedChange])

    def run(self, plan: EpochPlan, progress: Progress | None) -> Report:
        """Run one epoch, complete its journal entry, and point readers to its table.

        Raises SourceError for rows that break a declared constraint, and StateError for tables that were altered;
        then the journal entry of an epoch that wrote nothing is removed.
        """
        intent = plan.intent
        with log_work("epoch", {"view": intent.view, "generation": intent.generation, "epoch": intent.epoch}) as work:
            epoch, effect = self._write(plan, progress)
            work.result = report = self._finish(plan, epoch, effect)
        self.pointer.point()
        return report

    def epoch(self, strategy: RefreshStrategy, intent: Intent, progress: Progress | None, *, resumed: bool) -> Epoch:
        """Return the inputs and outputs of a planned epoch."""
        tables = {name: self.store.table(intent.generation, name) for name in strategy.tables}
        measure = Measure(self.store.spark, progress)
        sources, tuning = self.inputs.of(intent.sources, intent.extent), self.store.tuning
        return Epoch(
            spark=self.store.spark,
            intent=intent,
            sources=sources,
            tables=tables,
            measure=measure,
            resumed=resumed,
            tuning=tuning,
        )

    @contextmanager
    def counting(self, epoch: Epoch, title: str, *, is_copy: bool = False) -> Generator[None]:
        """Count the cost of an epoch; on failure, remove its entry, take it back, or add to the error what is left.

        An error of a loop gets the name of the view, which may be one below the refreshed one.
        is_copy: it copies another epoch, which the view then stays at.
        """
        try:
            with (
                epoch.measure.all(title),
                explain_errors(epoch.places, moving=not epoch.initial, guard=self.mode_policy.current.guard),
            ):
                yield
        except DeltafoldError as error:
            if isinstance(error, NotConvergedError):
                error.args = (f"view {epoch.intent.view}: {error}",)
            self._fail(epoch, error, is_copy=is_copy)
            raise

    def _write(self, plan: EpochPlan, progress: Progress | None) -> tuple[Epoch, EpochResult]:
        """Check declared constraints on the change, then write the tables."""
        intent = plan.intent
        whole = self.epoch(plan.strategy, intent, progress, resumed=plan.is_resumed)
        sources = sources_of_chunk(whole.sources, intent.sources, intent.extent)
        reused = find_reusable(self.store, intent, plan.strategy.convertible)
        epoch = replace(whole, sources=sources, reused=reused, shared=self._find_shared(sources))
        with self.counting(epoch, f"{intent.view} epoch {intent.epoch}"):
            if plan.begins_change:
                check_constraints(whole, plan.strategy.constraints)
            self.store.journal.record(self.mode_policy.current.recipe)
            self.store.journal.begin(Begun(intent))
            if epoch.initial:
                tables = plan.strategy.tables
                self.store.create_folders(intent.generation, tables, tables[-1])
            return epoch, plan.strategy.run(epoch)

    def _find_shared(self, sources: Mapping[str, SourceVersions]) -> dict[str, SharedChange]:
        """Return the shared changes by source, but of those that are read in chunks, or with other types."""
        if not self.shared:
            return {}
        read = {name: source for name, source in sources.items() if name in self.inputs.tables}
        plain = [name for name, each in read.items() if each.after == Snapshot(each.after.table, each.after.version)]
        places = {name: self.inputs.places[name] for name in plain}
        return {name: self.shared[place] for name, place in places.items() if place in self.shared}

    def _finish(self, plan: EpochPlan, epoch: Epoch, effect: EpochResult) -> Report:
        """Complete the journal entry; if no table changed, the last epoch is kept, at the new versions."""
        journal, intent, last, cost = self.store.journal, plan.intent, plan.last, epoch.measure.cost
        if not effect.commits and not plan.is_resumed and last is not None:
            # the change cancelled out, as in a compaction
            kept = replace(
                last.intent,
                sources=intent.sources,
                constraints=intent.constraints,
                extent=intent.extent,
                clock=intent.clock,
            )
            journal.finish(replace(last, intent=kept))
            journal.remove(intent)
            return unaffected_report(last, intent.sources, effect, cost)
        final = plan.strategy.tables[-1]
        if final in effect.paths and not epoch.has_reached(final):
            raise StateError(f"view {intent.view}: it did not reach epoch {intent.epoch}. Rebuild the view.")
        choice = plan.choice if isinstance(intent.extent, Whole) else None
        report = with_choice(report_of(intent, effect, cost, plan.verdict), choice)
        report = with_reason(report, reason(self.store, self.mode_policy, self.inputs, intent))
        report = replace(report, lost=intent.lost if intent.epoch == 1 else "")
        journal.finish(Finished(intent, report, {name: table.version() for name, table in epoch.tables.items()}))
        return report

    def _fail(self, epoch: Epoch, error: DeltafoldError, *, is_copy: bool) -> None:
        """Remove the entry of an epoch that wrote nothing, or take it back, so the next can differ.

        One that would not fail again for its own data stays, and the fix is added to the error.
        """
        if is_copy or not any(epoch.is_marked(table) for table in epoch.tables):
            self.store.journal.remove(epoch.intent)
            return
        if isinstance(error, BY_ITSELF):
            take_back(self.store, epoch.intent)
            return
        unfinished, last = f"Epoch {epoch.intent.epoch} of view {epoch.intent.view}", self.store.journal.last_complete()
        way = "rebuild the view" if last is None else f"roll the view back to epoch {last.intent.epoch}, or rebuild it"
        error.args = (
            f"{str(error).rstrip('.')}. {unfinished} is unfinished: the next refresh repeats it with the same source "
            f"versions. Remove the cause and refresh again; if it is in their data, correct the source and {way}.",
        )
