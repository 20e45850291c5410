"""Recursive queries as users write them, maintained under changes, against textbook algorithms after every refresh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deltafold.algebra.errors import NotConvergedError, QueryError
from deltafold.refresh.incremental_refresh import Incremental
from tests.loops import queries
from tests.loops.references import oracles
from tests.night import night, sampled
from tests.reading import large_by_day
from tests.sandbox import MemorySandbox, checked, rows

pytestmark = large_by_day

EDGES = [(1, 2, 4), (2, 3, 1), (3, 1, 1), (3, 4, 2), (5, 5, 1), (6, 7, 3), (2, 3, 1), (None, 9, 1)]
CHANGES = (
    ("insert into {edges} values (4, 6, 0), (7, 2, 1)",),
    ("delete from {edges} where src = 3 and dst = 1", "insert into {edges} values (2, 1, 5)"),
    ("update {edges} set dst = 8 where src = 4",),
    ("delete from {starts} where node = 1", "insert into {starts} values (2), (2)"),
    ("delete from {edges} where src in (2, 7)",),
)
UNION = (
    "with recursive r(node) as (select node from starts union select e.dst from r join edges e on r.node = e.src) "
    "select node from r"
)
IN_SUBQUERY = (
    "with recursive r(node) as (select node from starts union select dst from edges where src in (select node from r)) "
    "select node, count(*) n from r group by node"
)
LEVELS = (
    "with recursive r(node, hops) as (select node, 0 from starts "
    "union all select e.dst, hops + 1 from r join edges e on r.node = e.src where hops < 3) "
    "select node, hops, count(*) n from r group by node, hops"
)

Graph = tuple[list[tuple[Any, ...]], list[Any]]


def parity(graph: Graph) -> set[tuple[Any, ...]]:
    edges, starts = graph
    doubled = [((a, n), (b, 1 - n)) for a, b, _ in edges if a is not None for n in (0, 1)]
    return {(node, "odd" if n else "even") for node, n in oracles.reachable([(s, 0) for s in starts], doubled)}


def walks(graph: Graph) -> set[tuple[Any, ...]]:
    edges, starts = graph
    found, now = dict[tuple[Any, int], int](), [(node, 1) for node in starts]
    for hops in range(4):
        after = list[tuple[Any, int]]()
        for node, count in now:
            found[node, hops] = found.get((node, hops), 0) + count
            after += [(dst, count) for src, dst, _ in edges if src == node and src is not None]
        now = after
    return {(*key, count) for key, count in found.items()}


CASES: dict[str, tuple[Any, Callable[[Graph], set[tuple[Any, ...]]]]] = {
    "closure": (queries.closure, lambda g: oracles.closure([e[:2] for e in g[0]])),
    "closure by doubling": (queries.doubling_closure, lambda g: oracles.closure([e[:2] for e in g[0]])),
    "shortest paths": (queries.distances, lambda g: set(oracles.distances(dict.fromkeys(g[1], 0), g[0]).items())),
    "mutual recursion": (queries.parity, parity),
    "UNION": (UNION, lambda g: {(node,) for node in oracles.reachable(g[1], [e[:2] for e in g[0]])}),
    "UNION with IN": (IN_SUBQUERY, lambda g: {(n, 1) for n in oracles.reachable(g[1], [e[:2] for e in g[0]])}),
    "UNION ALL": (LEVELS, walks),
}


def graph(sandbox: MemorySandbox) -> Graph:
    edges = [tuple(row) for row in sandbox.read("select src, dst, weight from {edges}").collect()]
    return edges, [row[0] for row in sandbox.read("select node from {starts}").collect()]


# the others have their like in test_recursion_stage.py and test_random_loops.py
@pytest.mark.parametrize("case", sampled(CASES, lambda case: case == "shortest paths"))
def test_maintained(sandbox: MemorySandbox, case: str, long: bool) -> None:
    """Cycles that open and close, parallel edges, NULL, starts that leave: the answer is that of the textbook.

    By day the changes arrive together, those of the starts apart.
    """
    query, oracle = CASES[case]
    sandbox.sources({"edges": ("src int, dst int, weight int", EDGES), "starts": ("node int", [(1,), (1,)])})
    view = sandbox.view(query)
    view.refresh()
    together = tuple(statement for change in CHANGES[:3] for statement in change)
    for change in CHANGES if long else (together, *CHANGES[3:]):
        for statement in change:
            sandbox.sql(statement)
        view.refresh()
        found = rows(view)
        assert len(found) == len(set(found)), "a set has no duplicates"
        assert set(found) == oracle(graph(sandbox)), change
    assert checked(view).verdict == "nothing to do"


@night
def test_components(sandbox: MemorySandbox) -> None:
    """A component that is cut, and joined again."""
    sandbox.source("edges", "src int, dst int", [(5, 4), (4, 3), (3, 7), (1, 2), (9, 9)])
    view = sandbox.view(queries.components)
    view.refresh()
    for change in (
        "delete from {edges} where src = 4",
        "insert into {edges} values (2, 5)",
        "delete from {edges} where src = 1",
    ):
        sandbox.sql(change)
        view.refresh()
        edges = [tuple(row) for row in sandbox.read("select * from {edges}").collect()]
        assert set(rows(view)) == set(oracles.components(edges).items())


def test_recursion_under_policy_auto(sandbox: MemorySandbox) -> None:
    """A recursion that has no incremental rule is recomputed by its definition, and reported so."""

    def query(edges: Any) -> Any:
        return queries.fixpoint(edges.select("src"), lambda r: r.groupBy().max("src").toDF("src"))

    sandbox.source("edges", "src int, dst int", [(1, 2), (3, 4)])
    view = sandbox.view(query, policy="auto")
    assert "no least answer" in view.explain()
    assert checked(view).verdict == "recomputed"
    sandbox.sql("insert into {edges} values (7, 8)")
    assert checked(view).verdict == "recomputed" and rows(view) == [(1,), (3,), (7,)]


def test_messages_of_sql_name_its_relation(sandbox: MemorySandbox) -> None:
    """They said fixpoint, which is not in the query. Spark refuses other types in UNION ALL, too."""
    sandbox.source("edges", "src int, dst bigint", [(1, 2), (2, 3), (3, 4)])
    query = "with recursive r(n) max recursion level 1 as (select src from edges where src = 1 union {}) table r"
    with pytest.raises(QueryError, match=r"^recursion r: .* types bigint, and the start has int\. Cast them"):
        sandbox.view(query.format("select dst from r join edges on n = src")).refresh()
    with pytest.raises(NotConvergedError, match=r"^recursion r: round 2 still found rows, and the limit is 1\. "):
        sandbox.view(query.format("select int(dst) from r join edges on n = src")).batch({"edges": 0})


@night
def test_a_cycle_that_is_taken_back_after_a_kill(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The killed epoch never converges; it wrote nothing, and yet was repeated until the view was rebuilt."""
    sandbox.source("edges", "src int, dst int", [(1, 2)])
    view = sandbox.view(
        "with recursive r(n) max recursion level 5 as (select dst from edges where src = 1 union all "
        "select dst from r join edges on n = src) select n from r"
    )
    checked(view)
    sandbox.sql("insert into {edges} values (2, 3), (3, 2)")
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(Incremental, "run", lambda *_: 1 / 0)
        view.refresh()
    with pytest.raises(NotConvergedError):
        view.refresh()
    sandbox.sql("delete from {edges} where src = 3")
    checked(view)
