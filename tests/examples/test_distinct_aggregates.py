"""DISTINCT aggregates beside plain ones, over the same and over other columns."""

from __future__ import annotations

from tests.corpus.world import World, checked, rows


def test_plain_and_distinct_over_the_same_column(world: World) -> None:
    """Each must read its own branch although both have the same arguments."""
    world.source("t", "k int, v int", [(1, 5), (1, 5), (1, 7), (2, None), (None, 5)])
    view = world.view("select k, count(v) n, count(distinct v) d, sum(v) s, sum(distinct v) sd from t group by k")
    checked(view)
    assert rows(view) == [(1, 3, 2, 17, 12), (2, 0, 0, None, None), (None, 1, 1, 5, 5)]
    world.sql("insert into {t} values (1, 7), (2, 4), (2, 4)")
    checked(view)
    world.sql("delete from {t} where v = 5")
    checked(view)
    assert rows(view) == [(1, 2, 1, 14, 7), (2, 2, 1, 8, 4)]
