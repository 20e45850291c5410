"""The refresh protocol (DESIGN section 7). In: a maintenance, tables, a journal. Out: a report.

1. lock  2. pin the sources' versions  3. write the tables with the epoch's mark, the view last  4. report.
A crash anywhere leaves an intent without report; the next refresh finishes that epoch from its pinned versions first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from incremental.algebra.errors import DeltafoldError, SourceError, StateError
from incremental.algebra.report import Report
from incremental.lake.version_diff import difference
from incremental.refresh.batches import following, in_parts, sliced
from incremental.refresh.compatibility import REBUILD, Redefinition, check_layout, reason, redefinition
from incremental.refresh.constraint_checks import check
from incremental.refresh.epoch import Epoch
from incremental.refresh.incremental_refresh import Effect, Incremental
from incremental.refresh.journal import Entry, Intent, Pin
from incremental.refresh.mode import Choice, Ways
from incremental.refresh.publisher import Publisher
from incremental.refresh.reporting import after, nothing, over, report_of, together, unmoved, with_choice, with_reason
from incremental.refresh.state_reuse import reused, stood
from incremental.refresh.upstream import Done, Inputs, Reached, Targets, locked
from incremental.refresh.view_store import Store
from incremental.spark.java_errors import explained
from incremental.spark.job_stats import Measure
from incremental.telemetry.events import logged

Progress = Callable[[str], None]
RESUMED = "resumed"


class Refresh:
    """Refreshes one view; the maintenance is that of the last epoch until another is chosen.

    on_change: `refuse` or `rebuild` where the query, the schema of what it reads, or settings are others than before.
    """

    def __init__(self, store: Store, ways: Ways, inputs: Inputs, on_change: str = "refuse") -> None:
        self._store, self._ways, self.inputs, self._on_change = store, ways, inputs, on_change
        self._maintenance, self._publisher = ways.of(None), Publisher(store)

    def run(
        self,
        versions: Mapping[str, int] | None,
        progress: Progress | None,
        rebuild: bool = False,
        chunk: int | None = None,
    ) -> Report:
        """One refresh up to the given (or the latest) versions; finishes what was interrupted first.

        chunk: bytes of source files that one epoch takes in; a larger change takes several.
        """
        with logged("refresh", {"view": self._store.view}) as work:
            work.result = report = self._run(versions, progress, rebuild, chunk)
        return report

    def _run(
        self, versions: Mapping[str, int] | None, progress: Progress | None, rebuild: bool, chunk: int | None
    ) -> Report:
        with locked(self._store.folder, self.inputs, self._store.tuning.lock_seconds) as below:
            self._publisher.begin()
            rebuild = rebuild or self._replaces(progress)
            resumed = self._resume(progress, rebuild)
            done: Done = {}
            targets = self.inputs.targets(versions or {})
            reached = self.inputs.reach(targets, done, progress)
            below.close()
            report = self._next(targets, reached, progress, rebuild, chunk)
            report = after(self._arrive(progress, report) or report, resumed)
            return over(report, [each.report for each in done.values()])

    def reach(self, targets: Targets, done: Done, progress: Progress | None) -> Reached:
        """Go to the versions that a view above asks for; one that has gone on already gives an earlier epoch."""
        folder = self._store.folder.resolve()
        if folder in done:
            self._maintenance = self._ways.of(done[folder].entry.intent.mode)
            self._same_query(done[folder].entry)
            return done[folder]
        self._publisher.begin()
        rebuild = self._replaces(progress)
        resumed = self._resume(progress, rebuild)
        last = None if rebuild else self._store.journal.last()
        if last is not None:
            self._same_query(last)
            self.inputs.check(last.intent.sources)
        if last is not None and self.inputs.passed(last.intent.sources, targets):
            entry = self.inputs.earlier(self._store.journal, targets, last)
            sentence = f"{self._store.view}: epoch {entry.intent.epoch} is at the versions asked for"
            report = replace(nothing(self._store.view, entry, entry.intent.sources), sentence=sentence)
        else:
            reached = self.inputs.reach(targets, done, progress)
            report = after(self._next(targets, reached, progress, rebuild), resumed)
            entry = self._store.journal.last()
        assert entry is not None
        done[folder] = Reached(entry, self._ways.of(entry.intent.mode).tables[-1], report)
        return done[folder]

    def _resume(self, progress: Progress | None, rebuild: bool = False) -> Report | None:
        """Finish an interrupted epoch, unless the view is rebuilt."""
        last = self._store.journal.last()
        if last is not None:
            self._maintenance = self._ways.of(last.intent.mode)
        if last is None or rebuild or last.complete:
            return None
        self._same_query(last)
        self.inputs.check(last.intent.sources)
        resumed = None if last.report is not None else self._attempt(last.intent, progress, RESUMED)
        return self._arrive(progress, resumed)

    def _arrive(self, progress: Progress | None, begun: Report | None) -> Report | None:
        """Go on, part by part, to the versions that the last epoch was on its way to; what came of it with `begun`."""
        report = begun
        while (last := self._store.journal.last()) and last.report and (part := last.intent.part) and not part.last:
            if progress is not None:
                left = last.report.seconds * (part.of - part.number)
                progress(f"part {part.number + 1} of {part.of}, about {left:.0f} s left")
            tables = {name: self._store.table(last.intent.generation, name).version() for name in last.after or {}}
            report = self._attempt(following(last.intent, tables), progress, self._maintenance.verdict, last=last)
        if report is None or (report is begun and report.verdict != RESUMED):
            return report
        return together(self._store.journal.entries(), report)

    def _next(
        self,
        targets: Targets,
        reached: Mapping[str, Reached],
        progress: Progress | None,
        rebuild: bool = False,
        chunk: int | None = None,
    ) -> Report:
        last = self._store.journal.last()
        if last is not None and not rebuild:
            self._same_query(last)
        known = {} if last is None or rebuild else last.intent.sources
        pins = {name: self.inputs.pin(name, known.get(name), targets, reached) for name in self._maintenance.sources}
        self.inputs.check_columns(pins, self._ways.current)
        initial = last is None or rebuild
        if not initial and all(pin.before == pin.after and pin.left is None for pin in pins.values()):
            assert last is not None and last.report is not None
            if any(pin.bases != known[name].bases for name, pin in pins.items()):
                self._store.journal.finish(replace(last.intent, sources=pins), last.report, last.after)
            return nothing(self._store.view, last, pins)
        choice = self._ways.choose(self._store.journal, pins, self.inputs.of(pins))
        verdict = "rebuilt" if rebuild else choice.maintenance.verdict
        if last is not None and choice.maintenance.mode != last.intent.mode:
            initial = rebuild = True  # another mode is another generation
            verdict = "rebuilt" if verdict == Incremental.verdict else verdict
            pins = {name: replace(pin, before=None, left=None) for name, pin in pins.items()}
        self._maintenance = choice.maintenance
        intent = self._intent(None if initial else last, pins, self._store.unused_generation() if rebuild else None)
        if rebuild and (earlier := stood(intent, last, self.inputs, self._ways.current, chunk)):
            rebuilt = self._attempt(replace(intent, sources=earlier), progress, verdict, last=last, choice=choice)
            return after(self._next(targets, reached, progress, chunk=chunk), rebuilt)
        if chunk is not None and intent.mode == Incremental.mode:
            intent = in_parts(intent, self.inputs.of(pins), chunk)
        return self._attempt(intent, progress, verdict, last=last, choice=choice)

    def _intent(self, last: Entry | None, pins: dict[str, Pin], generation: int | None) -> Intent:
        """The next epoch after the last one; after None the first one of a generation. Refuses what cannot be begun."""
        generation = generation or (1 if last is None else last.intent.generation)
        epoch = 1 if last is None else last.intent.epoch + 1
        buckets = self._buckets(pins) if last is None else last.intent.buckets
        tables = {name: self._store.table(generation, name).version() for name in self._maintenance.tables}
        fingerprint, mode = self._maintenance.fingerprint, self._maintenance.mode
        kept, states = {} if last is None else tables, self._maintenance.states
        intent = Intent(self._store.view, generation, epoch, fingerprint, buckets, pins, kept, mode=mode, states=states)
        intent = self._declared(intent, last)
        self._check_invariant(intent)
        if last is None or last.after != tables:
            self._check_marks(intent)
        if last is not None:
            check_layout(self._store, generation, self._maintenance)
        return intent

    def _attempt(
        self,
        intent: Intent,
        progress: Progress | None,
        verdict: str,
        *,
        last: Entry | None = None,
        choice: Choice | None = None,
    ) -> Report:
        """Run one epoch of a written intent, complete its journal entry, and point readers to its table."""
        subject = {"view": intent.view, "generation": intent.generation, "epoch": intent.epoch}
        with logged("epoch", subject) as work:
            work.result = report = self._attempted(intent, progress, verdict, last, choice)
        self._publisher.point()
        return report

    def _attempted(
        self, intent: Intent, progress: Progress | None, verdict: str, last: Entry | None, choice: Choice | None
    ) -> Report:
        journal, resumed = self._store.journal, verdict == RESUMED
        whole = self._epoch(intent, progress, resumed)
        cost, sources = whole.measure.cost, sliced(whole.sources, intent.sources, intent.part)
        epoch = replace(whole, sources=sources, reused=reused(self._store, intent))

        def work() -> Effect:
            if not resumed and (intent.part is None or intent.part.number == 1):
                check(whole, self._maintenance.constraints)
            journal.keep(self._ways.current.recipe)
            journal.begin(intent)
            return self._maintenance.run(epoch)

        effect = self._measured(epoch, f"{intent.view} epoch {intent.epoch}", work)
        if not effect.commits and not resumed and last is not None:
            # the change cancelled out (a compaction, say): keep the epoch, move its pins
            report = last.report or report_of(last.intent, Effect(), cost, "")
            kept = replace(last.intent, sources=intent.sources, constraints=intent.constraints, part=intent.part)
            journal.finish(kept, report, last.after)
            journal.withdraw(intent)
            return unmoved(last, intent.sources, cost)
        if not epoch.reached(self._maintenance.tables[-1]):
            raise StateError(f"the view {intent.view} did not reach epoch {intent.epoch}: rebuild the view")
        report = with_choice(report_of(intent, effect, cost, verdict), choice if intent.part is None else None)
        report = with_reason(report, reason(self._store, self._ways, intent))
        journal.finish(intent, report, {name: table.version() for name, table in epoch.tables.items()})
        return report

    def _epoch(self, intent: Intent, progress: Progress | None = None, resumed: bool = False) -> Epoch:
        """What an epoch works on."""
        tables = {name: self._store.table(intent.generation, name) for name in self._maintenance.tables}
        measure = Measure(self._store.spark, progress)
        sources, tuning = self.inputs.of(intent.sources), self._store.tuning
        return Epoch(self._store.spark, intent, sources, tables, measure, resumed, tuning=tuning)

    def _measured(self, epoch: Epoch, title: str, work: Callable[[], Effect]) -> Effect:
        """Do an epoch's work, counting what it costs; where it fails, say what is to be done."""
        try:
            with epoch.measure.all(title), explained(epoch.places, not epoch.initial):
                return work()
        except DeltafoldError as error:
            self._failed(epoch, error)
            raise

    def _failed(self, epoch: Epoch, error: DeltafoldError) -> None:
        """Forget an epoch that wrote nothing, so that the next can be another; else add to the error what to do."""
        if not epoch.resumed and not any(epoch.marked(table) for table in epoch.tables):
            self._store.journal.withdraw(epoch.intent)
            return
        error.args = (
            f"{error}. Epoch {epoch.intent.epoch} of view {epoch.intent.view} was begun and has to end with the source "
            "versions it began with: refresh again if the cause has gone, else correct the source and rebuild the view",
        )

    def _check_marks(self, intent: Intent) -> None:
        """Refuse an epoch that tables have seen already: Delta would skip its writes without a word."""
        epoch = self._epoch(intent)
        if any(epoch.marked(table) for table in epoch.tables):
            raise StateError(
                f"the tables of view {intent.view} are ahead of its journal, which lacks epoch {intent.epoch}: "
                "rebuild the view"
            )

    def _redefinition(self, last: Entry) -> Redefinition | None:
        return redefinition(self._store.view, self._store.journal, last, self._ways.current, self._maintenance)

    def _same_query(self, last: Entry) -> None:
        """Refuse to go on from a state of another query, or in other tables; note what the query is."""
        if found := self._redefinition(last):
            raise found.refused("rebuild the view, or restore what changed")
        self._store.journal.keep(self._ways.current.recipe)  # an earlier release did not

    def _replaces(self, progress: Progress | None) -> bool:
        """Whether what changed since the last epoch asks for a new generation."""
        last = self._store.journal.last()
        if last is None or self._on_change != REBUILD:
            return False
        self._maintenance = self._ways.of(last.intent.mode)
        if (found := self._redefinition(last)) and progress is not None:
            progress(f"rebuilding, since {found.what}")
        return found is not None

    def _declared(self, intent: Intent, last: Entry | None) -> Intent:
        """The intent with what its sources have to fulfil; what nobody checked before it is not relied on in it."""
        declared = [fact.text for fact in self._maintenance.constraints]
        checked = () if last is None or not intent.tables else last.intent.constraints
        return replace(intent, constraints=declared, relied=[text for text in declared if text in checked])

    def _check_invariant(self, intent: Intent) -> None:
        read = self._ways.current.recipe.sources
        for name in sorted(self._maintenance.invariant):
            pin = intent.sources[name]
            if pin.before is None or pin.before == pin.after:
                continue
            changed = difference(self.inputs.tables[name], pin.before, pin.after)
            if not changed.empty and not changed.frame(list(read.get(name, ())), True).isEmpty():
                raise SourceError(
                    f"source {name} is declared invariant but changed between its versions {pin.before} and "
                    f"{pin.after}: rebuild the view {intent.view} to take the change in, or restore the source"
                )

    def _buckets(self, pins: Mapping[str, Pin]) -> int:
        size = sum(table.size()[1] for name, table in self.inputs.of(pins).items() if name in pins)
        tuning = self._store.tuning
        return max(1, min(tuning.buckets, size // tuning.bucket_bytes))
