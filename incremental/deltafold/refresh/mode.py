"""Choose the mode of a view's next epoch: incremental or full recompute (D-016).

Policy auto chooses the cheaper mode by the compiler's estimates (compiler/cost.py), corrected by the times of past
epochs of the view on this machine. A change of mode starts a new generation, so the other mode has to be clearly
cheaper. Every other policy has one mode.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from deltafold.algebra.program import Estimate, Program, Volume
from deltafold.algebra.recipe import Current
from deltafold.algebra.results.notes import REUSED
from deltafold.algebra.results.report import RESUMED
from deltafold.algebra.results.sentences import chosen_mode
from deltafold.algebra.tuning import CostRates, Tuning
from deltafold.lake.protocol import VersionedTable
from deltafold.lake.version_diff import SourceVersions
from deltafold.refresh.full_recompute import FullRecompute
from deltafold.refresh.incremental_refresh import Incremental, RefreshStrategy
from deltafold.refresh.state_reuse import COPIED
from deltafold.store.history import Event, Finished, Whole
from deltafold.store.journal import Journal
from deltafold.store.pinned_tables import is_pinned


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The chosen strategy; if there was a choice, the estimated and the corrected seconds by mode.

    share: of the time of the chosen mode, what the other mode would have to take less than. refused: the node for which
    there was no choice; empty where the user chose.
    """

    strategy: RefreshStrategy
    estimates: Mapping[str, float] = field(default_factory=dict[str, float])
    expected: Mapping[str, float] = field(default_factory=dict[str, float])
    share: float = 1.0
    refused: str = ""

    @property
    def because(self) -> str:
        """The reason in words; empty if there was no choice."""
        return chosen_mode(self.strategy.mode, self.expected, self.share)


class ModePolicy(Protocol):
    """The modes in which a view may be maintained, and its current query."""

    @property
    def current(self) -> Current:
        """The query as it is now."""
        ...

    def of(self, mode: str | None) -> RefreshStrategy:
        """Return the strategy of a mode; of the preferred one for None."""
        ...

    def choose(self, journal: Journal, sources: Mapping[str, SourceVersions], tuning: Tuning) -> Choice:
        """Choose the mode of the next epoch, from the past epochs and the change between the pinned versions."""
        ...


@dataclass(frozen=True)
class Fixed:
    """A policy with one mode; refused: the node that leaves no other (Choice)."""

    current: Current
    strategy: RefreshStrategy
    refused: str = ""

    def of(self, mode: str | None) -> RefreshStrategy:
        """Return the only one."""
        return self.strategy

    def choose(self, journal: Journal, sources: Mapping[str, SourceVersions], tuning: Tuning) -> Choice:
        """Return the only one."""
        return Choice(strategy=self.strategy, refused=self.refused)


@dataclass(frozen=True)
class CostBased:
    """A policy that chooses the mode with the lower expected time."""

    current: Current
    incremental: Incremental
    recomputed: FullRecompute
    estimate: Callable[[Program, Volume, CostRates], Estimate]

    def of(self, mode: str | None) -> RefreshStrategy:
        """Return the strategy of a mode; incremental by default."""
        return self.recomputed if mode == self.recomputed.mode else self.incremental

    def choose(self, journal: Journal, sources: Mapping[str, SourceVersions], tuning: Tuning) -> Choice:
        """Choose the last epoch's mode (at first recompute, without state), unless the other is clearly cheaper.

        Going back to a recompute that was timed takes less: no state has to be loaded for it.
        """
        entries = journal.entries(tuning.recent_epochs)
        volume = replace(self._volume(sources, tuning), rounds=recent_rounds(entries, tuning), levels=levels(entries))
        estimate = self.estimate(self.incremental.program, volume, tuning.rates)
        estimates = {self.incremental.mode: estimate.refresh, self.recomputed.mode: estimate.recompute}
        factors = corrections(entries, tuning)
        # a slow machine slows both modes; a fast one is not assumed for the mode never measured
        unknown = max([1.0, *factors.values()])
        expected = {mode: seconds * factors.get(mode, unknown) for mode, seconds in estimates.items()}
        if self.recomputed.mode not in factors:
            most = first_load_ratios(estimate, entries)
            if self.incremental.mode in factors:
                most += trial_bounds(estimate, entries, expected[self.incremental.mode], tuning)
            expected[self.recomputed.mode] = min([expected[self.recomputed.mode], *most])
        last = entries[-1].intent.mode if entries else self.recomputed.mode
        shares = dict.fromkeys(expected, tuning.switch_below) | {last: 1.0}
        if last != self.recomputed.mode and self.recomputed.mode in factors:
            shares[self.recomputed.mode] = tuning.recompute_below
        weighed = {mode: seconds / shares[mode] for mode, seconds in expected.items()}
        mode = min(weighed, key=lambda mode: weighed[mode])
        return Choice(strategy=self.of(mode), estimates=estimates, expected=expected, share=min(shares.values()))

    def _volume(self, sources: Mapping[str, SourceVersions], tuning: Tuning) -> Volume:
        whole = {name: float(source.after.table.size()[1]) for name, source in sources.items()}
        change = {
            name: self._changed_bytes(name, source, whole[name] * tuning.change_share)
            for name, source in sources.items()
        }
        return Volume(
            total=whole,
            change=change,
            columns={name: len(source.after.schema) for name, source in sources.items()},
        )

    def _changed_bytes(self, name: str, source: SourceVersions, expected: float) -> float:
        if name in self.incremental.invariant:
            return 0.0
        return expected if source.before is None else float(source.difference.bytes)


