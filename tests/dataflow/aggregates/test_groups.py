"""Groups that come, go and come back; NULL as a key; equal rows; totals over nothing."""

from __future__ import annotations

from tests.sandbox import MemorySandbox, checked, row, rows

SUMS = "select k, sum(v) s, count(*) n, min(v) lo, count(distinct v) d from t group by k"


def test_group_that_empties_and_returns(sandbox: MemorySandbox) -> None:
    """Its old sums must not come back with it, and no row may stay behind."""
    sandbox.source("t", "k int, v int", [(1, 10), (1, 20), (2, 5)])
    view = sandbox.another(SUMS)
    checked(view)
    sandbox.sql("delete from {t} where k = 1")
    checked(view)
    assert rows(view) == [(2, 5, 1, 5, 1)]
    sandbox.sql("insert into {t} values (1, 7)")
    checked(view)
    assert rows(view) == [(1, 7, 1, 7, 1), (2, 5, 1, 5, 1)]
    sandbox.sql("delete from {t}")
    checked(view)
    assert rows(view) == []


def test_null_is_a_group_key_like_any_other(sandbox: MemorySandbox) -> None:
    """One group of NULL, beside the one of (NULL, NULL), touched again and again."""
    sandbox.source("t", "k int, q string, v int", [(None, None, 1), (None, "a", 2), (1, None, 3)])
    view = sandbox.another("select k, q, sum(v) s, max(v) hi from t group by k, q")
    checked(view)
    sandbox.sql("insert into {t} values (null, null, 10), (null, 'a', null)")
    checked(view)
    sandbox.sql("delete from {t} where k is null and v in (2, 10)")
    checked(view)
    assert rows(view) == [(1, None, 3, 3), (None, "a", None, None), (None, None, 1, 1)]


def test_deleting_one_of_two_equal_rows_leaves_the_other(sandbox: MemorySandbox) -> None:
    """A view without aggregates is a bag: copies are counted, in the table and through explode and union."""
    sandbox.source("t", "k int, v double", [(1, 0.5), (1, 0.5), (2, None), (2, None)])
    bag = sandbox.view("select k, v from t", "bag")
    thrice = sandbox.view(
        "select k, v from t union all select k, x from t lateral view explode(array(v, v)) as x", "thrice"
    )
    distinct = sandbox.view("select distinct k, v from t", "distinct")
    for view in (bag, thrice, distinct):
        checked(view)
    # writing all but one copy is how a single copy is deleted
    sandbox.insert("t", "k int, v double", [(1, 0.5), (2, None), (2, None), (2, None)], mode="overwrite")
    for view in (bag, thrice, distinct):
        checked(view)
    assert rows(bag) == [(1, 0.5), (2, None), (2, None), (2, None)]
    assert len(rows(thrice)) == 12 and len(rows(distinct)) == 2


def test_totals_over_no_rows(sandbox: MemorySandbox) -> None:
    """A group-by without keys has one row whatever the input; with keys it has none."""
    sandbox.source("t", "k int, v double", [])
    total = sandbox.another("select count(*) n, sum(v) s, min(k) lo, avg(v) a, max_by(k, v) b from t")
    above = sandbox.another("select n + 1 m from (select count(*) n from t where k > 0) where n = 0")
    keyed = sandbox.another("select k, count(*) n from t group by k")
    for view in (total, above, keyed):
        checked(view)
    assert tuple(row(total)) == (0, None, None, None, None)
    assert (rows(above), rows(keyed)) == ([(1,)], [])
    sandbox.sql("insert into {t} values (1, 2.5), (-1, null)")
    for view in (total, above, keyed):
        checked(view)
    assert tuple(row(total)) == (2, 2.5, -1, 2.5, 1) and rows(above) == []
    sandbox.sql("delete from {t}")
    for view in (total, above, keyed):
        checked(view)
    assert tuple(row(total)) == (0, None, None, None, None)


def test_having_group_that_appears_and_vanishes(sandbox: MemorySandbox) -> None:
    """The state keeps groups that the answer hides."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 1), (2, 1)])
    view = sandbox.another("select k, sum(v) s from t group by k having count(*) > 1")
    checked(view)
    sandbox.sql("insert into {t} values (1, 5)")
    checked(view)
    assert rows(view) == [(1, 6), (2, 2)]
    sandbox.sql("delete from {t} where v = 5 or k = 2")
    checked(view)
    assert rows(view) == []


def test_empty_table_of_groups_below_a_total(sandbox: MemorySandbox) -> None:
    """Three group-bys deep, and all of them run empty."""
    sandbox.source("t", "k int, q int, v int", [(1, 1, 1), (1, 2, 3), (2, 1, 5)])
    view = sandbox.another("""
        select count(*) n, sum(m) s from (
            select k, max(c) m from (select k, q, sum(v) c from t group by k, q) group by k)""")
    checked(view)
    sandbox.sql("update {t} set v = 9 where k = 1 and q = 1")
    checked(view)
    sandbox.sql("delete from {t}")
    checked(view)
    assert tuple(row(view)) == (0, None)


def test_groups_of_which_no_column_is_read(sandbox: MemorySandbox, long: bool) -> None:
    """Spark prunes what only counts; the groups are still there, each once."""
    sandbox.source("t", "k int, v int", [(1, 1), (1, 1), (2, 2), (None, 3)])
    queries = (
        "select 'group' what from (select k from t group by k)",
        "select count(*) n from (select k from t intersect select v from t)",
        "select count(*) n from (select k from t group by k)",
        "select count(*) n from (select distinct k, v from t)",
        "select count(*) n from (select k, sum(v) s from t group by k having sum(v) > 2)",
    )
    views = [sandbox.another(query) for query in (queries if long else queries[:2])]
    for change in ("", "insert into {t} values (3, 3), (1, 7)", "delete from {t} where k = 1 or k is null"):
        if change:
            sandbox.sql(change)
        for view in views:
            checked(view)
