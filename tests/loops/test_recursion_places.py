"""`WITH RECURSIVE … UNION` in every place that a query has, under changes.

What the recursion gives is found by breadth-first search; the query around it is Spark's, over these rows.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from deltafold.algebra.errors import QueryError
from tests.loops.references.oracles import reachable
from tests.night import night, sampled
from tests.sandbox import MemorySandbox, checked, rows

EDGES = [(1, 2), (2, 3), (3, 1), (3, 4), (5, 5), (6, 7), (2, 3)]
CHANGES = (
    ("insert into {edges} values (4, 6), (7, 2)",),
    ("delete from {edges} where src = 3 and dst = 1", "insert into {edges} values (2, 1)"),
    ("delete from {starts} where node = 1", "insert into {starts} values (2), (2)"),
    ("delete from {edges} where src in (2, 7)",),
)
STEP = "union select e.dst from r join edges e on r.node = e.src"
REACHED = f"with recursive r(node) as (select node from starts {STEP}) select node from r"
BACK = "union select e.src from back b join edges e on b.node = e.dst"

# {}: the recursion, or its rows
AROUND = {
    "FROM": "select node, count(*) n from ({}) group by node",
    "join": "select e.src, l.node from edges e left join ({}) l on l.node = e.dst",
    "LATERAL": "select e.src, l.node from edges e, lateral (select node from ({}) where node > e.src) l",
    "branch of UNION ALL": "select src from edges union all ({})",
    "branch of EXCEPT": "select src from edges except ({})",
    "common table": "with q as ({}) select a.node, b.node other from q a join q b on a.node < b.node",
    "common tables, nested": "with q as (with p as ({}) select node from p where node > 1) select node from q",
    "IN": "select src, dst from edges where dst in ({})",
    "NOT IN": "select src, dst from edges where dst not in ({})",
    "IN, HAVING": "select src, count(*) n from edges group by src having src in ({})",
    "IN, nested": "select src from (select * from edges where src in (select node from ({}) where node > 1))",
    "EXISTS": "select src from edges where exists (select 1 from ({}) l where l.node = edges.dst)",
    "NOT EXISTS": "select src from edges where not exists (select 1 from ({}) l where l.node = edges.dst)",
    "scalar subquery": "select src, (select count(*) from ({})) n from edges",
    "scalar subquery, correlated": "select src, (select max(node) from ({}) l where l.node <= edges.src) n from edges",
    "twice": "select node from ({0}) where node in ({0}) union all ({0})",
}

# the recursion among common table expressions: by what query the rows are compared
AMONG = {
    "reads one around": (
        f"with s as (select node from starts) select node from ({REACHED.replace('starts', 's')})",
        "select node from ({})",
    ),
    "reads one before, in a common table": (
        f"with s as (select node from starts), q as ({REACHED.replace('starts', 's')}) select node from q",
        "select node from ({})",
    ),
    "reads one around, in IN": (
        f"with s as (select node from starts), d as (select * from edges) "
        f"select dst from d where dst in ({REACHED.replace('starts', 's').replace('edges', 'd')})",
        "select dst from edges where dst in ({})",
    ),
    "reads one around, in a scalar subquery": (
        f"with s as (select node from starts) select src, (select sum(node) from ({REACHED.replace('starts', 's')})) n "
        "from edges",
        "select src, (select sum(node) from ({})) n from edges",
    ),
    "reads a recursion before": (
        f"{REACHED.removesuffix(' select node from r')}, back(node) as (select node from r {BACK}) "
        "select node from back",
        "select node from ({back})",
    ),
    "reads a recursion around": (
        f"{REACHED.removesuffix(' select node from r')} select node from edges join "
        f"(with recursive back(node) as (select node from r {BACK}) select node from back) b on b.node = src",
        "select node from edges join ({back}) b on b.node = src",
    ),
    "read by UNION ALL": (
        f"{REACHED.removesuffix(' select node from r')}, "
        "up(node, n) as (select node, 0 from r union all select node + n, n + 1 from up where n < 3) select * from up",
        "select node + v.d, v.n from ({}), (values (0, 0), (0, 1), (1, 2), (3, 3)) v(d, n)",
    ),
    "begins with a WITH": (
        "with recursive r(node) as (with s as (select node from starts), d as (select src, dst from edges) "
        f"select node from s {STEP.replace('edges', 'd')}) select node from r",
        "select node from ({})",
    ),
    "a WITH in a branch reads it": (
        "with recursive r(node) as (select node from starts union (with d as (select dst from r join edges on src = "
        "node) select dst from d)) select node from r",
        "select node from ({})",
    ),
    "of a name that is hidden": (
        f"with r as (select 99 node), edges as (select src, dst from edges) select node from ({REACHED}) "
        "union all select node from r",
        "select node from ({}) union all select 99",
    ),
}
CASES = {**{place: (query.format(REACHED), query) for place, query in AROUND.items()}, **AMONG}
BY_DAY = ("reads a recursion around",)


def constant(nodes: set[Any]) -> str:
    """Rows as a query."""
    return f"select * from values {', '.join(f'({node})' for node in sorted(nodes))} as found(node)"


def expected(sandbox: MemorySandbox, query: str) -> Counter[tuple[Any, ...]]:
    edges = [tuple(row) for row in sandbox.read("select src, dst from {edges}").collect()]
    starts = [row[0] for row in sandbox.read("select node from {starts}").collect()]
    found = reachable(starts, edges)
    back = reachable(found, [(dst, src) for src, dst in edges])
    text = query.format(constant(found), back=constant(back))
    return Counter(tuple(row) for row in sandbox.read(text.replace("edges", "{edges}")).collect())


@night
@pytest.mark.parametrize("case", sampled(CASES, lambda case: case in BY_DAY))
def test_maintained(sandbox: MemorySandbox, case: str) -> None:
    query, reference = CASES[case]
    sandbox.sources({"edges": ("src int, dst int", EDGES), "starts": ("node int", [(1,), (1,)])})
    view = sandbox.view(query)
    checked(view)
    assert Counter(rows(view)) == expected(sandbox, reference)
    assert "recursion (set)" in view.explain() and view.description().mode == "incremental"
    for change in CHANGES:
        for statement in change:
            sandbox.sql(statement)
        view.refresh()
        assert Counter(rows(view)) == expected(sandbox, reference), change
    assert checked(view).verdict == "nothing to do"


CORRELATED = (
    "select src, (with recursive r(node) as (select e.src {} select d.dst from r join edges d on r.node = d.src) "
    "select max(node) from r) n from edges e",
    "select e.src, l.node from edges e, lateral (with recursive r(node) as (select node from starts {} "
    "select d.dst from r join edges d on r.node = d.src and d.dst > e.src) select node from r) l",
)


@pytest.mark.parametrize("query", CORRELATED)
def test_a_correlated_recursion_is_refused_as_in_spark(sandbox: MemorySandbox, query: str) -> None:
    sandbox.sources({"edges": ("src int, dst int", EDGES), "starts": ("node int", [(1,)])})
    with pytest.raises(QueryError):
        sandbox.view(query.format("union all")).explain()
    refused = r"recursion r: it has no column `e`\.`src`, and cannot read one of a query around it"
    with pytest.raises(QueryError, match=refused):
        sandbox.view(query.format("union")).explain()


REFUSED = {
    "with recursive v(n) as (select 1 union all select n + 1 from v where n < 3 and n in (with recursive w(m) as "
    "(select n from v union select m + 1 from w where m < 3) select m from w)) select n from v": (
        "recursion w: it reads v within the UNION ALL of v, which Spark evaluates by itself. Move w out of"
    ),
    "with recursive r(node) as (with s as (select node from r) select node from starts union select node + 1 from s "
    "where node < 4) select node from r": "recursion r: the WITH that its definition begins with reads r",
    "with recursive r(node) as (select node from starts union select no from r) select node from r": "`no` cannot",
}


@pytest.mark.parametrize("query", REFUSED)
def test_refused(sandbox: MemorySandbox, query: str) -> None:
    sandbox.sources({"starts": ("node int", [(1,)])})
    with pytest.raises(QueryError, match=REFUSED[query]):
        sandbox.view(query).explain()
