"""Algebra room: what upkeep did to a view's tables, and where a view stands. In: facts. Out: plain data, JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

from incremental.algebra.report import Json

VIEW = "view"  # the table of an answer that stands in no state


@dataclass(frozen=True)
class TableUpkeep:
    """One table.

    work: `sorted`, `compacted` or `as it was`; partitions: how many were rewritten; files: of the latest version,
    before and after; removed, freed: old files that went, and their bytes; kept: for whom old files stay.
    """

    work: str
    partitions: int
    files: tuple[int, int]
    removed: int
    freed: int
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class Upkeep(Json):
    """One upkeep of a view.

    tables: by name, a landed source's as `landed/<source>`, its quarantine as `quarantine/<source>`; generations: those
    whose folders were removed; entries: of the journal that were removed; keeps: in words, what is kept for how long.
    """

    view: str
    sentence: str
    retention_hours: float
    tables: dict[str, TableUpkeep]
    generations: tuple[int, ...]
    entries: int
    keeps: tuple[str, ...]
    seconds: float
    finished: str


@dataclass(frozen=True)
class Lag:
    """How far a base source has gone on since the last epoch.

    rows: those in files that came and that left; None where the log does not tell.
    """

    versions: int
    rows: int | None


@dataclass(frozen=True)
class Size:
    """A table's latest version; worn: how many of its partitions the next upkeep would rewrite."""

    files: int
    bytes: int
    worn: int = 0


@dataclass(frozen=True)
class Status(Json):
    """Where a view stands.

    epoch, generation, verdict, finished: of the last finished epoch; age: seconds since then; lag: by base source;
    tables: by name, the one with the answer last; unfinished: the epoch that was interrupted; quarantined: by landed
    source, how many rows of its files are in quarantine, where there are any.
    """

    view: str
    epoch: int | None = None
    generation: int | None = None
    verdict: str | None = None
    finished: str | None = None
    age: float | None = None
    lag: dict[str, Lag] = field(default_factory=dict[str, Lag])
    tables: dict[str, Size] = field(default_factory=dict[str, Size])
    unfinished: int | None = None
    quarantined: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def current(self) -> bool:
        """Whether no row has come or gone since the last epoch, as far as the log tells."""
        return self.epoch is not None and not any(lag.versions and lag.rows != 0 for lag in self.lag.values())

    @property
    def state(self) -> Size:
        """All state tables together."""
        states = [size for name, size in self.tables.items() if name != VIEW]
        return Size(*(sum(getattr(size, each) for size in states) for each in ("files", "bytes", "worn")))

    @property
    def answer(self) -> Size | None:
        """The table of the answer; None where the answer stands in a state."""
        return self.tables.get(VIEW)


def amount(size: float) -> str:
    """Bytes for people."""
    if abs(size) < 1000:
        return f"{size:.0f} bytes"
    for unit in ("KB", "MB", "GB"):
        size /= 1000
        if abs(size) < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} TB"


def counted(number: int, what: str) -> str:
    """So many of something, for people: 1 row, 2,000 rows."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
