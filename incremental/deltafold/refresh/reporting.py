"""Build the report of an epoch from its intent, its effects and its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from deltafold.algebra.results.report import (
    NOTHING_TO_DO,
    REBUILT,
    RESUMED,
    VIEW_MARK,
    EpochVerdict,
    Report,
)
from deltafold.algebra.results.upkeep import format_count
from deltafold.refresh.compatibility import Redefinition
from deltafold.refresh.epoch import RoundsByLoop
from deltafold.refresh.incremental_refresh import EpochResult
from deltafold.refresh.mode import Choice
from deltafold.refresh.state_reuse import REUSED
from deltafold.spark.job_stats import Cost
from deltafold.store.history import AnswerPin, Chunk, Event, Finished, Intent, Pin
from deltafold.telemetry import now


def unchanged_report(view: str, last: Finished, pins: Mapping[str, Pin]) -> Report:
    """Return the report of a refresh whose sources did not change."""
    versions, intent = versions_by_source(pins), last.intent
    sentence = f"{view}: {NOTHING_TO_DO}, no row changed since epoch {intent.epoch}"
    return Report(
        view=view,
        epoch=intent.epoch,
        generation=intent.generation,
        verdict=NOTHING_TO_DO,
        sentence=sentence,
        versions=versions,
        finished=now(),
        partitions=(),
    )


def unaffected_report(last: Finished, pins: Mapping[str, Pin], effect: EpochResult, cost: Cost) -> Report:
    """Return the report of a refresh whose sources changed without effect on the view; effect: what was measured."""
    intent = last.intent
    settled = "the answer that is stored is still within its tolerance"
    because = settled if effect.residuals else "the source changes do not affect this view"
    sentence = f"{intent.view}: no change: {because} (still at epoch {intent.epoch}), {describe_cost(cost)}"
    sentence += rounds_in_words(effect)
    report = replace(
        unchanged_report(intent.view, last, pins),
        sentence=sentence, rounds=dict(effect.rounds), residuals=dict(effect.residuals),
    )  # fmt: skip
    return with_cost(report, cost)


def report_of(intent: Intent, effect: EpochResult, cost: Cost, verdict: EpochVerdict) -> Report:
    """Return the report of a finished epoch."""
    versions = versions_by_source(intent.sources)
    chunk = f" (chunk {intent.extent.number} of {intent.extent.of})" if isinstance(intent.extent, Chunk) else ""
    sentence = f"{intent.view}: epoch {intent.epoch} {verdict}{chunk}, {describe_work(effect, cost, effect.commits)}"
    sentence += describe_reused(effect.paths) + rounds_in_words(effect)
    report = Report(
        view=intent.view,
        epoch=intent.epoch,
        generation=intent.generation,
        verdict=verdict,
        sentence=sentence,
        versions=versions,
        change_rows=effect.change_rows,
        groups=effect.groups,
        commits=effect.commits,
        paths=dict(effect.paths),
        finished=now(),
        partitions=effect.partitions,
        rounds=dict(effect.rounds),
        residuals=dict(effect.residuals),
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
    cost = total_cost(reports)
    effect = EpochResult(
        groups=sum(report.groups for report in reports),
        change_rows=sum(report.change_rows for report in reports),
        paths={name: path for report in reports for name, path in report.paths.items()},
        partitions=merge_partitions(reports) if first.number == 1 else None,
        rounds=rounds_of(reports),
        residuals=residuals_of(reports),
    )
    commits = sum(report.commits for report in reports)
    which = f"chunk {end.number}" if first.number == end.number else f"chunks {first.number} to {end.number}"
    verdict = last.verdict if last.verdict != NOTHING_TO_DO else begun.verdict
    versions = {n: (begun.versions.get(n, (old, new))[0], new) for n, (old, new) in last.versions.items()}
    sentence = (
        f"{last.view}: epoch {last.epoch} {verdict} ({which} of {end.of}), {describe_work(effect, cost, commits)}"
    )
    sentence += describe_reused(effect.paths) + rounds_in_words(effect)
    whole = replace(
        reports[-1], verdict=verdict, sentence=sentence, versions=versions, change_rows=effect.change_rows,
        groups=effect.groups, commits=commits, paths=effect.paths, finished=last.finished, because=begun.because,
        lost=begun.lost, partitions=effect.partitions, rounds=dict(effect.rounds), residuals=dict(effect.residuals),
    )  # fmt: skip
    return with_cost(whole, cost)


def total_cost(reports: Sequence[Report]) -> Cost:
    """Return the total cost of several epochs."""
    cost = Cost()
    for report in reports:
        cost.jobs, cost.seconds = cost.jobs + report.jobs, cost.seconds + report.seconds
        cost.rows_read, cost.rows_written = cost.rows_read + report.rows_read, cost.rows_written + report.rows_written
        for name, seconds in report.phases.items():
            cost.phases[name] = cost.phases.get(name, 0.0) + seconds
    return cost


def describe_work(effect: EpochResult, cost: Cost, commits: int) -> str:
    """Describe the work of an epoch and its cost."""
    rows, groups = format_count(effect.change_rows, "changed row"), format_count(effect.groups, "group")
    return f"{rows}, {groups}, {describe_cost(cost)}, {format_count(commits, 'Delta commit')}"


def describe_reused(paths: Mapping[str, str]) -> str:
    """Name the states that were reused, to continue a sentence."""
    taken = [name for name, path in paths.items() if path == REUSED]
    return f", {', '.join(taken)} {REUSED}" if taken else ""


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


def rounds_in_words(effect: EpochResult) -> str:
    """Return the number of rounds of each loop that had any, and its last residual, for the end of a sentence."""
    numbers = {loop: sum(map(len, phases.values())) for loop, phases in effect.rounds.items()}
    last = {loop: f" to a residual of {residuals[-1]:.3g}" for loop, residuals in effect.residuals.items() if residuals}
    return "".join(
        f", {loop} {format_count(number, 'round')}{last.get(loop, '')}" for loop, number in numbers.items() if number
    )


def with_cost(report: Report, cost: Cost) -> Report:
    """Add the cost of the refresh to a report."""
    phases = {name: round(seconds, 3) for name, seconds in cost.phases.items()}
    return replace(
        report, rows_read=cost.rows_read, rows_written=cost.rows_written, jobs=cost.jobs,
        seconds=round(cost.seconds, 3), phases=phases,
    )  # fmt: skip


def describe_cost(cost: Cost) -> str:
    """Describe a cost in a few words."""
    return f"{cost.seconds:.1f} s, {format_count(cost.jobs, 'Spark job')}"


def with_choice(report: Report, choice: Choice | None) -> Report:
    """Add the estimates behind the choice of mode to a report, or what left no choice."""
    if choice is None:
        return report
    if not choice.expected:
        said = f" ({choice.refused} cannot be maintained incrementally: see explain)" if choice.refused else ""
        return replace(report, sentence=f"{report.sentence}{said}")
    sentence = f"{report.sentence} (policy auto: {choice.because})"
    return replace(report, sentence=sentence, estimates=dict(choice.estimates), expected=dict(choice.expected))


def with_reason(report: Report, redefinition: Redefinition | None) -> Report:
    """Add the changes since the last generation to a report."""
    if redefinition is None:
        return report
    return replace(
        report, sentence=f"{report.sentence} ({redefinition.what})", because=redefinition.lines or (redefinition.what,)
    )


def with_resumed(report: Report, resumed: Report | None) -> Report:
    """Add to a report that an interrupted epoch was finished first, or a state was reused."""
    if resumed is None:
        return report
    if report.verdict == NOTHING_TO_DO:
        return resumed
    what = REBUILT if resumed.verdict == REBUILT else RESUMED
    sentence = f"{report.sentence}; before it, epoch {resumed.epoch} was {what}{describe_reused(resumed.paths)}"
    because, partitions = report.because or resumed.because, merge_partitions([resumed, report])
    lost = report.lost or resumed.lost
    return replace(report, sentence=sentence, because=because, lost=lost, partitions=partitions)


def merge_partitions(reports: Sequence[Report]) -> tuple[str, ...] | None:
    """Return the partitions that any of the epochs touched; None if those of one are unknown."""
    partitions = [report.partitions for report in reports]
    return None if None in partitions else tuple(sorted({value for values in partitions for value in values or ()}))


def with_upstream(report: Report, below: Sequence[Report]) -> Report:
    """Add the refreshes of the views below to a report."""
    moved = [f"{one.view} epoch {one.epoch} {one.verdict}" for one in below if one.verdict != NOTHING_TO_DO]
    sentence = f"{report.sentence}; below it, {', '.join(moved)}" if moved else report.sentence
    return replace(report, sentence=sentence, below=tuple(below))


def versions_by_source(pins: Mapping[str, Pin]) -> dict[str, tuple[int | None, int]]:
    """Return the versions before and after by source; a view is marked as such: they are its table's versions."""
    return {
        f"{VIEW_MARK}{name}" if isinstance(pin, AnswerPin) else name: (pin.before, pin.after)
        for name, pin in pins.items()
    }
