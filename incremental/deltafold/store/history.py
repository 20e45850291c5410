"""What the journal says about a view, as values: what became of each epoch, as far back as a refresh has to know.

An event has exactly what is known of its epoch, and its class says what became of it. The journal (store/journal.py)
stores events in files and reads them; `refresh/decide.py` decides from a history what a refresh does next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Self

from deltafold.algebra.results.report import TAKEN_BACK, Report


@dataclass(frozen=True)
class Pin:
    """A source in an epoch: its versions before and after; before is None where the epoch reads all of its rows.

    before, after: Delta's versions; identity: Delta's id of the table (at `after` for a base table; earlier releases
    recorded that of the latest version); commit: Delta's id of the commit that made `after`, empty where its writer
    gave it none.
    """

    before: int | None
    after: int
    identity: str
    _: KW_ONLY
    commit: str = ""

    def from_nothing(self) -> Self:
        """Return the pin of an epoch that reads all rows at the same version."""
        return replace(self, before=None)

    def go_on(self) -> Self:
        """Return the pin of an epoch that begins, and ends, where this one ends."""
        return replace(self, before=self.after)

    @property
    def is_rebuilt(self) -> bool:
        """Whether the source has another table at `after` than at `before`."""
        return False

    @property
    def is_changed(self) -> bool:
        """Whether the epoch may read other rows than the one before."""
        return self.before != self.after or self.is_rebuilt


@dataclass(frozen=True, kw_only=True)
class AnswerPin(Pin):
    """A source that is a view.

    place: its table at `after`, below the view's folder; place_before: its table at `before`, another one if the view
    was rebuilt in between; bases: the versions of the base sources from which its answer at `after` is computed;
    clocks: as of `clocks_of`.
    """

    place: str
    place_before: str
    bases: Mapping[str, int] = field(default_factory=dict[str, int])
    clocks: Mapping[str, str] = field(default_factory=dict[str, str])

    def from_nothing(self) -> Self:
        """Return the pin of an epoch that reads all rows at the same version."""
        return replace(self, before=None, place_before=self.place)

    def go_on(self) -> Self:
        """Return the pin of an epoch that begins, and ends, where this one ends."""
        return replace(self, before=self.after, place_before=self.place)

    @property
    def is_rebuilt(self) -> bool:
        """Whether the source has another table at `after` than at `before`."""
        return self.place != self.place_before


@dataclass(frozen=True)
class Whole:
    """An epoch that takes in the whole change between the pinned versions."""

    begins = True
    arrives = True

    def list_passed(self, source: str) -> tuple[int, ...]:
        """Return the versions of a source besides the pinned ones that the epoch reads."""
        return ()


@dataclass(frozen=True)
class Chunk:
    """One of several epochs that together reach the pinned versions.

    number: its own, from 1; of: the number of them; bytes: the size of a chunk, as declared; whole: a file with another
    deletion vector counts with its whole size, as in chunks of earlier releases; starts: the version of each source
    before the first chunk, None where all of its rows are read.
    """

    number: int
    of: int
    bytes: int
    whole: bool = False
    starts: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])

    @property
    def begins(self) -> bool:
        """Whether no epoch before it has read the change."""
        return self.number == 1

    @property
    def arrives(self) -> bool:
        """Whether it reaches the pinned versions."""
        return self.number == self.of

    def list_passed(self, source: str) -> tuple[int, ...]:
        """Return the versions of a source besides the pinned ones that the epoch reads."""
        start = self.starts.get(source)
        return () if start is None else (start,)


@dataclass(frozen=True)
class Rest(Chunk):
    """An epoch that takes in at once what the chunks before it left, up to other versions than these were to reach.

    ends: the version of each source that the chunks were to reach.
    """

    ends: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def begins(self) -> bool:
        """Whether no epoch before it has read the change, up to these versions."""
        return True

    def list_passed(self, source: str) -> tuple[int, ...]:
        """Return the versions of a source besides the pinned ones that the epoch reads."""
        return (*super().list_passed(source), self.ends[source])


Extent = Whole | Chunk | Rest
"""How much of the change between its pinned versions an epoch takes in."""
WHOLE = Whole()


@dataclass(frozen=True, kw_only=True)
class Intent:
    """An epoch at its start: everything that a second attempt needs to write exactly the same.

    view: its name; generation, epoch: their numbers; fingerprint: of the query that the states were built from;
    buckets: the number of partitions of each state; sources: their pins, by name; mode: how the epoch is run; extent:
    all of the change, or a part of it (`part` in the file); tables: the versions of the view's own tables, None for one
    that does not exist; constraints: the declared ones that its sources fulfil after it; relied: those that they
    fulfilled before it too; states: for each state a digest of its plan, then its stored columns (Layout.merged); lost:
    why it begins a generation, if a source lost rows that the last epoch read; losses: the number of such epochs;
    clock: the time at which its query reads the clock, UTC (ISO 8601), empty if it does not.
    """

    view: str
    generation: int
    epoch: int
    fingerprint: str
    buckets: int
    sources: dict[str, Pin]
    tables: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    mode: str = "incremental"
    constraints: list[str] = field(default_factory=list[str])
    relied: list[str] = field(default_factory=list[str])
    extent: Extent = WHOLE
    states: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    lost: str = ""
    losses: int = 0
    clock: str = ""

    @property
    def arrives(self) -> bool:
        """Whether its sources reach their pinned versions, instead of a version in between."""
        return self.extent.arrives


@dataclass(frozen=True)
class Begun:
    """An epoch that runs, or was interrupted: it has to be finished from its pinned versions."""

    intent: Intent


@dataclass(frozen=True)
class Copying:
    """An unfinished copy of the epoch before it into other buckets: it may be forgotten, as the original stays."""

    intent: Intent


@dataclass(frozen=True)
class Failed:
    """An epoch that failed by itself after it wrote tables: these have to be restored.

    If its generation has no epoch before it, there is nothing to restore, and another generation has to begin.
    """

    intent: Intent


@dataclass(frozen=True)
class Finished:
    """An epoch whose tables are all written; after: their versions, none where an early release did not record them."""

    intent: Intent
    report: Report
    after: dict[str, int | None]

    @property
    def complete(self) -> bool:
        """Whether it has reached its pinned versions; else it is a chunk of a change, and others have to follow."""
        return self.intent.arrives

    @property
    def taken_back(self) -> bool:
        """Whether it failed, and its tables, sources and chunk are again those of the epoch before it."""
        return self.report.verdict == TAKEN_BACK


Event = Begun | Copying | Failed | Finished


@dataclass(frozen=True)
class History:
    """The newest epochs of a view, oldest first, back to the last complete one.

    numbers: generation and number of every epoch in the journal.
    """

    events: tuple[Event, ...] = ()
    numbers: tuple[tuple[int, int], ...] = ()

    @property
    def newest(self) -> Event | None:
        """The newest epoch of the newest generation; None before the first one."""
        return self.events[-1] if self.events else None

    @property
    def complete(self) -> Finished | None:
        """The last complete epoch, which readers see."""
        return as_complete(self.events[0]) if self.events else None

    def before(self, failed: Intent) -> Finished | None:
        """Return the finished epoch that a failed one is taken back to; None if its generation has none."""
        own = [e for e in self.events if e.intent.generation == failed.generation and e.intent.epoch < failed.epoch]
        return own[-1] if own and isinstance(own[-1], Finished) else None


def as_complete(event: Event | None) -> Finished | None:
    """Return an epoch that is finished and has reached its pinned versions; None for any other one."""
    return event if isinstance(event, Finished) and event.complete else None


def tables_of(event: Event) -> Mapping[str, int | None]:
    """Return the view's own tables, with their versions after a finished epoch, else before it."""
    return event.after or event.intent.tables if isinstance(event, Finished) else event.intent.tables


