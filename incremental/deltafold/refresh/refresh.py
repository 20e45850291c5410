"""Refresh a view: lock it, decide the versions, plan an epoch (planner.py), run it (executor.py).

An interrupted epoch is finished first, from its pinned versions. The protocol is in docs/explanation/refresh.md.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from deltafold.algebra.errors import DeltafoldWarning, LostSourceError, QueryError
from deltafold.algebra.results.notes import EarlierEpoch
from deltafold.algebra.results.report import RESUMED, Report
from deltafold.lake.log.delta_log import cached_snapshots
from deltafold.lake.records import records_at
from deltafold.lake.remote.remote_path import Place
from deltafold.refresh.compatibility import REBUILD, Redefinition, check_tables, find_narrowing
from deltafold.refresh.decide import (
    Advance,
    EpochStep,
    Facts,
    ForgetCopy,
    Goal,
    LookUpVersions,
    Nothing,
    Refuse,
    Resume,
    SourceVersions,
    StartGeneration,
    Step,
    TakeBack,
    TakeChunk,
    TakeRest,
    decide,
)
from deltafold.refresh.executor import Executor
from deltafold.refresh.mode import ModePolicy
from deltafold.refresh.planner import EpochPlan, Planner
from deltafold.refresh.reporting import (
    merge_chunk_reports,
    unchanged_report,
    with_publication,
    with_resumed,
    with_upstream,
)
from deltafold.refresh.shared_changes import SharedChange
from deltafold.refresh.sources.upstream import Done, Inputs, Progress, Targets, UpstreamState, UpstreamView
from deltafold.refresh.take_back import BY_ITSELF, restore
from deltafold.store.answer_pointer import AnswerPointer
from deltafold.store.history import Chunk, Event, Finished, History, Pin, Rest, Whole, base_versions
from deltafold.store.view_store import Store
from deltafold.telemetry import log, log_work


@dataclass(frozen=True)
class Versions:
    """The versions that a refresh has to reach; reached: the views below at these versions; clock: as of `Done`."""

    targets: Targets
    reached: Mapping[str, UpstreamState]
    clock: str


@dataclass(kw_only=True)
class Course:
    """One refresh under way.

    chunk_bytes: of source files that one epoch takes in; versions: to reach, None until they are looked up; pins: of
    the next epoch, if they were looked up; arrived: whether the newest epoch is at these versions; failed: the last
    step, if it failed by itself; rebuilds: whether a generation was begun; lost: why it had to be, where a source lost
    what the last epoch read; resumed: the report of what was finished first.
    """

    history: History
    goal: Goal
    progress: Progress | None
    chunk_bytes: int | None = None
    versions: Versions | None = None
    pins: Mapping[str, Pin] | None = None
    arrived: bool = False
    failed: Step | None = None
    rebuilds: bool = False
    lost: LostSourceError | None = None
    resumed: Report | None = None


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
            course = self._begin(progress, rebuild=rebuild, chunk_bytes=chunk_bytes)
            done = Done()
            last = course.history.complete
            read = base_versions(last.intent.sources) if last is not None else ()
            targets = self.inputs.targets(versions or {}, read)
            reached = self.inputs.reach(targets, done, progress)
            below.close()
            report = self._advance(course, Versions(targets, reached, done.clock))
            work.result = report = with_upstream(report, [each.report for each in done.values()])
        return report

    def run_within(
        self,
        targets: Targets,
        done: Done,
        progress: Progress | None,
        shared: Mapping[str, SharedChange],
        *,
        rebuild: bool = False,
    ) -> Report:
        """Refresh to the versions of a pipeline, as `reach`; done: what it refreshed, all views below among them.

        shared: the changes that other views of the pipeline read, too, by the location of the table.
        """
        self._executor = replace(self._executor, shared=shared)
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
        course = self._begin(progress, rebuild=rebuild)
        last = self._find_continued(course)
        if last is not None and self.inputs.is_past(last.intent.sources, targets):
            entry = self.inputs.earlier(self._store.journal, targets, last)
            report = unchanged_report(self._store.view, entry, entry.intent.sources, EarlierEpoch())
        else:
            reached = self.inputs.reach(targets, done, progress)
            report = self._advance(course, Versions(targets, reached, done.clock))
            entry = course.history.newest
            assert isinstance(entry, Finished)
        done[folder] = UpstreamState(entry, self._mode_policy.of(entry.intent.mode).tables[-1], report)
        return done[folder]

    def _begin(self, progress: Progress | None, *, rebuild: bool = False, chunk_bytes: int | None = None) -> Course:
        """Point readers to the answer, and finish what was begun."""
        self._pointer.begin(rebuild=rebuild)
        history = self._store.journal.history()
        course = Course(history=history, goal=Goal(rebuild=rebuild), progress=progress, chunk_bytes=chunk_bytes)
        try:
            course.resumed = self._follow(course)
        except LostSourceError as error:
            self._begin_anew(course, error)
        return course

    def _find_continued(self, course: Course) -> Finished | None:
        """Return the epoch that the view goes on from; None if it begins a generation, or if its sources are lost."""
        newest = course.history.newest
        step = decide(course.history, course.goal, self._facts(course, "moved"))
        if not isinstance(newest, Finished) or isinstance(step, StartGeneration):
            return None
        self._check_query(newest)
        try:
            self.inputs.check(newest.intent.sources)
        except LostSourceError as error:
            self._begin_anew(course, error)
            return None
        return newest

    def _begin_anew(self, course: Course, error: LostSourceError) -> None:
        """Rebuild the view, which cannot go on from its last epoch; raises the error where that was not asked for."""
        if self._on_lost != REBUILD or course.rebuilds:
            targets = None if course.versions is None else course.versions.targets
            if damage := self.inputs.find_damage(targets):
                raise damage from error
            raise error
        course.history = self._store.journal.history(course.history)
        course.goal, course.lost, course.failed = Goal(rebuild=True), error, None

    def _advance(self, course: Course, versions: Versions) -> Report:
        """Refresh to these versions in as many epochs as it takes, from nothing where a source lost what was read."""
        course.versions = versions
        while True:
            if course.lost is not None:
                self._check_healing(course.lost, versions.targets, course.progress)
            try:
                report = self._follow(course)
            except LostSourceError as error:
                self._begin_anew(course, error)
                continue
            assert report is not None
            return with_publication(with_resumed(report, course.resumed), self._pointer.costs)

    def _follow(self, course: Course) -> Report | None:
        """Perform one step after the other, until none is left; return the report of the epochs that they ran."""
        report: Report | None = None
        in_chunks = course.arrived = False
        while not isinstance(step := self._decide(course), LookUpVersions | Nothing):
            match step:
                case ForgetCopy(copy):
                    self._store.journal.remove(copy.intent)
                case TakeBack(failed, before):
                    restore(self._store, failed.intent, before)
                case Refuse(last):
                    self._check_query(last)
                case _ if (done := self._run_epoch(course, step)) is not None:
                    in_chunks = in_chunks or isinstance(step, TakeChunk | TakeRest)
                    report = with_resumed(done, report) if isinstance(step, Advance) else done
                case _:
                    pass  # it failed by itself, which the next decision takes into account
            course.history = self._store.journal.history(course.history)
        if isinstance(step, Nothing) and not course.arrived:
            report = with_resumed(self._keep_epoch(course, step.last), report)
        if report is not None and (in_chunks or report.verdict == RESUMED):
            return merge_chunk_reports(self._store.journal.entries(), report)
        return report

    def _decide(self, course: Course) -> Step:
        """Return the next step; whether sources have other versions is looked up if the step depends on it."""
        self._check_retyped(course)
        facts = self._facts(course, "unknown" if course.versions is None else "moved")
        step = decide(course.history, course.goal, facts)
        if not isinstance(step, Advance) or step.last is None:
            return step
        if not course.arrived:
            course.pins = self._find_pins(course, step)
            reads_clock = self._mode_policy.of(step.last.intent.mode).reads_clock
            if reads_clock or any(pin.is_changed for pin in course.pins.values()):
                return step
        return decide(course.history, course.goal, replace(facts, sources="same"))

    def _check_retyped(self, course: Course) -> None:
        """Raise LostSourceError for a table that has other types because it is another one.

        The query is the same, so on_lost decides what follows, and not on_change (D-201).
        """
        newest = course.history.newest
        redefinition = self._find_redefinition(newest)
        if newest is None or course.goal.rebuild or redefinition is None or not redefinition.retyped:
            return
        try:
            self.inputs.check(newest.intent.sources)
        except LostSourceError as error:
            raise LostSourceError(f"{error} Besides, {', '.join(redefinition.retyped)}.") from error

    def _facts(self, course: Course, sources: SourceVersions) -> Facts:
        """Compare the query with that of the newest epoch."""
        redefinition = self._find_redefinition(course.history.newest)
        replaces = redefinition is not None and self._may_replace(redefinition)
        return Facts(sources=sources, redefined=redefinition is not None, replaces=replaces, failed=course.failed)

    def _find_redefinition(self, newest: Event | None) -> Redefinition | None:
        """Return what changed since an epoch, so that none can go on from it; None if nothing did."""
        if newest is None:
            return None
        redefinition = self._planner.find_redefinition(newest)
        return redefinition or find_narrowing(self._store.view, self.inputs, newest.intent)

    def _may_replace(self, redefinition: Redefinition) -> bool:
        """Return whether a new generation may begin for the changes since the last epoch."""
        return self._on_change == REBUILD or redefinition.goes_on

    def _find_pins(self, course: Course, step: TakeRest | Advance | StartGeneration) -> Mapping[str, Pin]:
        """Return the pins of the next epoch, after a check of the tables that it goes on from."""
        assert course.versions is not None
        last = step.last
        rebuild = isinstance(step, StartGeneration)
        if isinstance(last, Finished) and not rebuild:
            self._check_query(last)
            check_tables(self._store, last)
        return self._planner.pins(last, course.versions.targets, course.versions.reached, rebuild=rebuild)

    def _run_epoch(self, course: Course, step: EpochStep) -> Report | None:
        """Run the epoch of a step; return None where it failed by itself."""
        starts = isinstance(step, StartGeneration)
        course.rebuilds = course.rebuilds or starts
        plan = self._plan(course, step)
        report = self._run(plan, course.progress)
        course.failed = step if report is None else None
        course.arrived = report is not None and plan.intent.arrives and not plan.falls_short
        if starts and report is not None:
            course.goal = Goal()
        return report

    def _plan(self, course: Course, step: EpochStep) -> EpochPlan:
        """Return the plan of the epoch of a step."""
        match step:
            case Resume(begun):
                return self._planner.resume(begun)
            case TakeChunk(last):
                if course.versions is None:
                    self.inputs.check(last.intent.sources)
                if course.progress is not None and isinstance(chunk := last.intent.extent, Chunk):
                    seconds = last.report.seconds * (chunk.of - chunk.number)
                    course.progress(f"chunk {chunk.number + 1} of {chunk.of}, about {seconds:.0f} s left")
                return self._planner.next_chunk(last)
            case TakeRest(last):
                return self._planner.rest(last, self._find_pins(course, step), _clock_of(course))
            case Advance(last, at_once):
                pins = course.pins if last is not None else None
                return self._planner.next(
                    last,
                    pins or self._find_pins(course, step),
                    _clock_of(course),
                    rebuild=False,
                    chunk_bytes=None if at_once else course.chunk_bytes,
                )
            case StartGeneration(last, at_once):
                redefinition = self._find_redefinition(last)
                if course.progress is not None and redefinition is not None and self._may_replace(redefinition):
                    course.progress(f"rebuilding: {redefinition.what}")
                return self._planner.next(
                    last,
                    self._find_pins(course, step),
                    _clock_of(course),
                    rebuild=True,
                    chunk_bytes=None if at_once else course.chunk_bytes,
                    lost="" if course.lost is None else str(course.lost),
                )

    def _check_healing(self, lost: LostSourceError, targets: Targets, progress: Progress | None) -> None:
        """Say that the view is rebuilt; raises SourceError where a rebuild could not read its sources either."""
        if damage := self.inputs.find_damage(targets):
            raise damage from lost
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

    def _run(self, plan: EpochPlan, progress: Progress | None) -> Report | None:
        """Run an epoch; return None where it failed by itself and another one may not: a chunk, or an interrupted one.

        Between two chunks a source has rows that none of its versions has: a cycle, two rows of a key, a sum of zero.
        """
        intent, extent = plan.intent, plan.intent.extent
        try:
            return self._executor.run(plan, progress)
        except BY_ITSELF as error:
            if plan.is_resumed:
                what = f"epoch {intent.epoch}, which was interrupted, fails by itself. The latest versions are next"
            elif isinstance(extent, Whole | Rest):
                raise
            else:
                what = (
                    f"chunk {extent.number} of {extent.of} fails by itself. What is left of the change is taken in at "
                    "once; a greater chunk avoids this"
                )
            because = str(error).split(". ")[0].rstrip(".")  # without its advice: another epoch follows
            warnings.warn(f"view {intent.view}: {what}. The error was: {because}.", DeltafoldWarning, stacklevel=5)
            return None

    def _keep_epoch(self, course: Course, last: Finished) -> Report:
        """Keep the last epoch, and record the base versions of the views below, which may have advanced."""
        pins = course.pins
        assert pins is not None
        if base_versions(pins) != base_versions(last.intent.sources):
            self._store.journal.finish(replace(last, intent=replace(last.intent, sources=dict(pins))))
            course.history = self._store.journal.history(course.history)
        return unchanged_report(self._store.view, last, pins)

    def _check_query(self, last: Event) -> None:
        """Raise ChangedQueryError for a state of another query or in other tables; record the query's recipe."""
        if redefinition := self._find_redefinition(last):
            raise redefinition.refuse(
                "Rebuild the view (on_change: rebuild does it by itself), or restore what changed"
            )
        self._store.journal.record(self._mode_policy.current.recipe)  # earlier releases did not record it


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
        for path in sorted(folders, key=str):
            held = records_at(path).lock(f"view {folders[path]}", "refreshed", seconds)
            (own if path == folder else below).enter_context(held)
        yield below


def _clock_of(course: Course) -> str:
    """Return the time at which the queries of a run read the clock."""
    assert course.versions is not None
    return course.versions.clock
