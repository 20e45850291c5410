"""Values that have no order (maps, variants), and types that Delta does not store."""

from __future__ import annotations

import pytest

from deltafold.algebra.errors import RefusedError
from tests.night import night
from tests.sandbox import DeltaSandbox, MemorySandbox, checked, rows

VARIANTS = """select k, to_variant_object(s) from values (1, named_struct('p', 1)), (1, named_struct('p', 5)),
(1, named_struct('p', 5)), (2, named_struct('p', null)), (2, null) as v(k, s)"""


def test_extremes_within_variants(sandbox: MemorySandbox) -> None:
    """Spark cannot tell equal variants, so that none of a change's rows cancel: not those only written again either."""
    sandbox.source("t", "k int, j variant", [])
    sandbox.sql(f"insert into {{t}} {VARIANTS}")
    view = sandbox.another(
        "select k, max(variant_get(j, '$.p', 'int')) m, count(j) n, sum(variant_get(j, '$.p', 'double')) s "
        "from t group by k"
    )
    checked(view)
    sandbox.do(("update", "t", {"j": "to_variant_object(named_struct('p', 3))"}, "k = 2 and j is not null"))
    checked(view)
    assert rows(view) == [(1, 5, 3, 11.0), (2, 3, 1, 3.0)]
    sandbox.sql("delete from {t} where variant_get(j, '$.p', 'int') = 5")
    sandbox.sql("insert into {t} select 1, to_variant_object(named_struct('p', 4))")
    checked(view)
    assert rows(view) == [(1, 4, 2, 5.0), (2, 3, 1, 3.0)]
    sandbox.sql("delete from {t} where variant_get(j, '$.p', 'int') > 3 or k = 2 and j is null")
    checked(view)
    assert rows(view) == [(1, 1, 1, 1.0), (2, 3, 1, 3.0)]


@night
def test_extremes_of_a_join_with_variants(sandbox: MemorySandbox) -> None:
    """A row that one term of the join adds and another removes must not be taken for a value."""
    sandbox.source("t", "k int, j variant", [])
    sandbox.sql(f"insert into {{t}} {VARIANTS}")
    sandbox.source("u", "k int, f int", [(1, 1), (2, 2), (2, 3)])
    view = sandbox.another(
        "select t.k, max(variant_get(t.j, '$.p', 'int') * f) m, max(f) f, count(t.j) n "
        "from t join u on t.k = u.k group by t.k"
    )
    checked(view)
    sandbox.do(("update", "t", {"j": "to_variant_object(named_struct('p', 9))"}, "variant_get(j, '$.p', 'int') = 1"))
    sandbox.do(("update", "u", {"f": "f + 10"}, "k = 1"))
    sandbox.sql("delete from {u} where f = 3")
    sandbox.sql("insert into {t} select 2, to_variant_object(named_struct('p', 1))")
    checked(view)
    assert rows(view) == [(1, 99, 11, 3), (2, 2, 2, 2)]
    sandbox.sql("delete from {t} where variant_get(j, '$.p', 'int') in (9, 1)")
    sandbox.sql("insert into {u} values (1, 100)")
    checked(view)
    assert rows(view) == [(1, 500, 100, 4), (2, None, 2, 1)]


def test_extremes_within_maps(sandbox: MemorySandbox) -> None:
    """The order of a map's entries is part of it, though Spark sorts those of a map that it groups by."""
    sandbox.source("t", "k int, m map<string,int>, a array<map<string,int>>", [])
    sandbox.sql("""insert into {t} select 1, map('z', 9, 'b', 1), null union all select 1, map('c', 2, 'a', 3), array()
        union all select 1, null, array(map('x', 1))""")
    view = sandbox.another(
        "select k, max(map_keys(m)[0]) first, max(element_at(m, 'a')) a, count(m) n from t group by k"
    )
    nested = sandbox.another("select k, max(element_at(get(a, 0), 'x')) x, max(size(m)) n from t group by k")
    checked(view)
    checked(nested)
    sandbox.sql("update {t} set m = map('b', 1, 'z', 9) where map_keys(m)[0] = 'z'")
    sandbox.sql("update {t} set a = array(map('x', 0)) where get(a, 0) is not null")
    checked(view)
    checked(nested)
    assert (rows(view), rows(nested)) == ([(1, "c", 3, 2)], [(1, 0, 2)])
    sandbox.sql("delete from {t} where map_keys(m)[0] = 'c'")
    checked(view)
    assert rows(view) == [(1, "b", None, 1)]


