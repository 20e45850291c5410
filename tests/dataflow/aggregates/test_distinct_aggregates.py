"""DISTINCT aggregates beside plain ones, over the same and over other columns."""

from __future__ import annotations

from tests.sandbox import MemorySandbox, checked, rows


def test_plain_and_distinct_over_the_same_column(sandbox: MemorySandbox) -> None:
    """Each must read its own branch although both have the same arguments."""
    sandbox.source("t", "k int, v int", [(1, 5), (1, 5), (1, 7), (2, None), (None, 5)])
    view = sandbox.another("select k, count(v) n, count(distinct v) d, sum(v) s, sum(distinct v) sd from t group by k")
    checked(view)
    assert rows(view) == [(1, 3, 2, 17, 12), (2, 0, 0, None, None), (None, 1, 1, 5, 5)]
    sandbox.sql("insert into {t} values (1, 7), (2, 4), (2, 4)")
    checked(view)
    sandbox.sql("delete from {t} where v = 5")
    checked(view)
    assert rows(view) == [(1, 2, 1, 14, 7), (2, 2, 1, 8, 4)]
