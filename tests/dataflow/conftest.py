"""Joins, windows and subqueries restrict what they read: these tests take their inputs for large ones by day."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.reading import by_day, reading


@pytest.fixture(params=by_day("large"))
def reads(request: pytest.FixtureRequest) -> Iterator[str]:
    with reading(request.param) as name:
        yield name
