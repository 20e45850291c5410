"""Build the report of an epoch from its intent, its effects and its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from deltafold.algebra.results.notes import (
    REUSED,
    ChunksRan,
    EpochRan,
    FinishedBefore,
    ModeChosen,
    Note,
    NotIncremental,
    Redefined,
    SourcesUnchanged,
    ViewUnaffected,
)
from deltafold.algebra.results.report import (
    NOTHING_TO_DO,
    REBUILT,
    RESUMED,
    VIEW_MARK,
    EpochVerdict,
    Report,
)
from deltafold.refresh.compatibility import Redefinition
from deltafold.refresh.epoch import RoundsByLoop
from deltafold.refresh.incremental_refresh import EpochResult
from deltafold.refresh.mode import Choice
from deltafold.spark.job_stats import Cost
from deltafold.store.history import AnswerPin, Chunk, Event, Finished, Intent, Pin
from deltafold.telemetry import now


def unchanged_report(view: str, last: Finished, pins: Mapping[str, Pin], note: Note | None = None) -> Report:
    """Return the report of a refresh that keeps an epoch."""
    return Report(
        view=view,
        epoch=last.intent.epoch,
        generation=last.intent.generation,
        verdict=NOTHING_TO_DO,
        versions=versions_by_source(pins),
        finished=now(),
        partitions=(),
        notes=(note or SourcesUnchanged(),),
    )


def unaffected_report(last: Finished, pins: Mapping[str, Pin], effect: EpochResult, cost: Cost) -> Report:
    """Return the report of a refresh whose sources changed without effect on the view; effect: what was measured."""
    report = replace(
        unchanged_report(last.intent.view, last, pins),
        rounds=dict(effect.rounds),
        residuals=dict(effect.residuals),
        feeds=effect.feeds,
        notes=(ViewUnaffected(within_tolerance=bool(effect.residuals)),),
    )
    return with_cost(report, cost)


def report_of(intent: Intent, effect: EpochResult, cost: Cost, verdict: EpochVerdict) -> Report:
    """Return the report of a finished epoch."""
    chunk = intent.extent
    ran = ChunksRan(first=chunk.number, last=chunk.number, of=chunk.of) if isinstance(chunk, Chunk) else EpochRan()
    report = Report(
        view=intent.view,
        epoch=intent.epoch,
        generation=intent.generation,
        verdict=verdict,
        versions=versions_by_source(intent.sources),
        change_rows=effect.change_rows,
        groups=effect.groups,
        commits=effect.commits,
        paths=dict(effect.paths),
        finished=now(),
        partitions=effect.partitions,
        rounds=dict(effect.rounds),
        residuals=dict(effect.residuals),
        feeds=effect.feeds,
        notes=(ran,),
    )
    return with_cost(report, cost)


def merge_chunk_reports(entries: Sequence[Event], last: Report) -> Report:
    """Merge the reports of the chunks of a change, as far as the journal still has them, into one.

    If it lacks the first, the touched partitions are unknown.
    """
    chunks = list[tuple[Chunk, Report]]()
    for entry in reversed(entries):
        if isinstance(entry, Finished) and entry.taken_back:
            continue
        chunk = entry.intent.extent
        if not (isinstance(chunk, Chunk) and isinstance(entry, Finished)):
            break
        if chunks and chunk.number >= chunks[0][0].number:
            break
        chunks.insert(0, (chunk, entry.report))
    if not chunks:
        return last
    (first, begun), (end, _), reports = chunks[0], chunks[-1], [report for _, report in chunks]
    verdict = last.verdict if last.verdict != NOTHING_TO_DO else begun.verdict
    versions = {n: (begun.versions.get(n, (old, new))[0], new) for n, (old, new) in last.versions.items()}
    whole = replace(
        reports[-1],
        verdict=verdict,
        versions=versions,
        change_rows=sum(report.change_rows for report in reports),
        groups=sum(report.groups for report in reports),
        commits=sum(report.commits for report in reports),
        paths={name: path for report in reports for name, path in report.paths.items()},
        finished=last.finished,
        because=begun.because,
        lost=begun.lost,
        partitions=merge_partitions(reports) if first.number == 1 else None,
        rounds=rounds_of(reports),
        residuals=residuals_of(reports),
        feeds=tuple(dict.fromkeys(name for report in reports for name in report.feeds)),
        notes=(ChunksRan(first=first.number, last=end.number, of=end.of),),
    )
    return with_cost(whole, total_cost(reports))


def total_cost(parts: Sequence[Report | Cost]) -> Cost:
    """Return the total cost of several epochs, and of work beside them."""
    cost = Cost()
    for part in parts:
        cost.jobs, cost.seconds = cost.jobs + part.jobs, cost.seconds + part.seconds
        cost.rows_read, cost.rows_written = cost.rows_read + part.rows_read, cost.rows_written + part.rows_written
        for name, seconds in part.phases.items():
            cost.phases[name] = cost.phases.get(name, 0.0) + seconds
    return cost


def rounds_of(reports: Sequence[Report]) -> RoundsByLoop:
    """Return the rounds of several epochs, one after the other."""
    rounds: dict[str, dict[str, list[int]]] = {}
    for report in reports:
        for loop, phases in report.rounds.items():
            by_phase = rounds.setdefault(loop, {})
            for phase, rows in phases.items():
                by_phase[phase] = by_phase.get(phase, []) + rows
    return rounds


def residuals_of(reports: Sequence[Report]) -> dict[str, list[float]]:
    """Return the residuals of several epochs, one after the other."""
    by_loop: dict[str, list[float]] = {}
    for report in reports:
        for loop, residuals in report.residuals.items():
            by_loop.setdefault(loop, []).extend(residuals)
    return by_loop


def with_cost(report: Report, cost: Cost) -> Report:
    """Add the cost of the refresh to a report."""
    phases = {name: round(seconds, 3) for name, seconds in cost.phases.items()}
    return replace(
        report, rows_read=cost.rows_read, rows_written=cost.rows_written, jobs=cost.jobs,
        seconds=round(cost.seconds, 3), phases=phases,
    )  # fmt: skip


def with_publication(report: Report, costs: Sequence[Cost]) -> Report:
    """Add the cost of the plain tables that were written after the epochs, each in one commit (D-193)."""
    return replace(with_cost(report, total_cost([report, *costs])), commits=report.commits + len(costs))


def with_choice(report: Report, choice: Choice | None) -> Report:
    """Add the estimates behind the choice of mode to a report, or what left no choice."""
    if choice is None:
        return report
    if not choice.expected:
        return with_note(report, NotIncremental(node=choice.refused)) if choice.refused else report
    report = replace(report, estimates=dict(choice.estimates), expected=dict(choice.expected))
    return with_note(report, ModeChosen(mode=choice.strategy.mode, share=choice.share))


def with_reason(report: Report, redefinition: Redefinition | None) -> Report:
    """Add the changes since the last generation to a report."""
    if redefinition is None:
        return report
    reasons = redefinition.lines or (redefinition.what,)
    return with_note(replace(report, because=reasons), Redefined(what=redefinition.what))


def with_resumed(report: Report, resumed: Report | None) -> Report:
    """Add to a report that an interrupted epoch was finished first, or a state was reused, and what that cost."""
    if resumed is None:
        return report
    if report.verdict == NOTHING_TO_DO:
        return resumed
    if not _covers(report, resumed):
        report = replace(with_cost(report, total_cost([resumed, report])), commits=resumed.commits + report.commits)
    what = REBUILT if resumed.verdict == REBUILT else RESUMED
    reused = tuple(name for name, path in resumed.paths.items() if path == REUSED)
    report = with_note(report, FinishedBefore(epoch=resumed.epoch, verdict=what, reused=reused))
    because, partitions = report.because or resumed.because, merge_partitions([resumed, report])
    lost = report.lost or resumed.lost
    return replace(report, because=because, lost=lost, partitions=partitions)


def _covers(report: Report, earlier: Report) -> bool:
    """Return whether a report is that of several chunks, and the epoch of an earlier one is among them."""
    chunks = next((note for note in report.notes if isinstance(note, ChunksRan)), None)
    if chunks is None or report.generation != earlier.generation:
        return False
    return earlier.epoch >= report.epoch - (chunks.last - chunks.first)


def merge_partitions(reports: Sequence[Report]) -> tuple[str, ...] | None:
    """Return the partitions that any of the epochs touched; None if those of one are unknown."""
    partitions = [report.partitions for report in reports]
    return None if None in partitions else tuple(sorted({value for values in partitions for value in values or ()}))


def with_note(report: Report, note: Note) -> Report:
    """Add a note to a report."""
    return replace(report, notes=(*report.notes, note))


def with_upstream(report: Report, below: Sequence[Report]) -> Report:
    """Add the refreshes of the views below to a report."""
    return replace(report, below=tuple(below))


def versions_by_source(pins: Mapping[str, Pin]) -> dict[str, tuple[int | None, int]]:
    """Return the versions before and after by source; a view is marked as such: they are its table's versions."""
    return {
        f"{VIEW_MARK}{name}" if isinstance(pin, AnswerPin) else name: (pin.before, pin.after)
        for name, pin in pins.items()
    }