def predict_choice(
    mode_policy: ModePolicy,
    read: Sequence[str],
    journal: Journal,
    tables: Mapping[str, VersionedTable],
    tuning: Tuning,
) -> Choice:
    """Predict how the next epoch will run, with the sources as they are now."""
    last = journal.last()
    pins = {} if last is None else last.intent.sources
    versions = {name: version for name in read if name in tables and (version := tables[name].version()) is not None}
    if len(versions) < len(read):  # some source has no table yet
        return Choice(strategy=mode_policy.of(None if last is None else last.intent.mode))
    before = {name: pin.after for name, pin in pins.items() if name in versions and is_pinned(pin, tables[name])}
    expected = {name: SourceVersions.of(tables[name], before.get(name), version) for name, version in versions.items()}
    return mode_policy.choose(journal, expected, tuning)


def corrections(entries: Sequence[Event], tuning: Tuning) -> dict[str, float]:
    """Return by mode the median ratio of measured to estimated seconds of its latest epochs, without first loads.

    A recompute that created its table counts only until a later one is timed, and without the time for the table.
    """
    taken: dict[str, list[float]] = {}
    created: dict[str, list[float]] = {}
    for entry in entries:
        if not isinstance(entry, Finished):
            continue
        report, mode = entry.report, entry.intent.mode
        if not report.estimates.get(mode) or is_first_load(entry) or report.verdict == RESUMED:
            continue
        if entry.intent.epoch > 1:
            taken.setdefault(mode, []).append(report.seconds / report.estimates[mode])
        else:
            seconds = max(report.seconds / 2, report.seconds - tuning.new_table_seconds)
            created.setdefault(mode, []).append(seconds / report.estimates[mode])
    return {mode: statistics.median(ratios[-tuning.timed_epochs :]) for mode, ratios in {**created, **taken}.items()}


def recent_rounds(entries: Sequence[Event], tuning: Tuning) -> dict[str, float]:
    """Return, by loop, the median number of rounds of its latest refreshes; first loads are left out."""
    taken: dict[str, list[int]] = {}
    for entry in entries:
        if isinstance(entry, Finished) and entry.intent.mode == Incremental.mode and not is_first_load(entry):
            for loop, phases in entry.report.rounds.items():
                taken.setdefault(loop, []).append(sum(map(len, phases.values())))
    return {loop: statistics.median(numbers[-tuning.timed_epochs :]) for loop, numbers in taken.items()}


def levels(entries: Sequence[Event]) -> dict[str, float]:
    """Return, by loop, the number of levels that its last first load had."""
    loads = [entry.report for entry in entries if isinstance(entry, Finished) and is_first_load(entry)]
    return {loop: float(sum(map(len, phases.values()))) for report in loads for loop, phases in report.rounds.items()}


def trial_bounds(estimate: Estimate, entries: Sequence[Event], refresh: float, tuning: Tuning) -> list[float]:
    """Return what a recompute that was never timed is expected to take, where it may be tried; refresh: its seconds.

    A mistake costs a recompute and, to return, a first load. It may be made where a load takes hardly longer than a
    refresh; and once the refreshes have lost as much, each what it took beyond the least estimate of a recompute.
    """
    reports = [(is_first_load(entry), entry.report) for entry in entries if isinstance(entry, Finished)]
    load = max((report.seconds for first, report in reports if first), default=0.0)
    if load <= tuning.trial_loads * refresh:
        return [tuning.trial_factor * estimate.least]
    lost = sum(max(0.0, report.seconds - estimate.least) for first, report in reports if not first)
    return [estimate.least] if lost >= 2 * (load - refresh) else []


def first_load_ratios(latest: Estimate, entries: Sequence[Event]) -> list[float]:
    """Return upper bounds for a recompute from first loads, which also run the whole query, and write states.

    First loads in chunks, and those with reused or copied states, give none.
    """
    loads = [entry for entry in entries if is_first_load(entry) and isinstance(entry.intent.extent, Whole)]
    reports = [entry.report for entry in loads if isinstance(entry, Finished)]
    whole = [
        report for report in reports if report.verdict != RESUMED and not {REUSED, COPIED} & set(report.paths.values())
    ]
    timed = [(report.seconds, report.estimates.get(FullRecompute.mode)) for report in whole]
    return [latest.recompute * seconds / estimate for seconds, estimate in timed if estimate]


def is_first_load(entry: Event) -> bool:
    """Return whether an epoch is the first of its generation, or its first chunk."""
    return entry.intent.mode == Incremental.mode and entry.intent.epoch == 1
