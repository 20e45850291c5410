"""The turns of the longest tests."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.night import TURNS, left_to_others


def test_turns_run_every_test_once(request: pytest.FixtureRequest) -> None:
    """Protects from a test that no commit runs."""
    short = request.node
    long = [pytest.Function.from_parent(short.parent, name=short.name) for _ in range(7)]
    for item in long:
        item.add_marker("in_turns")
    left = [left_to_others([short, *long], number) for number in range(100, 100 + TURNS)]
    ran = [{id(item) for item in long} - {id(item) for item in each} for each in left]
    assert all(short not in each and 2 <= len(run) <= 3 for each, run in zip(left, ran, strict=True))
    assert set().union(*ran) == {id(item) for item in long}
    assert all(one.isdisjoint(other) for one, other in combinations(ran, 2))
