"""`repeat` becomes the loops that are maintained: least sets row by row, numeric ones to a measured residual."""

from __future__ import annotations

from deltafold.api import Mrql
from tests.mrql.examples import ALL
from tests.mrql.schemas import SCHEMAS
from tests.night import night
from tests.sandbox import MemorySandbox, checked, confirm, rows

CLOSURE = """
edges = source(binary, "edges.bin");
repeat paths = select (e.src, e.dst) from e in edges
step select distinct x from x in (paths union (select (a, c) from (a, b) in paths, (b, c) in edges));
"""
RANKS = """
repeat ranks = select < id: n.id, rank: 1.0 > from n in nodes
step select (< id: n.id, rank: 0.5 + 0.5 * sum(select s.share * r.rank from s in links, r in ranks
                                                 where s.dst = n.id and s.src = r.id) >, n.id > 0)
     from n in nodes;
"""


@night
def test_a_closure_is_kept_under_insertions_and_deletions(sandbox: MemorySandbox) -> None:
    """Protects from a closure that is replayed: as a least set only what a change reaches is looked at."""
    sandbox.source("edges", "src int, dst int", [(1, 2), (2, 3), (3, 1), (3, 4)])
    view = sandbox.view(Mrql(CLOSURE))
    assert "fixpoint" in view.explain() and view.description().mode == "incremental"
    checked(view)
    assert len(rows(view)) == 12
    sandbox.do(("insert", "edges", [(4, 5)]))
    checked(view)
    sandbox.do(("delete", "edges", "src = 3 and dst = 1"))
    checked(view)
    assert (3, 2) not in rows(view) and (1, 5) in rows(view)


@night
def test_a_loop_that_ends_by_a_residual(sandbox: MemorySandbox) -> None:
    """Protects from a flag that is computed deciding when the loop ends, where the declaration says when."""
    sandbox.source("nodes", "id int", [(1,), (2,), (3,)])
    sandbox.source("links", "src int, dst int, share double", [(1, 2, 1.0), (2, 3, 0.5), (2, 1, 0.5), (3, 1, 1.0)])
    view = sandbox.view(Mrql(RANKS, loops={"ranks": {"key": ("id",), "residual": 0.05}}))
    view.refresh()
    assert view.verify().ok
    found = dict(rows(view))
    assert abs(found[1] - (0.5 + 0.5 * (0.5 * found[2] + found[3]))) <= 0.05
    sandbox.do(("insert", "links", [(3, 2, 0.25)]))
    view.refresh()
    found = dict(rows(view))
    assert view.verify().ok and abs(found[2] - (0.5 + 0.5 * (found[1] + 0.25 * found[3]))) <= 0.05


def test_a_number_of_steps_is_replayed_exactly(sandbox: MemorySandbox) -> None:
    sandbox.source("P", "X int, Y int", [(1, 10), (2, 10), (3, 20)])
    view = sandbox.view(Mrql(ALL["repeat: pairs with a flag"]))
    view.refresh()
    assert sorted(rows(view)) == [(4,), (8,), (12,)]
    sandbox.do(("insert", "P", [(5, 1)]), ("delete", "P", "X = 1"))
    view.refresh()
    confirm(view)
    assert rows(view) == [(12,), (20,), (8,)]


def test_explain_shows_the_loop() -> None:
    text = Mrql(ALL["repeat: k-means"]).show(list(SCHEMAS), SCHEMAS.get)
    assert text.startswith("_centers") and " = iterate(spark.sql(" in text and text.count("times=4") == 1