@night
def test_what_has_no_order_by_what_has_one(sandbox: MemorySandbox) -> None:
    """A variant or a map cannot be merged: its group is recomputed, and verified by its text."""
    sandbox.source("t", "k int, ts int, j variant, m map<string,int>", [])
    sandbox.sql("""insert into {t} select 1, 1, to_variant_object(named_struct('p', 1)), map('a', 1)
        union all select 1, 2, to_variant_object(array(2)), map('b', 2) union all select 2, 1, null, null""")
    sandbox.source("u", "k int", [(1,), (2,)])
    view = sandbox.view("select k, max_by(j, ts) j, max_by(m, ts) m, max(ts) ts from t join u using (k) group by k")

    def shown() -> list[tuple[int, str, str]]:
        view.refresh()
        assert view.verify().ok
        return sorted(tuple(row) for row in view.answer().selectExpr("k", "to_json(j)", "to_json(m)").collect())

    assert shown() == [(1, "[2]", '{"b":2}'), (2, None, None)]
    sandbox.sql("update {t} set j = parse_json('\"x\"') where ts = 2")
    assert shown() == [(1, '"x"', '{"b":2}'), (2, None, None)]
    sandbox.sql("delete from {t} where ts = 2 or k = 2")
    assert shown() == [(1, '{"p":1}', '{"a":1}')]


def test_subqueries_of_what_has_no_order(sandbox: MemorySandbox) -> None:
    """A scalar subquery has one row, so that it needs no order to choose by."""
    sandbox.source("t", "k int", [(1,), (2,)])
    sandbox.source("u", "id int, j variant, m map<string,int>", [])
    sandbox.sql("insert into {u} select 1, to_variant_object(named_struct('p', 5)), map('a', 3)")
    view = sandbox.another(
        "select k, variant_get((select j from u where id = 1), '$.p', 'int') p, "
        "element_at((select m from u where id = 1), 'a') a from t"
    )
    checked(view)
    sandbox.do(("update", "u", {"j": "to_variant_object(named_struct('p', 6))", "m": "map('a', 4)"}, "true"))
    checked(view)
    assert rows(view) == [(1, 6, 4), (2, 6, 4)]
    sandbox.sql("delete from {u}")
    checked(view)
    assert rows(view) == [(1, None, None), (2, None, None)]


@pytest.mark.parametrize("policy", ["incremental", "auto", "definition"])
def test_an_answer_that_delta_does_not_store(sandbox: MemorySandbox, policy: str) -> None:
    """Said by explain and by the refresh, before anything is written."""
    sandbox.source("t", "k int, a timestamp, b timestamp", [])
    view = sandbox.view("select k, max(b) - min(a) as span from t group by k", policy=policy)
    for call in (view.explain, view.refresh):
        with pytest.raises(RefusedError, match=r"column span.*even if it is recomputed.*timestampdiff"):
            call()
    assert not list((sandbox.folder / "warehouse").rglob("*.parquet"))
    assert not view.history()


def test_a_state_that_delta_does_not_store(sandbox: MemorySandbox) -> None:
    """Where the answer can be stored, it can be recomputed."""
    sandbox.source("t", "k int, a timestamp, b timestamp", [])
    sandbox.sql("insert into {t} values (1, timestamp'2020-01-01', timestamp'2020-01-03'), (1, now(), null)")
    query = "select k, extract(day from max(b - a)) days from t group by k"
    with pytest.raises(RefusedError, match="interval day to second"):
        sandbox.view(query).explain()
    view = sandbox.view(query, "w", policy="auto")
    assert "interval day to second" in view.explain()
    checked(view)
    assert rows(view) == [(1, 2)]


def test_the_collation_that_every_text_has(delta: DeltaSandbox) -> None:
    """Delta stores it, so naming it is no reason to refuse an answer or a state."""
    delta.source("t", "k string, v int", [("a", 1), ("A", 2), (None, 3)])
    query = "select k collate UTF8_BINARY k, max(struct(cast(v as string collate UTF8_BINARY) x)) m from t group by 1"
    view = delta.view(query)
    checked(view)
    delta.sql("delete from {t} where k = 'A'")
    checked(view)


@night
def test_fixed_length_texts(delta: DeltaSandbox) -> None:
    """Protects from comparisons without the spaces that Spark adds to texts of CHAR columns: no row was equal."""
    delta.sql(f"create table delta.`{delta.path('t')}` (c char(5), d char(3), n int) using delta")
    delta.sql("insert into {t} values ('a', 'a', 1), ('b', 'x', 2)")
    delta.declare("t")
    delta.warehouse.source("below", delta.view("select c, n from t", "below"))
    above = "select n from below where c = 'a'"
    queries = (
        above,
        "select n from t where c = 'a' or d in ('x', 'y')",
        "select l.n, r.d from t l join t r on l.c = r.d",
    )
    views = [delta.another(query) for query in queries]
    for view in views:
        checked(view)
    delta.sql("insert into {t} values ('x', 'b', 3), ('a', 'a', 4)")
    delta.sql("delete from {t} where n = 1")
    for view in views:
        checked(view)
    assert [len(rows(view)) for view in views] == [1, 2, 3]
