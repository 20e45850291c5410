"""Render results as one sentence for a terminal: the only place that turns them into words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, assert_never

from deltafold.algebra.results.formats import format_bytes, format_count, format_duration
from deltafold.algebra.results.notes import (
    REUSED,
    Branched,
    ChunksRan,
    EarlierEpoch,
    EpochRan,
    EpochTakenBack,
    FilesGone,
    FinishedBefore,
    ModeChosen,
    Note,
    NotIncremental,
    ReadAsItIs,
    Rebucketed,
    Redefined,
    RolledBack,
    SourcesUnchanged,
    Subject,
    ViewUnaffected,
)

if TYPE_CHECKING:
    from deltafold.algebra.results.report import Report, Verification
    from deltafold.algebra.results.upkeep import Status, Upkeep


def sentence_of(report: Report) -> str:
    """Return the sentence of a report with notes."""
    moved = [f"{each.view} epoch {each.epoch} {each.verdict}" for each in report.below if each.has_effect]
    below = f"; below it, {', '.join(moved)}" if moved else ""
    return f"{report.view}: {''.join(_words(report, note) for note in report.notes)}{below}"


def sentence_of_verification(verified: Verification) -> str:
    """Return the sentence of a verification."""
    what = "equals the batch query"
    if verified.missing or verified.extra:
        what = f"differs: {format_count(verified.missing, 'row')} missing, {verified.extra:,} extra"
    part = f" in a sample of {verified.sampled}" if verified.sampled else ""
    measured = ""
    if verified.residual is not None and verified.allowed is not None:
        bound = "" if verified.bound is None else f"; distance from the fixpoint at most {verified.bound:.3g}"
        stray = f", {format_count(verified.unmatched, 'key')} without a match" if verified.unmatched else ""
        measured = f"; residual {verified.residual:.3g}, at most {verified.allowed:.3g} is allowed{bound}{stray}"
    return f"{verified.view}: {what} at epoch {verified.epoch}{part} ({format_count(verified.rows, 'row')}){measured}"


def sentence_of_upkeep(done: Upkeep) -> str:
    """Return the sentence of an upkeep."""
    tables = done.tables.values()
    rewritten = [name for name, table in done.tables.items() if table.partitions]
    before, after = (sum(table.files[side] for table in tables) for side in (0, 1))
    parts = [f"{', '.join(rewritten)} compacted, {before} files to {after}" if rewritten else "nothing to compact"]
    parts.append(
        f"{sum(table.removed for table in tables)} old files removed, {format_bytes(sum(t.freed for t in tables))}"
    )
    parts += [f"generation {', '.join(map(str, done.generations))} removed"] if done.generations else []
    parts += [f"{done.entries} journal entries removed"] if done.entries else []
    first = f"{done.view}: " if done.grown is None else f"{done.grown.sentence}; "
    return f"{first}{'; '.join(parts)}; {done.seconds:.1f} s"


def sentence_of_status(status: Status) -> str:
    """Return the sentence of a status."""
    if status.epoch is None:
        return f"{status.view}: never refreshed"
    behind = sum(lag.versions > 0 and lag.rows != 0 for lag in status.lag.values())
    state = f"behind {format_count(behind, 'source')}" if behind else "current"
    if status.problems:
        state = "a source is gone"
    age = "" if status.age is None else f", {format_duration(status.age)} old"
    interrupted = "" if status.unfinished is None else f", epoch {status.unfinished} interrupted"
    return f"{status.view}: epoch {status.epoch}{age}, {state}{interrupted}"


def chosen_mode(mode: str, expected: Mapping[str, float], share: float) -> str:
    """Return why a mode was chosen by its expected seconds; empty if there was no choice."""
    if not expected:
        return ""
    estimated = f"estimated refresh {expected['incremental']:.1f} s, full recompute {expected['recompute']:.1f} s"
    if expected[mode] <= min(expected.values()):
        return estimated
    return f"{estimated}; {mode} until the other takes less than {100 * share:.0f} % of its time"


def _words(report: Report, note: Note) -> str:
    """Return the part of a sentence that is a note; additions begin with what separates them."""
    match note:
        case FilesGone(versions=versions):
            missing = _name_versions(versions)
            return f"; files of {missing} are gone: a refresh that reads them is refused until the view is rebuilt"
        case NotIncremental(node=node):
            return f" ({node} cannot be maintained incrementally: see explain)"
        case ModeChosen(mode=mode, share=share):
            return f" (policy auto: {chosen_mode(mode, report.expected, share)})"
        case Redefined(what=what):
            return f" ({what})"
        case FinishedBefore(epoch=epoch, verdict=verdict, reused=reused):
            return f"; before it, epoch {epoch} was {verdict}{_name_reused(reused)}"
        case _:
            return _subject_words(report, note)


def _subject_words(report: Report, note: Subject) -> str:
    """Return what a report is about; the first epoch of a later generation, as where the mode changed, says so."""
    epoch = f"epoch {report.epoch}"
    copy = f"as {epoch} of generation {report.generation}, {report.seconds:.1f} s"
    match note:
        case EpochRan():
            begins = report.epoch == 1 and report.generation > 1 and report.verdict != "rebuilt"
            which = f"{epoch} of generation {report.generation}" if begins else epoch
            return f"{which} {report.verdict}, {_work(report)}"
        case ChunksRan(first=first, last=last, of=of):
            which = f"chunk {last}" if first == last else f"chunks {first} to {last}"
            return f"{epoch} {report.verdict} ({which} of {of}), {_work(report)}"
        case SourcesUnchanged():
            return f"{report.verdict}, no row changed since {epoch}"
        case ViewUnaffected(within_tolerance=within):
            kept = "the answer that is stored is still within its tolerance"
            because = kept if within else "the source changes do not affect this view"
            return f"no change: {because} (still at {epoch}), {_cost(report)}{_rounds(report)}"
        case EarlierEpoch():
            return f"{epoch} is at the requested versions"
        case ReadAsItIs(missed=missed):
            return f"read as it is, at {epoch}" + (f", not at {_name_versions(missed)}" if missed else "")
        case EpochTakenBack():
            return f"{epoch} {report.verdict}, as it failed: the view is as before it"
        case RolledBack(epoch=number, generation=generation):
            return f"back to epoch {number} of generation {generation}, {copy}"
        case Rebucketed(epoch=number, generation=generation, buckets=buckets):
            return f"epoch {number} of generation {generation} in {format_count(buckets, 'bucket')}, {copy}"
        case Branched(view=view, epoch=number):
            return f"branched from epoch {number} of view {view}"
    assert_never(note)


def _name_versions(versions: Mapping[str, int]) -> str:
    return ", ".join(f"version {version} of source {source}" for source, version in versions.items())


def _work(report: Report) -> str:
    """Return the work of an epoch and its cost."""
    rows, groups = format_count(report.change_rows, "changed row"), format_count(report.groups, "group")
    reused = _name_reused([name for name, path in report.paths.items() if path == REUSED])
    commits = format_count(report.commits, "Delta commit")
    return f"{rows}, {groups}, {_cost(report)}, {commits}{reused}{_rounds(report)}"


def _cost(report: Report) -> str:
    return f"{report.seconds:.1f} s, {format_count(report.jobs, 'Spark job')}"


def _name_reused(states: Sequence[str]) -> str:
    return f", {', '.join(states)} {REUSED}" if states else ""


def _rounds(report: Report) -> str:
    """Return the number of rounds of each loop that had any, and its last residual."""
    numbers = {loop: sum(map(len, phases.values())) for loop, phases in report.rounds.items()}
    last = {loop: f" to a residual of {residuals[-1]:.3g}" for loop, residuals in report.residuals.items() if residuals}
    return "".join(
        f", {loop} {format_count(number, 'round')}{last.get(loop, '')}" for loop, number in numbers.items() if number
    )
