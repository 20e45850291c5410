"""What the journal says about a view, as values: what became of each epoch, as far back as a refresh has to know.

The journal stores an event in the nullable fields of an entry; `event_of` and `entry_of` map one to the other:

| event | entry in the journal |
| --- | --- |
| `Begun` | an intent without report |
| `Copying` | the same with `rearranges` |
| `Failed` | the same with `takes_back` |
| `Finished` | an intent with its report |

`refresh/decide.py` decides from a history what a refresh does next.
"""

from __future__ import annotations

from dataclasses import dataclass

from deltafold.algebra.results.report import TAKEN_BACK, Report
from deltafold.store.journal import Entry, Intent, Journal


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
    """An epoch whose tables are all written; after: their versions."""

    intent: Intent
    report: Report
    after: dict[str, int | None] | None

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
        oldest = self.events[0] if self.events else None
        return oldest if isinstance(oldest, Finished) and oldest.complete else None

    def before(self, failed: Intent) -> Finished | None:
        """Return the finished epoch that a failed one is taken back to; None if its generation has none."""
        own = [e for e in self.events if e.intent.generation == failed.generation and e.intent.epoch < failed.epoch]
        return own[-1] if own and isinstance(own[-1], Finished) else None


def read_history(journal: Journal, earlier: History = History()) -> History:
    """Read the history of a view: one file, unless its newest epoch is not complete.

    earlier: one that was read before; of its epochs only the newest can have changed.
    """
    unchanged = {number_of(event): event for event in earlier.events[:-1]}
    numbers = journal.numbers()
    events = list[Event]()
    for number in reversed(numbers):
        event = unchanged.get(number) or event_of(journal.entry(*number))
        events.insert(0, event)
        if isinstance(event, Finished) and event.complete:
            break
    return History(tuple(events), numbers)


def number_of(event: Event) -> tuple[int, int]:
    """Return the generation and the number of an epoch."""
    return event.intent.generation, event.intent.epoch


def event_of(entry: Entry) -> Event:
    """Return what became of an epoch."""
    if entry.report is not None:
        return Finished(entry.intent, entry.report, entry.after)
    if entry.intent.takes_back:
        return Failed(entry.intent)
    return Copying(entry.intent) if entry.intent.rearranges else Begun(entry.intent)


def entry_of(event: Event) -> Entry:
    """Return the entry in which the journal stores an event."""
    if isinstance(event, Finished):
        return Entry(event.intent, event.report, event.after)
    return Entry(event.intent, None)
