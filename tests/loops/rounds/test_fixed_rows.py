"""Rows that a step gives of an empty loop: a branch of a union in it does not read the loop.

By the definition they are found in the round after init, as what follows from init is.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.errors import NotConvergedError, RefusedError
from deltafold.api import fixpoint
from tests.night import night, sampled
from tests.sandbox import MemorySandbox, checked, rows

EDGES = [(1, 2), (2, 3), (4, 5), (5, 4), (6, 6)]


def beside(edges: DataFrame, starts: DataFrame, extra: DataFrame) -> DataFrame:
    """A branch of its own."""
    return fixpoint(starts, lambda r: r.join(edges, r.x == edges.a).select("b").union(extra))


def without_duplicates(edges: DataFrame, starts: DataFrame, extra: DataFrame) -> DataFrame:
    """A branch below DISTINCT and a projection."""

    def step(r: DataFrame) -> DataFrame:
        return r.join(edges, r.x == edges.a).select("b").union(extra).distinct().select(F.col("b") + 0)

    return fixpoint(starts, step)


def below_a_join(edges: DataFrame, starts: DataFrame, extra: DataFrame) -> DataFrame:
    """A branch that a join reads together with the loop."""

    def step(r: DataFrame) -> DataFrame:
        both = r.union(extra)
        return both.join(edges, both.x == edges.a).select("b")

    return fixpoint(starts, step)


def on_both_sides(edges: DataFrame, starts: DataFrame, extra: DataFrame) -> DataFrame:
    """Pairs of rows of the loop, each side with rows of its own."""

    def step(r: DataFrame) -> DataFrame:
        one, two = r.union(extra).toDF("y"), r.union(starts).toDF("z")
        return one.join(edges, one.y == edges.a).join(two, F.col("b") == F.col("z") + 1).select("z")

    return fixpoint(starts, step)


def best(edges: DataFrame, starts: DataFrame, extra: DataFrame) -> DataFrame:
    """A value that is worse than one found a round later, but from which the better value of another key follows."""

    def step(r: DataFrame) -> DataFrame:
        joined = r.join(edges, r.x == edges.a).select("b", (20 - F.col("y")).alias("y"))
        return joined.union(extra.select("x", F.lit(3)))

    return fixpoint(starts.select("x", F.lit(9).alias("y")), step, key="x")


@night
@pytest.mark.parametrize(
    "query", sampled([beside, without_duplicates, below_a_join, on_both_sides, best],
    lambda query: query is without_duplicates, lambda query: query.__name__),
)  # fmt: skip
def test_rows_of_an_empty_loop(sandbox: MemorySandbox, query: Callable[..., DataFrame]) -> None:
    """They are there in the first load, also where init is empty, and are taken back with what follows from them."""
    sandbox.source("edges", "a int, b int", EDGES)
    sandbox.source("starts", "x int", [])
    sandbox.source("extra", "x int", [(1,), (4,), (4,)])
    view = sandbox.view(query)
    checked(view)
    assert len(rows(view)) == (0 if query is on_both_sides else 2 if query is below_a_join else 5)
    sandbox.insert("starts", "x int", [(1,), (4,)])
    sandbox.sql("delete from {extra} where x = 4")
    checked(view)
    sandbox.sql("delete from {starts} where x = 1")
    sandbox.insert("edges", "a int, b int", [(3, 6), (4, 1)])
    checked(view)
    sandbox.sql("delete from {extra} where true")
    checked(view)


@night
def test_constant_rows_of_a_step(sandbox: MemorySandbox) -> None:
    """Rows that are written in the query never change, and are found once the loop is read."""
    sandbox.source("edges", "a int, b int", EDGES)
    view = sandbox.view("""
        with recursive r(x) as (select a from edges where a > 5 union
          select x from (select e.b x from r join edges e on r.x = e.a union all select 4) where x <> 5)
        select x from r""")
    checked(view)
    assert rows(view) == [(4,), (6,)]
    sandbox.sql("delete from {edges} where a = 6")
    checked(view)
    assert rows(view) == [(4,)]


def test_a_fixed_branch_below_a_projection_is_refused_by_level(sandbox: MemorySandbox) -> None:
    """It would give its rows in every round of UNION ALL."""
    sandbox.source("edges", "a int, b int", EDGES)
    with pytest.raises(RefusedError, match="gives its rows in every round"):
        sandbox.view("""
            with recursive r(x) as (select a from edges union all
              select x + 1 from (select x from r union all select b from edges where b > 4) where x < 9)
            select x from r""").refresh()


@night
@pytest.mark.parametrize("key", sampled([None, "x"], lambda key: key is None))
def test_the_limit_is_that_of_the_definition(sandbox: MemorySandbox, key: str | None) -> None:
    """A refresh fails where the batch query would, however few rounds the change itself takes, and only there."""

    value = [F.lit(0).alias("y")] if key else []

    def query(edges: DataFrame, starts: DataFrame) -> DataFrame:
        def step(r: DataFrame) -> DataFrame:
            return r.join(edges, r.x == edges.a).select("b", *value)

        return fixpoint(starts.select("x", *value), step, key=key, limit=4)

    sandbox.source("edges", "a int, b int", [(1, 2), (2, 3), (3, 4)])
    sandbox.source("starts", "x int", [(1,)])
    view = sandbox.view(query)
    checked(view)
    sandbox.insert("edges", "a int, b int", [(4, 5)])
    with pytest.raises(NotConvergedError, match="after 4 rounds"):
        view.refresh()
    with pytest.raises(NotConvergedError, match="the limit is 4"):
        query(sandbox.read("select * from {edges}"), sandbox.read("select * from {starts}"))
    sandbox.sql("delete from {edges} where a = 4")
    sandbox.insert("edges", "a int, b int", [(1, 4)])
    checked(view)
    sandbox.insert("edges", "a int, b int", [(4, 5)])
    report = checked(view)
    assert len(rows(view)) == 5 and (key or report.paths["loop_1"] == "computed from nothing")
