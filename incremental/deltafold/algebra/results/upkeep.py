"""Define the status of a view and the result of its upkeep, as plain data and JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

from deltafold.algebra.results.report import Json, Report
from deltafold.algebra.results.sentences import sentence_of_status, sentence_of_upkeep

VIEW = "view"  # the name of the answer's own table


@dataclass(frozen=True, kw_only=True)
class TableUpkeep:
    """The upkeep of one table.

    work: `sorted`, `compacted` or `as it was`; partitions: the number rewritten; files: of the latest version, before
    and after; removed, freed: the number of old files removed, and their bytes; kept: the readers that keep old files.
    """

    work: str
    partitions: int
    files: tuple[int, int]
    removed: int
    freed: int
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, repr=False)
class Upkeep(Json):
    """One upkeep of a view and its landed sources.

    tables: by name, a landed source's as `landed/<source>`, its quarantine as `quarantine/<source>`; generations: those
    whose folders were removed; entries: the number of journal entries removed; keeps: what is retained, for readers;
    grown: of the copy into more buckets that was made first, if they had become too large.
    """

    view: str
    retention_hours: float
    tables: dict[str, TableUpkeep]
    generations: tuple[int, ...]
    entries: int
    keeps: tuple[str, ...]
    seconds: float
    finished: str
    grown: Report | None = None
    sentence: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence", self.sentence or sentence_of_upkeep(self))


@dataclass(frozen=True)
class Lag:
    """The lag of a view behind a base source: the versions since the last epoch.

    rows: the rows in added and removed files; None if the log does not record them.
    """

    versions: int
    rows: int | None


@dataclass(frozen=True)
class Size:
    """The size of a table's latest version; fragmented: the partitions that the next upkeep would rewrite."""

    files: int
    bytes: int
    fragmented: int = 0


@dataclass(frozen=True, kw_only=True, repr=False)
class Status(Json):
    """The status of a view.

    epoch, generation, verdict, finished: of the last finished epoch; age: seconds since then; lag: by base source;
    tables: by name, the one with the answer last; unfinished: an interrupted epoch; quarantined: by landed source, the
    number of its rows in quarantine, if any; problems: by base source whose table cannot be found, why; path,
    reader_features: of the table with the answer, and the features of Delta that a reader of it has to support.
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
    problems: dict[str, str] = field(default_factory=dict[str, str])
    path: str | None = None
    reader_features: tuple[str, ...] | None = None

    @property
    def sentence(self) -> str:
        """One line for a terminal."""
        return sentence_of_status(self)

    @property
    def current(self) -> bool:
        """Whether no row was added or removed since the last epoch, as far as the log records; False with problems."""
        return (
            self.epoch is not None
            and not self.problems
            and not any(lag.versions and lag.rows != 0 for lag in self.lag.values())
        )

    @property
    def state(self) -> Size:
        """The total size of the state tables."""
        states = [size for name, size in self.tables.items() if name != VIEW]
        return Size(
            files=sum(size.files for size in states),
            bytes=sum(size.bytes for size in states),
            fragmented=sum(size.fragmented for size in states),
        )

    @property
    def answer(self) -> Size | None:
        """The size of the answer's own table; None if the answer is stored in a state."""
        return self.tables.get(VIEW)
