"""Scalar subqueries wherever a query may have them: a change of what they read is a change of the answer."""

from __future__ import annotations

import pytest

from deltafold.algebra.errors import RefusedError
from tests.reading import large_by_day
from tests.sandbox import MemorySandbox, checked, rows

pytestmark = large_by_day

QUERIES = (
    "select k, max(v) m, (select sum(w) from b) t from a group by k",
    "select count(*) n, (select max(w) from b) t from a",
    "select k, sum(v + (select max(w) from b)) s from a group by k",
    "select k + (select max(w) from b) kk, count(*) n from a group by k + (select max(w) from b)",
    "select k, max(v) filter (where v < (select avg(w) from b)) m from a group by k",
    "select k, sum(v), (select max(w) from b) x from a group by rollup(k)",
    "select k, percentile(v, 0.5) + (select max(w) from b) p from a group by k",
    "select a.k, b.w from a left join b on a.v = b.w and a.v < (select avg(w) from b)",
)


def sources(sandbox: MemorySandbox) -> None:
    sandbox.source("a", "k int, v int", [(i % 3, i) for i in range(12)])
    sandbox.source("b", "w int", [(i,) for i in range(12)])


def test_a_subquery_is_read_wherever_it_stands(sandbox: MemorySandbox, long: bool) -> None:
    """Protects from one that is taken for a constant, or for NULL, while its source goes unread."""
    sources(sandbox)
    views = [sandbox.another(query) for query in (QUERIES if long else QUERIES[::4])]
    for change in ("", "insert into {b} values (100)", "delete from {b}", "update {a} set v = v + 1 where k = 1"):
        if change:
            sandbox.sql(change)
        for view in views:
            checked(view)


@pytest.mark.parametrize(
    ("query", "because"),
    [
        ("select explode(array(1, (select max(w) from b))) e from a", "Spark's operator Generate contains a subquery"),
        ("select k, v from a order by v * (select max(w) - 50 from b) limit 2", "of a LIMIT contain a subquery"),
    ],
)
def test_a_subquery_without_a_rule_is_refused(sandbox: MemorySandbox, query: str, because: str) -> None:
    """An operator that Spark evaluates whole would see its sources empty."""
    sources(sandbox)
    with pytest.raises(RefusedError, match=because):
        checked(sandbox.another(query))


def test_what_a_limit_shows(sandbox: MemorySandbox) -> None:
    """The order is by a column that is not shown, so Spark's projection stands above it."""
    sources(sandbox)
    view = sandbox.another("select (select max(w) from b) m, k from a order by v limit 2")
    checked(view)
    sandbox.sql("insert into {b} values (100)")
    checked(view)


def test_first_rows_beside_a_subquery(sandbox: MemorySandbox) -> None:
    """Spark 4.2 by itself loses the ORDER BY of the limit below: rule PushProjectionThroughLimitAndOffset."""
    sandbox.source("t", "k int, n int", [(1, 0), (2, 0), (3, None)])
    sandbox.source("s", "a int", [(1,), (2,)])
    view = sandbox.view(
        "select n, (select sum(a) from s where a > n) as above from (select n from t order by n, k limit 1)",
        policy="auto",
    )
    checked(view)
    assert rows(view) == [(None, None)]
    sandbox.sql("delete from {t} where n is null")
    checked(view)
    assert rows(view) == [(0, 3)]
