"""What `make test` leaves to `make night`: long tests, and the cases of matrices that are not in the day's sample.

`pytest --long` runs all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

night = pytest.mark.night


def sampled(cases: Iterable[Any], chosen: Callable[[Any], bool], name: Callable[[Any], str] = str) -> list[Any]:
    """Cases as parameters, those that are not chosen only for the night; name: the id of a case in reports."""
    return [pytest.param(case, marks=[] if chosen(case) else [night], id=name(case)) for case in cases]


def every(number: int, cases: Iterable[Any]) -> list[Any]:
    """Cases as parameters, of which only the first of each `number` runs by day."""
    listed = list(cases)
    return sampled(listed, lambda case: listed.index(case) % number == 0)
