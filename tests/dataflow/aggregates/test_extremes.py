"""Aggregates without an inverse: a deletion that reaches the present value recomputes its group, and only then."""

from __future__ import annotations

import itertools

import pytest

from deltafold.algebra.monoids.family import extreme
from deltafold.refresh.stages import program_run
from tests.night import night
from tests.reading import large_by_day
from tests.sandbox import MemorySandbox, Step, checked, rows

pytestmark = large_by_day

QUERY = """select k, min(v) lo, max(v) hi, bit_or(v) bits, min_by(name, struct(v, name)) first, bool_and(v < 0) below
from t group by k"""


def test_deleting_the_present_minimum(sandbox: MemorySandbox) -> None:
    """Also one of two equal minima, and together with a new one in the same change."""
    sandbox.source("t", "k int, v int, name string", [(1, 3, "c"), (1, 1, "a"), (1, 2, "b"), (2, 1, "x"), (2, 1, "x")])
    view = sandbox.another(QUERY)
    checked(view)
    sandbox.sql("delete from {t} where v = 1 and k = 1")
    checked(view)
    assert rows(view)[0][:3] == (1, 2, 3)
    sandbox.sql("delete from {t} where v = 2")
    sandbox.sql("insert into {t} values (1, 0, 'z'), (2, 1, 'y')")
    checked(view)
    sandbox.sql("update {t} set v = v + 10")
    checked(view)
    assert [r[:3] for r in rows(view)] == [(1, 10, 13), (2, 11, 11)]


@night
def test_all_negative_maxima(sandbox: MemorySandbox) -> None:
    """Zero is no value of an empty group's maximum."""
    sandbox.source("t", "k int, v int, name string", [(1, -3, "a"), (1, -5, "b"), (2, -(2**31), "c"), (3, None, "d")])
    view = sandbox.another(QUERY)
    checked(view)
    sandbox.sql("delete from {t} where v = -3")
    sandbox.sql("insert into {t} values (2, -1, 'e'), (3, -7, 'f')")
    checked(view)
    assert [r[2] for r in rows(view)] == [-5, -1, -7]
    sandbox.sql("delete from {t} where v > -6 or k = 3 and v is not null")
    checked(view)
    assert [r[2] for r in rows(view)] == [-(2**31), None]


def test_extremes_of_every_type(sandbox: MemorySandbox) -> None:
    """Strings, dates, timestamps, booleans, arrays and structs are ordered too."""
    schema = "k int, s string, d date, b boolean, a array<int>, x struct<p: int, q: string>"
    sandbox.source("t", schema, [])
    sandbox.sql("""insert into {t} values
        (1, 'b', date'2020-01-02', true, array(1, null), struct(1, 'a')),
        (1, '', date'0001-01-01', false, array(), struct(null, 'z')),
        (1, null, null, null, null, null),
        (2, 'ä', date'9999-12-31', true, array(2), struct(2, null))""")
    view = sandbox.view(
        "select k, min(s), max(s), min(d), max(d), min(b), max(b), max(a), min(x), max(x), max_by(x, d), count(a) "
        "from t group by k"
    )
    checked(view)
    sandbox.sql("delete from {t} where s = ''")
    sandbox.sql("update {t} set s = 'c', a = array(9) where k = 2")
    checked(view)
    sandbox.sql("delete from {t} where s = 'b'")
    checked(view)
    assert rows(view)[0] == (1, *[None] * 10, 0)


def test_equal_orders_are_settled_by_the_value(sandbox: MemorySandbox) -> None:
    """Spark leaves open which of them max_by gives; view and verification take the same, and explain says so."""
    sandbox.source("t", "v int, o int", [(1, 5), (9, 5), (4, 5), (7, 1)])
    view = sandbox.view("select max_by(v, o) hi, min_by(v, o) lo from t")
    checked(view)
    assert rows(view) == [(9, 7)]
    assert "the largest value is taken among equal orders" in view.explain()
    sandbox.sql("insert into {t} values (12, 5), (8, 1), (2, 1)")
    checked(view)
    assert rows(view) == [(12, 2)]
    sandbox.sql("delete from {t} where v in (12, 2)")
    checked(view)
    assert rows(view) == [(9, 7)]


