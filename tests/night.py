"""What `make test` leaves out: what is for `make night` alone, and what the next commits run.

`night` marks long tests, and the cases of matrices that are not in the day's sample (`pytest --long` runs all).
`in_turns` marks the longest tests of the day: `make test` runs a third of them, that of the next commit another third.
Without `--turn`, pytest runs every test of the day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

night = pytest.mark.night
in_turns = pytest.mark.in_turns
TURNS = 3


def left_to_others(items: Sequence[pytest.Item], turn: int) -> list[pytest.Item]:
    """Return the tests that other turns run: of those in turns, all but every third."""
    listed = [item for item in items if item.get_closest_marker("in_turns")]
    return [item for number, item in enumerate(listed) if (number - turn) % TURNS]


def sampled(cases: Iterable[Any], chosen: Callable[[Any], bool], name: Callable[[Any], str] = str) -> list[Any]:
    """Cases as parameters, those that are not chosen only for the night; name: the id of a case in reports."""
    return [pytest.param(case, marks=[] if chosen(case) else [night], id=name(case)) for case in cases]


def every(number: int, cases: Iterable[Any]) -> list[Any]:
    """Cases as parameters, of which only the first of each `number` runs by day."""
    listed = list(cases)
    return sampled(listed, lambda case: listed.index(case) % number == 0)