def number_of(event: Event) -> tuple[int, int]:
    """Return the generation and the number of an epoch."""
    return event.intent.generation, event.intent.epoch


def base_versions(pins: Mapping[str, Pin]) -> dict[str, int]:
    """Return the versions of all base sources of an epoch, by their path through the views."""
    versions = dict[str, int]()
    for name, pin in pins.items():
        if isinstance(pin, AnswerPin):
            versions |= {f"{name}/{source_path}": version for source_path, version in pin.bases.items()}
        else:
            versions[name] = pin.after
    return versions


NO_CLOCKS: Mapping[str, str] = {}


def clocks_of(intent: Intent) -> dict[str, str]:
    """Return the times at which the queries of an epoch read the clock, by the path of each view that it reads.

    The path of its own is empty; those that do not read it are left out.
    """
    clocks = {"": intent.clock} if intent.clock else dict[str, str]()
    for name, pin in intent.sources.items():
        if isinstance(pin, AnswerPin):
            clocks |= {"/".join(filter(None, (name, path))): time for path, time in pin.clocks.items()}
    return clocks


def clocks_below(clocks: Mapping[str, str], name: str) -> dict[str, str]:
    """Return those of a view below, by their paths from there."""
    parts = {path: path.partition("/") for path in clocks}
    return {below: clocks[path] for path, (first, _, below) in parts.items() if first == name}
