"""Pipelines room: results as text for people. In: landings, reports, rows. Out: plain lines and aligned columns.

Nothing here colours or draws: the same text serves a terminal, a log and a test. Control characters in data are made
visible, since a terminal would obey them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from incremental.api import Landing, Report, Verification
    from incremental.runtime.doctor import Finding
    from pipelines.catalogue import Pipeline

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NUMBER = re.compile(r"-?[0-9][0-9,]*(\.[0-9]+)?([eE][-+]?[0-9]+)?\Z")


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Aligned columns under their headers; columns of numbers to the right. None stands as NULL."""
    cells = [[cell(value) for value in row] for row in rows]
    columns = [_column(cell(title), [row[place] for row in cells]) for place, title in enumerate(headers)]
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def _column(title: str, cells: list[str]) -> list[str]:
    width = max(len(text) for text in [title, *cells])
    numbers = bool(cells) and all(text == "NULL" or _NUMBER.match(text) for text in cells)
    return [text.rjust(width) if numbers else text.ljust(width) for text in [title, "-" * width, *cells]]


def cell(value: object) -> str:
    """A value as it stands in a column: NULL for None, control characters made visible."""
    text = "NULL" if value is None else str(value)
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def landing(done: Landing) -> str:
    """One line: what a landing changed in its source."""
    if not done.landed and not done.removed:
        return f"{done.source}: nothing new has been dropped"
    parts = [f"{_count(len(done.landed), 'partition')} landed, {_count(done.rows, 'row')}"] if done.landed else []
    parts += [f"{_count(len(done.removed), 'partition')} removed"] if done.removed else []
    parts += [f"{len(done.unchanged):,} unchanged"] if done.unchanged else []
    return f"{done.source}: {', '.join(parts)} ({done.seconds:.1f} s)"


def report(done: Report) -> str:
    """The line for people, and below it from where to where the sources went and where the time went."""
    lines = [done.sentence]
    if done.versions:
        moves = (f"{name} {'-' if old is None else old} to {new}" for name, (old, new) in done.versions.items())
        lines.append(f"  source versions: {', '.join(moves)}")
    if done.phases:
        lines.append(f"  seconds: {', '.join(f'{name} {seconds:.1f}' for name, seconds in done.phases.items())}")
    return "\n".join(lines)


def run(landings: Iterable[Landing], reports: Iterable[Report]) -> str:
    """What a run did for one pipeline: its landings, then its refresh, if it had one."""
    return "\n".join([*map(landing, landings), *map(report, reports)])


def history(reports: Sequence[Report]) -> str:
    """One row per refresh, the oldest first."""
    if not reports:
        return "never refreshed"
    headers = ("epoch", "verdict", "changed", "groups", "written", "jobs", "commits", "seconds", "finished")
    return table(headers, map(_past, reports))


def _past(done: Report) -> tuple[object, ...]:
    counts = (f"{done.change_rows:,}", f"{done.groups:,}", f"{done.rows_written:,}", done.jobs, done.commits)
    return (done.epoch, done.verdict, *counts, f"{done.seconds:.1f}", done.finished)


def verification(found: Verification) -> str:
    """The sentence, and below it a few of the rows that differ."""
    return "\n".join([found.sentence, *(f"  {cell(row)}" for row in found.sample)])


def catalogue(pipelines: Mapping[str, Pipeline | Exception]) -> str:
    """One row per pipeline; one that is not declared well says why."""
    headers = ("pipeline", "policy", "sources", "schedule", "description")
    return table(headers, (_declared(name, found) for name, found in pipelines.items()))


def _declared(name: str, found: Pipeline | Exception) -> tuple[str, ...]:
    if isinstance(found, Exception):
        return (name, "-", "-", "-", first_line(found))
    told = found.declaration
    return (name, told.policy, ", ".join(told.sources), told.schedule or "-", told.description or "-")


def status(rows: Iterable[Mapping[str, Any]]) -> str:
    """One row per pipeline, from the facts of `deltafold status --json`."""
    keys = ("name", "state", "epoch", "verdict", "finished", "problem")
    headers = ("pipeline", "state", "epoch", "last refresh", "finished", "problem")
    return table(headers, ([row.get(key, "-") for key in keys] for row in rows))


def findings(found: Iterable[Finding]) -> str:
    """One line per check of the doctor, those to be mended marked."""
    return "\n".join(f"{'ok  ' if each.ok else 'MEND'}  {each.sentence}" for each in found)


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