def test_orders_that_are_never_null(sandbox: MemorySandbox) -> None:
    """A struct of a count claims that its field is not NULL; the state's columns claim nothing."""
    sandbox.source("t", "k int, v int, name string", [(1, 3, "c"), (1, 1, "a"), (2, 5, "b")])
    view = sandbox.another(
        "select max_by(k, named_struct('o', n, 'k', k)) most, min(named_struct('o', n)) least "
        "from (select k, count(*) n from t group by k)"
    )
    checked(view)
    sandbox.sql("insert into {t} values (2, 6, 'd'), (2, 7, 'e')")
    checked(view)
    assert rows(view) == [(2, (2,))]


@pytest.mark.parametrize("function", ["min", "max"])
def test_what_the_change_rules_out_needs_no_recompute(sandbox: MemorySandbox, function: str) -> None:
    """Protects from a group that keeps a deleted extreme, because the change alone was believed."""
    monoid = extreme(function, "double")
    values = ["CAST(NULL AS DOUBLE)", *(f"CAST('{text}' AS DOUBLE)" for text in ("1", "2", "3", "NaN"))]
    cases = ", ".join(f"({t}, {m}, {gone})" for t, m, gone in itertools.product(values, repeat=3))
    columns = {"t": {"m": "t"}, "u": {"m": "m", "gone": "gone"}}
    needed, possible = (sql.format(**columns) for sql in (monoid.needs_recompute_sql, monoid.may_recompute_sql))
    table = f"SELECT * FROM VALUES {cases} AS v(t, m, gone)"
    assert sandbox.spark.sql(f"SELECT 1 FROM ({table}) WHERE ({needed}) AND NOT ({possible})").isEmpty()
    assert not sandbox.spark.sql(f"SELECT 1 FROM ({table}) WHERE NOT ({possible}) AND gone IS NOT NULL").isEmpty()


def test_a_group_whose_extreme_is_replaced_is_not_read(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from reading the rows of every group of an outer maximum whose inner sum grew."""
    sandbox.source("t", "k int, q int, v int", [(1, 1, 5), (1, 2, 9), (2, 1, 3)])
    view = sandbox.another("select k, max(s) m from (select k, q, sum(v) s from t group by k, q) group by k")
    checked(view)
    recomputed: list[object] = []
    original = program_run.GroupRecompute
    monkeypatch.setattr(program_run, "GroupRecompute", lambda *args: (recomputed.append(args), original(*args))[1])
    sandbox.sql("insert into {t} values (1, 2, 1), (2, 1, 4), (2, 7, 1)")
    checked(view)
    assert not recomputed
    sandbox.sql("insert into {t} values (1, 2, -8)")
    checked(view)
    assert recomputed and rows(view) == [(1, 5), (2, 7)]


@night
def test_extremes_of_one_order_are_of_one_row(sandbox: MemorySandbox) -> None:
    """Protects from a latest row that never existed, where several rows are the latest."""
    sandbox.source(
        "t", "k int, ts int, a int, b string", [(1, 5, 1, "z"), (1, 5, 2, "y"), (1, 4, 9, "a"), (2, 1, 1, None)]
    )
    latest = "select k, max_by(a, ts) a, max_by(b, ts) b, max(ts) ts from t group by k"
    view, others = sandbox.view(latest), sandbox.another(
        "select k, min_by(b, ts) b, min_by(a, ts) a, max_by(b, ts, 2) bs, max_by(a, ts, 2) most, "
        "max_by(b, ts) filter (where a < 2) low, max_by(map('b', b), ts)['b'] m, max_by(a, ts) n from t group by k"
    )  # fmt: skip
    wanted = [[(1, 2, "y", 5), (2, 1, None, 1)], [(1, 1, "z", 5), (2, 1, None, 1)], [(1, 3, "b", 5), (2, 1, None, 1)]]
    steps: tuple[Step, ...] = (
        ("insert", "t", []), ("delete", "t", "a = 2"), ("insert", "t", [(1, 5, 3, "b"), (1, None, 7, "c")])
    )  # fmt: skip
    for step, expected in zip(steps, wanted, strict=True):
        sandbox.do(step)
        checked(view)
        checked(others)
        assert rows(view) == expected
    assert rows(others)[0] == (1, "a", 9, ["z", "b"], [1, 3], "z", "z", 1)
