"""What past epochs tell of the two modes of policy auto."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from deltafold.algebra.program import Estimate
from deltafold.algebra.results.report import EpochVerdict, Report
from deltafold.algebra.tuning import Tuning
from deltafold.refresh.mode import Choice, CostBased, corrections
from deltafold.store.history import Finished, Intent

ESTIMATES = {"incremental": 2.0, "recompute": 0.5}
TUNING = Tuning(new_table_seconds=1.5, timed_epochs=3)


def entry(mode: str, epoch: int, seconds: float, generation: int = 1, verdict: EpochVerdict = "applied") -> Finished:
    report = Report(
        view="v", epoch=epoch, generation=generation, verdict=verdict, sentence="", seconds=seconds, estimates=ESTIMATES
    )
    return Finished(
        Intent(view="v", generation=generation, epoch=epoch, fingerprint="f", buckets=1, sources={}, mode=mode),
        report,
        {},
    )


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


def choice(*entries: Finished, refresh: float = ESTIMATES["incremental"]) -> Choice:
    """The choice for the next epoch, of a query that is estimated as ESTIMATES say."""
    modes: Any = [SimpleNamespace(mode=mode, program=None, invariant=()) for mode in ESTIMATES]
    estimate = Estimate(refresh, ESTIMATES["recompute"], 0.1)
    journal: Any = SimpleNamespace(entries=lambda _: entries)
    policy: Any = CostBased(SimpleNamespace(), *modes, lambda *_: estimate)  # type: ignore[arg-type]
    return policy.choose(journal, {}, TUNING)


def chosen(*entries: Finished) -> str:
    return choice(*entries).strategy.mode


def test_the_reason_fits_the_choice() -> None:
    """Protects from a first epoch that recomputes since a refresh is estimated as faster."""
    first = choice(refresh=0.4)
    assert first.strategy.mode == "recompute"
    assert first.because == (
        "estimated refresh 0.4 s, full recompute 0.5 s; recompute until the other takes less than 75 % of its time"
    )
    assert choice(refresh=0.3).because == "estimated refresh 0.3 s, full recompute 0.5 s"
    timed = entry("recompute", 2, 0.97), entry("incremental", 1, 9.0, 2), entry("incremental", 2, 1.0, 2)
    assert choice(*timed).because.endswith("; incremental until the other takes less than 95 % of its time")


@pytest.mark.parametrize(
    ("refresh", "recompute", "mode"),
    [(1.0, 0.9, "recompute"), (1.0, 0.97, "incremental"), (1.0, 0.3, "recompute"), (1.0, 2.0, "incremental")],
)
def test_no_refresh_stays_slower_than_a_recompute_that_was_timed(refresh: float, recompute: float, mode: str) -> None:
    """A quarter less was asked for before, so that a query stayed a third slower than it had to be."""
    timed = entry("recompute", 2, recompute), entry("incremental", 1, 9.0, 2), entry("incremental", 2, refresh, 2)
    assert chosen(*timed) == mode


def test_going_to_states_takes_a_clear_gain() -> None:
    """They have to be loaded, which takes longer than the query."""
    timed = entry("incremental", 2, 0.9), entry("recompute", 1, 1.0, 2), entry("recompute", 2, 1.0, 2)
    assert chosen(*timed) == "recompute"
    assert chosen(entry("incremental", 2, 0.7), *timed[1:]) == "incremental"
