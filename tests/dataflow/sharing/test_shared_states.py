"""A state that several group-bys share: refreshed, explained, and met by warehouses that kept them apart."""

from __future__ import annotations

import re

import pytest

from deltafold.algebra.errors import ChangedQueryError
from deltafold.api import Delta
from deltafold.compiler import compile as compiler
from tests.night import night
from tests.reading import large_by_day
from tests.sandbox import DeltaSandbox, MemorySandbox, checked, rows

pytestmark = large_by_day

# TPC-H 15: the supplier with the largest revenue, over a table of revenues that is read twice
REVENUE = """with revenue as (
    select supplier, sum(price * (1 - discount)) as total from lines where day >= date'2024-01-01' group by supplier)
select s.name, r.total from suppliers s join revenue r on s.supplier = r.supplier
where r.total = (select max(total) from revenue)"""
LINES = "supplier int, price decimal(12,2), discount decimal(3,2), day date"
TABLES = {
    "lines": (LINES, []),
    "suppliers": ("supplier int, name string", [(1, "one"), (2, "two"), (3, "three"), (None, "none")]),
}
EARLY, LATE = "date'2023-05-05'", "date'2024-05-05'"


@night
def test_the_best_supplier_needs_two_states(sandbox: MemorySandbox) -> None:
    """One of revenues, which both readers share, and one of their maximum."""
    view = sandbox.sources(TABLES).view(REVENUE)
    explained = view.explain()
    assert re.findall(r"^state_\d: lineage key \((\w*)\)", explained, re.MULTILINE) == ["supplier_2", ""]
    assert "note: state_1 is shared by 2 group-bys of the same rows: (supplier_2, total) and (" in explained
    checked(view)
    for values in (f"(1, 10, 0.1, {LATE}), (2, 8, 0, {LATE})", f"(2, 9, 0, {LATE}), (3, 99, 0, {EARLY})"):
        sandbox.sql(f"insert into {{lines}} values {values}")
        checked(view)
    assert [row[0] for row in rows(view)] == ["two"]
    sandbox.sql("delete from {lines} where price = 9")
    sandbox.sql("insert into {lines} values (null, 9, 0, date'2024-01-01')")
    assert set(checked(view).paths) == {"state_1", "state_2", "view"}
    assert [row[0] for row in rows(view)] == ["one"]
    sandbox.sql(f"update {{lines}} set price = 9, day = {LATE} where supplier = 3")
    sandbox.sql("delete from {suppliers} where supplier = 1")
    checked(view)
    sandbox.sql("delete from {lines}")
    checked(view)
    assert rows(view) == []


@pytest.mark.parametrize(
    "query",
    [
        # both sides of a join read the one state, one of them fewer columns
        """select a.k, a.s, b.n from (select k, sum(v) s, count(*) n, max(v) m from t group by k) a
           left join (select k, count(*) n from t group by k) b on a.k = b.k and a.n > 1""",
        # the larger comes second
        pytest.param(
            """select k, s from (select k, sum(v) s from t group by k)
               union all select k, m from (select k, sum(v) s, max(v) m from t group by k) where m > s / 2""",
            marks=pytest.mark.night,
        ),
        # both read through an anti join, by another key
        pytest.param(
            """with g as (select k, q, sum(v) s from t group by k, q)
               select * from g a where not exists (select 1 from g b where b.q = a.q and b.s > a.s)""",
            marks=pytest.mark.night,
        ),
        # nested, and windows over both
        pytest.param(
            """with g as (select k, q, min(v) s from t group by k, q), h as (select q, max(s) m from g group by q)
               select x.q, x.m, y.m n, rank() over (partition by x.m order by y.q) r
               from h x left join h y on x.m = y.m""",
            marks=pytest.mark.night,
        ),
        # a DISTINCT is one of the group-bys
        """select k, count(*) n from (select distinct k, q from t) group by k
           union all select k, max(s) from (select k, q, sum(v) s from t group by k, q) group by k""",
        # totals, also of no rows
        pytest.param(
            """select a.s, b.s z from (select sum(v) s, count(*) n from t where k > 1) a
               cross join (select sum(v) s from t where k > 1) b""",
            marks=pytest.mark.night,
        ),
    ],
)
def test_shared_states_follow_any_change(sandbox: MemorySandbox, query: str, long: bool) -> None:
    """Readers get each other's state under their own columns, before and after each change."""
    sandbox.source("t", "k int, q int, v int", [(k % 3, k % 4, k) for k in range(12)] + [(None, None, 5)])
    view = sandbox.view(query)
    assert " is shared by 2 group-bys" in view.explain()
    checked(view)
    statements = (
        "insert into {t} values (1, 1, 50), (7, 7, 7), (null, 2, 1)",
        "delete from {t} where v = 50 or q is null",
        "update {t} set k = 2 where q = 1",
        "delete from {t}",
    )
    for number, statement in enumerate(statements):
        sandbox.sql(statement)
        if long or number in (1, 3):
            checked(view)


@night
def test_both_readers_on_delta(delta: DeltaSandbox) -> None:
    """Two readers of one table in one join, which Delta reads under identities that differ."""
    delta.source("t", "k int, v int", [(1, 1), (2, 2), (2, 3)])
    view = delta.view("with g as (select k, sum(v) s from t group by k) select a.k, b.s from g a join g b on a.s < b.s")
    checked(view)
    delta.sql("insert into {t} values (3, 9), (1, 7)")
    delta.sql("delete from {t} where v = 2")
    assert set(checked(view).paths) == {"state_1", "view"}


@night
def test_a_warehouse_that_kept_them_apart_is_told_so(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query is the same and its tables are not: the reason is named, and a rebuild goes on."""
    with monkeypatch.context() as earlier:
        apart = tuple(each for each in compiler.PASSES if each.__name__ != "share_states")
        earlier.setattr(compiler, "PASSES", apart)
        view = sandbox.sources(TABLES).view(REVENUE)
        sandbox.sql(f"insert into {{lines}} values (1, 10, 0.1, {LATE})")
        assert "state_3" in checked(view).paths
    sandbox.sql(f"insert into {{lines}} values (2, 30, 0.1, {LATE})")
    warehouse = sandbox.opened()
    for name in TABLES:
        warehouse.source(name, Delta(sandbox.path(name)))
    again = warehouse.view("v", REVENUE)
    said = r"state_1, state_2, state_3, view then, state_1, state_2, view now.*several equal group-bys"
    with pytest.raises(ChangedQueryError, match=said):
        again.refresh()
    rebuilt = warehouse.view("v", REVENUE, on_change="rebuild")
    report = checked(rebuilt)
    assert report.verdict == "rebuilt" and set(report.paths) == {"state_1", "state_2", "view"}
    sandbox.sql(f"insert into {{lines}} values (1, 70, 0.1, {LATE})")
    checked(rebuilt)
