"""What past epochs tell of the two modes of policy auto."""

from __future__ import annotations

from incremental.algebra.results.report import Report
from incremental.algebra.tuning import Tuning
from incremental.refresh.mode import corrections
from incremental.store.journal import Entry, Intent

ESTIMATES = {"incremental": 2.0, "recompute": 0.5}
TUNING = Tuning(new_table_seconds=1.5, timed_epochs=3)


def entry(mode: str, epoch: int, seconds: float, generation: int = 1, verdict: str = "applied") -> Entry:
    report = Report("v", epoch, generation, verdict, "", seconds=seconds, estimates=ESTIMATES)
    return Entry(Intent("v", generation, epoch, "f", 1, {}, mode=mode), report)


def test_creating_a_table_is_no_part_of_recomputing() -> None:
    """A first epoch of 3.5 s counted as a recompute that takes seven times its estimate, and auto went back."""
    found = corrections([entry("recompute", 1, 3.5)], TUNING)
    assert found == {"recompute": 4.0}
    assert corrections([entry("recompute", 1, 1.0)], TUNING) == {"recompute": 1.0}  # half of it at most


def test_a_later_recompute_tells_more_than_the_first() -> None:
    """The first is forgotten, of every generation."""
    first, second, third = entry("recompute", 1, 9.0), entry("recompute", 2, 0.5), entry("recompute", 3, 1.0)
    assert corrections([first, second], TUNING) == {"recompute": 1.0}
    again = entry("recompute", 1, 9.0, generation=2)
    assert corrections([first, second, third, again], TUNING) == {"recompute": 1.5}


def test_first_loads_and_resumed_epochs_are_left_out() -> None:
    """They took what no refresh takes, or a part of it."""
    first, resumed = entry("incremental", 1, 99.0), entry("incremental", 2, 0.1, verdict="resumed")
    assert corrections([first, resumed], TUNING) == {}
    assert corrections([first, resumed, entry("incremental", 3, 1.0)], TUNING) == {"incremental": 0.5}


def test_the_latest_epochs_count_by_their_median() -> None:
    """One slow epoch changes nothing."""
    taken = [8.0, 8.0, 1.0, 40.0, 2.0]
    entries = [entry("incremental", number, seconds) for number, seconds in enumerate(taken, 2)]
    assert corrections(entries, TUNING) == {"incremental": 1.0}
