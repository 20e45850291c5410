"""Render landings, reports and rows as plain lines and aligned columns, and show progress.

No colours: the same text serves a terminal, a log and a test. Control characters in data are escaped, since a terminal
would execute them. Progress is written to standard error, so that standard output contains only the result.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from deltafold.algebra.errors import DeltafoldWarning
from deltafold.algebra.results.formats import format_bytes, format_count, format_duration
from deltafold.pipelines.catalogue import is_package

if TYPE_CHECKING:
    from deltafold.api import Landing, Report, Upkeep, Verification
    from deltafold.pipelines.catalogue import Pipeline
    from deltafold.pipelines.folder_project import DeclaredProject
    from deltafold.spark.doctor import Finding

Say = Callable[[str], None]
DATASETS_SHOWN = 12

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NUMBER = re.compile(r"-?[0-9][0-9,]*(\.[0-9]+)?([eE][-+]?[0-9]+)?\Z")


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Align columns under their headers; numbers to the right, None as NULL."""
    cells = [[cell(value) for value in row] for row in rows]
    columns = [_column(cell(title), [row[number] for row in cells]) for number, title in enumerate(headers)]
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def _column(title: str, cells: list[str]) -> list[str]:
    width = max(len(text) for text in [title, *cells])
    numbers = bool(cells) and all(text == "NULL" or _NUMBER.match(text) for text in cells)
    return [text.rjust(width) if numbers else text.ljust(width) for text in [title, "-" * width, *cells]]


def cell(value: object) -> str:
    """Render a value for a column: NULL for None, control characters escaped."""
    text = "NULL" if value is None else str(value)
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def render_landing(done: Landing) -> str:
    """Render a landing as one line: partitions landed, removed and unchanged, and rows in quarantine."""
    total = sum(done.quarantined.values())
    quarantined = [f"{format_count(total, 'row')} in quarantine"] if total else []
    if not done.landed and not done.removed:
        return f"{done.source}: {', '.join(['no new rows' if done.stream else 'no new files', *quarantined])}"
    parts: list[str] = []
    if done.stream:
        parts = [f"{format_count(done.rows, 'row')} landed"]
    elif done.landed:
        parts = [f"{format_count(len(done.landed), 'partition')} landed, {format_count(done.rows, 'row')}"]
    parts += [f"{format_count(len(done.removed), 'partition')} removed"] if done.removed else []
    parts += [f"{len(done.unchanged):,} unchanged"] if done.unchanged else []
    parts += [f"{format_count(done.late, 'late row')} left out"] if done.late else []
    malformed = done.left_out - done.late
    parts += [f"{format_count(malformed, 'malformed row')} left out"] if malformed > 0 else []
    parts += [f"{format_count(done.kept, 'closed row')} kept"] if done.kept else []
    return f"{done.source}: {', '.join([*parts, *quarantined])} ({done.seconds:.1f} s)"


def render_replays(name: str, done: Sequence[Landing]) -> str:
    """Render replays of a pipeline: by source, partitions landed and rows that stay in quarantine; what is next."""
    lines: list[str] = []
    for landing in done:
        changed = landing.landed or landing.removed
        lines.append(render_landing(landing) if changed else f"{landing.source}: no rows in quarantine")
    if any(landing.landed or landing.removed for landing in done):
        lines.append(f"The next run brings them into the answer: deltafold run {name}")
    return "\n".join(lines)


def render_report(done: Report) -> str:
    """Render a report: its sentence, the versions of the sources, and the seconds of each phase."""
    lines = [done.sentence, *(f"  because: {reason}" for reason in done.because)]
    if done.versions:
        moves = (
            f"{name} {'-' if old is None else old} to {new}"
            + (" by its change data feed" if name in done.feeds else "")
            for name, (old, new) in done.versions.items()
        )
        lines.append(f"  source versions: {', '.join(moves)}")
    if done.phases:
        lines.append(f"  seconds: {', '.join(f'{name} {seconds:.1f}' for name, seconds in done.phases.items())}")
    return "\n".join(lines)


def render_run(landings: Iterable[Landing], reports: Iterable[Report]) -> str:
    """Render a run of one pipeline: its landings, then its refreshes."""
    return "\n".join([*map(render_landing, landings), *map(render_report, reports)])


def render_history(reports: Sequence[Report]) -> str:
    """Render one row per refresh, the oldest first."""
    if not reports:
        return "never refreshed"
    counts = ("changed", "groups", "written", "jobs", "commits")
    return table(("generation", "epoch", "verdict", *counts, "seconds", "finished"), map(_past, reports))


def _past(done: Report) -> tuple[object, ...]:
    counts = (f"{done.change_rows:,}", f"{done.groups:,}", f"{done.rows_written:,}", done.jobs, done.commits)
    return (done.generation, done.epoch, done.verdict, *counts, f"{done.seconds:.1f}", done.finished)


def render_verification(done: Verification) -> str:
    """Render the sentence of a verification, and a few of the rows that differ."""
    return "\n".join([done.sentence, *(f"  {cell(row)}" for row in done.sample)])


def render_catalogue(pipelines: Mapping[str, Pipeline | DeclaredProject | Exception], folder: Path) -> str:
    """Render one row per pipeline; for an invalid one the reason; where there is none, how to get one."""
    if not pipelines:
        new = "Create one: deltafold new NAME"
        if is_package(folder):
            new = "It is a Python package, so create one elsewhere: deltafold --pipelines DIR new NAME"
        return f"There are no pipelines in {folder}. {new}. Or see the demo: deltafold demo."
    headers = ("pipeline", "policy", "sources", "schedule", "description")
    return table(headers, (_describe(name, pipeline) for name, pipeline in pipelines.items()))


