"""Plan one epoch of a view: its mode, its versions before and after, and the reason. Nothing is written (D-010).

A plan is immutable: the executor (executor.py) decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from deltafold.algebra.errors import SourceError, StateError
from deltafold.algebra.results.report import APPLIED, REBUILT, RESUMED, EpochVerdict
from deltafold.lake.version_diff import file_difference
from deltafold.refresh.chunks import next_chunk_of, rest_of, split_into_chunks
from deltafold.refresh.compatibility import Redefinition, check_layout, find_redefinition
from deltafold.refresh.epoch import is_marked
from deltafold.refresh.incremental_refresh import Incremental, RefreshStrategy
from deltafold.refresh.mode import Choice, ModePolicy
from deltafold.refresh.sources.upstream import Inputs, Targets, UpstreamState
from deltafold.refresh.state_reuse import reusable_pins
from deltafold.store.history import Begun, Event, Finished, Intent, Pin
from deltafold.store.view_store import Store


@dataclass(frozen=True, kw_only=True)
class EpochPlan:
    """The plan of one epoch.

    strategy: how its tables are written; intent: its number, and its versions before and after; verdict: for its
    report; choice: the mode and its estimates, under policy auto; last: the epoch before it, which remains the last one
    if no table changes; falls_short: another epoch must follow to reach the requested versions.
    """

    strategy: RefreshStrategy
    intent: Intent
    verdict: EpochVerdict
    choice: Choice | None = None
    last: Finished | None = None
    falls_short: bool = False

    @property
    def is_resumed(self) -> bool:
        """Whether it finishes an interrupted epoch."""
        return self.verdict == RESUMED

    @property
    def begins_change(self) -> bool:
        """Whether it is the first to read its change: not a later chunk, and not resumed."""
        return not self.is_resumed and self.intent.extent.begins


@dataclass(frozen=True)
class Planner:
    """Plans the epochs of one view."""

    store: Store
    mode_policy: ModePolicy
    inputs: Inputs

    def find_redefinition(self, last: Event) -> Redefinition | None:
        """Return the changes since the state of an epoch was built, None if there are none."""
        kept_by = self.mode_policy.of(last.intent.mode)
        return find_redefinition(self.store.view, self.store.journal, last, self.mode_policy.current, kept_by)

    def resume(self, last: Begun) -> EpochPlan:
        """Return the plan of an interrupted epoch, from its pinned versions; raises SourceError if these are gone."""
        self.inputs.check(last.intent.sources)
        return EpochPlan(strategy=self.mode_policy.of(last.intent.mode), intent=last.intent, verdict=RESUMED)

    def next_chunk(self, last: Finished) -> EpochPlan:
        """Return the plan of the chunk after a finished one."""
        intent, strategy = last.intent, self.mode_policy.of(last.intent.mode)
        versions = {name: self.store.table(intent.generation, name).version() for name in last.after}
        return EpochPlan(strategy=strategy, intent=next_chunk_of(intent, versions), verdict=strategy.verdict, last=last)

    def rest(self, last: Finished, pins: Mapping[str, Pin], clock: str) -> EpochPlan:
        """Return the plan that takes in at once what the finished chunks left, up to the pinned versions."""
        strategy = self.mode_policy.of(last.intent.mode)
        intent = rest_of(last.intent, self._intent(strategy, last, dict(pins), clock, None), self.inputs.of(pins))
        return EpochPlan(strategy=strategy, intent=intent, verdict=strategy.verdict, last=last)

    def pins(
        self, last: Event | None, targets: Targets, reached: Mapping[str, UpstreamState], *, rebuild: bool
    ) -> Mapping[str, Pin]:
        """Return the pins of the next epoch by source, from the last epoch's versions, or from none for a rebuild.

        Raises SourceError for versions that lack a column of the query, and for tables that were replaced.
        """
        earlier = {} if last is None or rebuild else last.intent.sources
        sources = self.mode_policy.of(None if last is None else last.intent.mode).sources
        pins = {name: self.inputs.pin(name, earlier.get(name), targets, reached) for name in sources}
        self.inputs.check_columns(pins)
        return pins

    def next(
        self,
        last: Event | None,
        pins: Mapping[str, Pin],
        clock: str,
        *,
        rebuild: bool,
        chunk_bytes: int | None,
        lost: str = "",
    ) -> EpochPlan:
        """Plan the epoch that reaches the pinned versions, or the first of several that do.

        clock: as of `Done`. chunk_bytes: bytes of source files that one epoch takes in; a larger change takes several.
        lost: of an Intent.
        """
        choice = self.mode_policy.choose(self.store.journal, self.inputs.of(pins), self.store.tuning)
        strategy, moved = choice.strategy, last is not None and choice.strategy.mode != last.intent.mode
        new_generation = rebuild or moved  # another mode requires another generation
        verdict = REBUILT if rebuild or (moved and strategy.verdict == APPLIED) else strategy.verdict
        if moved:
            pins = {name: pin.from_nothing() for name, pin in pins.items()}
        generation = self.store.unused_generation() if new_generation else None
        intent = self._intent(strategy, None if new_generation else last, dict(pins), clock, generation)
        losses = (0 if last is None else last.intent.losses) + bool(lost)
        intent = replace(intent, lost=lost, losses=losses)
        continued = last if isinstance(last, Finished) and not new_generation else None
        plan = EpochPlan(strategy=strategy, intent=intent, verdict=verdict, choice=choice, last=continued)
        if new_generation and (earlier := reusable_pins(intent, last, self.inputs, strategy.convertible, chunk_bytes)):
            return replace(plan, intent=replace(intent, sources=earlier), falls_short=True)
        if chunk_bytes is not None and intent.mode == Incremental.mode:
            return replace(plan, intent=split_into_chunks(intent, self.inputs.of(pins), chunk_bytes))
        return plan

    def _intent(
        self, strategy: RefreshStrategy, last: Event | None, pins: dict[str, Pin], clock: str, generation: int | None
    ) -> Intent:
        """Return the intent of the next epoch, of a new generation if last is None; raises if it cannot be begun."""
        generation = generation or (1 if last is None else last.intent.generation)
        epoch = 1 if last is None else last.intent.epoch + 1
        buckets = self._buckets(pins) if last is None else last.intent.buckets
        tables = {name: self.store.table(generation, name).version() for name in strategy.tables}
        fingerprint, mode, states = strategy.fingerprint, strategy.mode, strategy.states
        kept = {} if last is None else tables
        intent = Intent(
            view=self.store.view,
            generation=generation,
            epoch=epoch,
            fingerprint=fingerprint,
            buckets=buckets,
            sources=pins,
            tables=kept,
            mode=mode,
            states=states,
            clock=clock if strategy.reads_clock else "",
        )
        intent = replace(intent, losses=0 if last is None else last.intent.losses)
        # a constraint first checked in this epoch is not relied on in it
        facts = [fact.text for fact in strategy.constraints]
        checked = () if last is None or not kept else last.intent.constraints
        intent = replace(intent, constraints=facts, relied=[text for text in facts if text in checked])
        self._check_invariant(strategy, intent)
        if not isinstance(last, Finished) or last.after != tables:
            self._check_marks(strategy, intent)
        if last is not None:
            check_layout(self.store, generation, strategy)
        return intent

    def _buckets(self, pins: Mapping[str, Pin]) -> int:
        """Return the number of buckets of a new state, by the size of its sources."""
        size = sum(source.after.table.size()[1] for source in self.inputs.of(pins).values())
        tuning = self.store.tuning
        return max(1, min(tuning.buckets, size // tuning.bucket_bytes))

    def _check_marks(self, strategy: RefreshStrategy, intent: Intent) -> None:
        """Raise StateError for an epoch whose mark is in the tables already: Delta would silently skip its writes.

        It also finds what `check_tables` cannot: tables of a generation that the journal lost, and an epoch without
        rows. That one finds rows of other programs, which bear no mark.
        """
        tables = {name: self.store.table(intent.generation, name) for name in strategy.tables}
        if any(is_marked(table, intent, name) for name, table in tables.items()):
            raise StateError(
                f"view {intent.view}: its tables are ahead of its journal, which lacks epoch {intent.epoch}. "
                "Rebuild the view."
            )

    def _check_invariant(self, strategy: RefreshStrategy, intent: Intent) -> None:
        read = self.mode_policy.current.recipe.sources
        for name in sorted(strategy.invariant):
            pin = intent.sources[name]
            if pin.before is None or pin.before == pin.after:
                continue
            changed = file_difference(self.inputs.tables[name], pin.before, pin.after)
            if not changed.empty and not changed.frame(list(read.get(name, ())), consolidate=True).isEmpty():
                before, after = (self.inputs.tables[name].rows(version) for version in (pin.before, pin.after))
                rows = "" if before is None or after is None else f", from {before:,} to {after:,} rows"
                raise SourceError(
                    f"source {name}: declared invariant, but changed between its versions {pin.before} and {pin.after}"
                    f"{rows}. Rebuild the view {intent.view} to take the change in, or restore the source: its rows, "
                    "or its files, which the next run lands again."
                )
