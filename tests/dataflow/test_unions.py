"""UNION ALL of group-bys, whose states may store their keys in another order than the query lists them."""

from __future__ import annotations

from tests.reading import large_by_day
from tests.sandbox import MemorySandbox, checked

pytestmark = large_by_day


def test_inputs_of_a_union_keep_their_columns_in_order(sandbox: MemorySandbox) -> None:
    """The outer key moves to the front of the inner lineage key; the union's columns must not move with it."""
    sandbox.source("t", "k int, q int, v int", [(k, q, k * q) for k in range(4) for q in range(3)])
    view = sandbox.another("""
        select b, sum(s) s, sum(a) a, max(a) m from (
            select k a, q b, sum(v) s from t group by k, q
            union all
            select k a, q b, max(v) s from t where k > 1 group by k, q
        ) group by b""")
    checked(view)
    sandbox.sql("delete from {t} where k = 3 and q < 2")
    sandbox.sql("insert into {t} values (9, 0, 5), (2, 1, 7)")
    checked(view)