def _describe(name: str, pipeline: Pipeline | DeclaredProject | Exception) -> tuple[str, ...]:
    if isinstance(pipeline, Exception):
        return (name, "-", "-", "-", first_line_of(pipeline))
    declared, description = pipeline.declaration, pipeline.declaration.description
    if files := getattr(pipeline, "datasets", ()):
        datasets = f"{format_count(len(files), 'dataset')}: {', '.join(file.stem for file in files)}"
        description = f"{description.rstrip('.')}. {datasets}" if description else datasets
    return (
        name,
        declared.policy,
        ", ".join(declared.sources) or "-",
        declared.schedule or "-",
        description or "-",
    )


def render_status(rows: Iterable[Mapping[str, Any]]) -> str:
    """Render one row per pipeline, from the facts of `deltafold status --json`."""
    sizes = ("state size", "view size")
    headers = (
        "pipeline",
        "state",
        "epoch",
        "last refresh",
        "age",
        "behind",
        "quarantine",
        *sizes,
        "readers",
        "problem",
    )
    return table(headers, map(_status_row, rows))


def _status_row(row: Mapping[str, Any]) -> tuple[object, ...]:
    """Render one line of the status: the lag by source if there is any."""
    lags: Mapping[str, Mapping[str, int | None]] = row.get("lag") or {}
    behind = [
        f"{source} {format_count(versions, 'version')}"
        + ("" if (rows := lag["rows"]) is None else f", {format_count(rows, 'row')}")
        for source, lag in lags.items()
        if (versions := lag["versions"])
    ]
    state = row["state"] if row.get("unfinished") is None else f"{row['state']}, epoch {row['unfinished']}"
    age = row.get("age")
    quarantined: Mapping[str, int] = row.get("quarantined") or {}
    quarantines = [f"{source} {format_count(rows, 'row')}" for source, rows in quarantined.items()]
    sizes: Mapping[str, Mapping[str, int] | None] = row.get("sizes") or {}
    return (
        row["name"],
        state,
        row.get("epoch", "-"),
        row.get("verdict", "-"),
        "-" if age is None else format_duration(age),
        "; ".join(behind) or "-",
        "; ".join(quarantines) or "-",
        size(sizes.get("state")),
        size(sizes.get("view")) if sizes.get("view") or not sizes else "in the state",
        readers(row.get("reader_features")),
        row.get("problem", "-"),
    )


def readers(features: Sequence[str] | None) -> str:
    """Render which readers can read an answer: any, or those that support some features of Delta."""
    return "-" if features is None else f"with {', '.join(features)}" if features else "any"


def size(facts: Mapping[str, int] | None) -> str:
    """Render bytes, files, and fragmented partitions, which `maintain` would rewrite."""
    if facts is None:
        return "-"
    fragmented = f", {format_count(facts['fragmented'], 'partition')} fragmented" if facts["fragmented"] else ""
    return f"{format_bytes(facts['bytes'])} in {format_count(facts['files'], 'file')}{fragmented}"


def render_upkeep(done: Upkeep) -> str:
    """Render the sentence, a line for each changed table, and the retention."""
    lines = [done.sentence]
    for name, table_done in done.tables.items():
        parts: list[str] = []
        if table_done.partitions:
            before, after = table_done.files
            rewritten = format_count(table_done.partitions, "partition")
            parts.append(f"{rewritten} {table_done.work}, {before} files to {after}")
        if table_done.removed:
            removed = format_count(table_done.removed, "old file")
            parts.append(f"{removed} removed, {format_bytes(table_done.freed)}")
        if parts:
            lines.append(f"  {name}: {'; '.join(parts)}")
    return "\n".join([*lines, *(f"  kept: {kept}" for kept in done.keeps)])


def render_findings(findings: Iterable[Finding]) -> str:
    """Render one line per check of the doctor: ok or FAIL, and its sentence."""
    return "\n".join(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.sentence}" for finding in findings)


def first_line_of(error: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def show_warnings() -> None:
    """Print warnings of the library as one line, without file and line of its code."""
    formatted = warnings.formatwarning

    def line(message: Warning | str, category: type[Warning], *where: Any) -> str:
        return f"{message}\n" if issubclass(category, DeltafoldWarning) else formatted(message, category, *where)

    warnings.formatwarning = line


@contextmanager
def show_progress(first: str) -> Generator[Say]:
    """Show `first` and then each further message until the block ends; restores the terminal."""
    if not sys.stderr.isatty():
        _plain(first)
        yield _plain
        return
    # A Text, not a str: Rich would read [brackets] in a str as markup.
    with Console(stderr=True).status(Text(first)) as status:
        yield lambda text: status.update(Text(text))


def show_datasets(say: Say) -> Say:
    """Return a function that shows the latest step of each dataset, `name: step`; on a terminal the last few lines."""
    if not sys.stderr.isatty():
        return say
    steps = dict[str, str]()

    def show(step: str) -> None:
        name = step.partition(": ")[0]
        steps.pop(name, None)
        steps[name] = step
        say("\n".join([*steps.values()][-DATASETS_SHOWN:]))

    return show


def _plain(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
