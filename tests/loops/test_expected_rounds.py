"""The rounds that policy auto expects of a loop: those of its last epochs, and the levels of its first load."""

from __future__ import annotations

from deltafold.algebra.tuning import Tuning
from deltafold.api import Report
from deltafold.refresh.mode import levels, recent_rounds
from deltafold.store.history import Begun, Finished, Intent


def entry(epoch: int, mode: str = "incremental", **rounds: list[int]) -> Finished:
    """A finished epoch whose loop moved so many rows in each round."""
    report = Report(
        view="v", epoch=epoch, generation=1, verdict="applied", sentence="", rounds={"loop_1": rounds} if rounds else {}
    )
    return Finished(intent(epoch, mode), report, {})


def intent(epoch: int, mode: str = "incremental") -> Intent:
    return Intent(view="v", generation=1, epoch=epoch, fingerprint="f", buckets=1, sources={}, mode=mode)


def test_the_last_epochs_count() -> None:
    first = entry(1, levels=[1, 3, 9, 4])
    assert recent_rounds([first], Tuning()) == {}
    assert levels([first]) == {"loop_1": 4}
    later = [
        entry(2, retract=[5] * 40),
        entry(3, retract=[1, 1], insert=[1]),
        entry(4, insert=[2]),
        entry(5, insert=[2]),
    ]
    assert recent_rounds([first, *later], Tuning(timed_epochs=3)) == {"loop_1": 1}
    assert recent_rounds([first, *later], Tuning(timed_epochs=4)) == {"loop_1": 2}


def test_epochs_without_a_loop_or_of_another_mode_tell_nothing() -> None:
    others = [entry(2), entry(3, mode="recompute", levels=[1]), Begun(intent(4))]
    assert recent_rounds(others, Tuning()) == {} and levels(others) == {}
