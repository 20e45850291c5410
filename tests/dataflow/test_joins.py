"""Joins of changing sources: every kind, any condition, any mix of changes on any side in one refresh."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.night import every, night, sampled
from tests.reading import large_by_day
from tests.replay import Recording, record
from tests.sandbox import DeltaSandbox, MemorySandbox, Step, checked, rows

pytestmark = large_by_day

KINDS = ("inner", "left", "right", "full", "left semi", "left anti")
CONDITIONS = {
    "equality": "l.k = r.k",
    "null-safe equality": "l.k <=> r.k",
    "equality and more": "l.k = r.k and l.v > r.w",
    "range": "l.v between r.w and r.w + 2",
    "inequality": "l.k <> r.k",
    "or": "l.k = r.k or l.v = r.w",
    "none": "true",
}
HISTORY: tuple[tuple[Step, ...], ...] = (
    (
        ("insert", "l", [(1, 2), (3, 3), (None, 4)]), ("insert", "r", [(1, 1), (3, 3), (None, 1)]),
        ("insert", "l", [(4, 4)]), ("delete", "r", "k = 1"),
    ),
    (("delete", "l", "k = 3"), ("insert", "r", [(4, 4), (4, 4)])),
    (("update", "l", {"k": "4"}, "k = 1"), ("update", "r", {"w": "w + 1"}, "true")),
    (("delete", "r", "true"),),
    (("insert", "r", [(4, 1), (None, 4)]), ("copy", "l", "true"), ("delete", "l", "v = 2"), ("delete", "r", "k = 4")),
)  # fmt: skip
NESTED = (
    "select k, v from l where exists (select 1 from r where r.k = l.k)",
    "select k, v from l where not exists (select 1 from r where r.k = l.k and r.w > l.v)",
    "select k, v from l where k in (select k from r)",
    "select k, v from l where k not in (select k from r)",
    "select k, v from l where k not in (select k from r where k is not null)",
    "select k, v from l where v = 3 or exists (select 1 from r where r.k = l.k)",
    "select k, v from l where (k in (select k from r)) <> (v in (select w from r))",
    "select k, (select max(w) from r where r.k = l.k) m, (select count(*) from r where r.k = l.k) n from l",
    "select k, v from l where v > (select avg(w) from r)",
    "select k, sum(v) s from l group by k having sum(v) > (select min(w) from r)",
    "select l.k, x.m from l, lateral (select max(w) m from r where r.k = l.k) x",
    "select l.k, x.w from l left join lateral (select w from r where r.k = l.k) x on true",
    "select k, el from l lateral view explode(array(v, k)) as el",
    "select k from l intersect select k from r",
    "select k from l intersect all select k from r",
    "select k from l except select k from r",
    "select k, v from l except all select k, w from r",
    "select k, v from l union select k, w from r",
    "select a.k, b.v, c.w from l a join l b on a.k = b.k join r c on c.k = b.v",
    "select a.k, count(*) n from l a left join l b on a.v = b.k group by a.k",
    "select x.k, y.v, z.w from l x, r z, l y where x.k = y.k and y.k = z.k and x.v > 1 and z.w < 5",
    "select x.v, y.v u, z.w from (select if(k = 1, double('nan'), 0.0d * k) d, v from l) x, "
    "(select if(k = 1, double('nan'), -0.0d * k) d, v from l) y, (select if(k = 1, double('nan'), 0.0d) d, w from r) z "
    "where x.d = y.d and y.d = z.d",
    "with t as (select k, count(*) n from l group by k) select a.k, b.w from t a join r b on a.n = b.w",
    "select n, count(*) c from (select l.k, count(r.k) n from l left join r on l.k = r.k group by l.k) group by n",
    "select x.k, avg(y.w) a from l x, r y where x.v = y.k group by x.k",
    "select k, sum(v) + (select max(w) from r) s from l group by k",
    "select l.k, w from l left join r on l.k = r.k and exists (select 1 from l x where x.v = r.w)",
    "select k from l where exists (select 1 from r)",
    "select k, v from l where exists (select 1 from r where r.k = l.k and exists (select 1 from l x where x.v = r.w))",
    "select k from l where k in (select k from r where not exists (select 1 from l x where x.v = r.w and x.k > 1))",
    "select k, v from l where not exists (select 1 from r where r.w = l.v and not exists (select 1 from l x join r y "
    "on x.k = y.k where x.v = r.k and exists (select 1 from l z where z.k <=> y.w)))",
    "select v from l order by (select max(w) from r), v limit 2",
    "select * from l pivot (sum(v) for k in (1, 2))",
    "select k, session_window(timestamp_seconds(v), '2 seconds').start s, count(*) n from l group by k, "
    "session_window(timestamp_seconds(v), '2 seconds')",
)


TABLES = {
    "l": ("k int, v int", [(1, 1), (1, 1), (2, 2), (None, 3)]),
    "r": ("k int, w int", [(1, 1), (2, 0), (2, 5), (None, 2)]),
}


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, long: bool) -> Recording:
    """By day the first three rounds are one."""
    rounds = HISTORY if long else (tuple(step for steps in HISTORY[:3] for step in steps), *HISTORY[3:])
    return record(spark, tmp_path_factory.mktemp("history"), TABLES, rounds)


BOTH = [(kind, condition) for condition in CONDITIONS for kind in KINDS]
# the rules of each kind are one of these four; all pairs by night
CHOSEN = (("inner", "equality and more"), ("left", "null-safe equality"), ("full", "equality"), ("left anti", "or"))


@pytest.mark.parametrize("join", sampled(BOTH, CHOSEN.__contains__, ", ".join))
def test_every_kind_under_changes_of_both_sides(
    sandbox: MemorySandbox, history: Recording, join: tuple[str, str]
) -> None:
    """Cross terms, last matches, NULL keys, emptied and refilled sides: no kind may lose or double a row."""
    kind, condition = join
    shown = "l.k, v" if kind in ("left semi", "left anti") else "l.k, v, r.k as rk, w"
    history.check(sandbox, f"select {shown} from l {kind} join r on {CONDITIONS[condition]}")


@pytest.mark.parametrize("number", every(len(NESTED), range(len(NESTED))))
def test_subqueries_set_operations_and_joins_of_joins(sandbox: MemorySandbox, history: Recording, number: int) -> None:
    """Each is joins and aggregates after Spark's own unnesting."""
    history.check(sandbox, NESTED[number])


def test_deleting_one_of_two_equal_rows(sandbox: MemorySandbox) -> None:
    """A join row's weight is the product of its sides' weights."""
    sandbox.sources(TABLES)
    view = sandbox.another("select l.k, v, w from l join r on l.k = r.k")
    checked(view)
    sandbox.do(("insert", "r", [(1, 1)]), ("delete", "l", "k = 2"))
    checked(view)
    assert rows(view) == [(1, 1, 1)] * 4
    sandbox.do(("delete", "l", "true"), ("insert", "l", [(1, 1)]))
    checked(view)
    assert rows(view) == [(1, 1, 1)] * 2


@night
def test_joins_on_delta(delta: DeltaSandbox) -> None:
    """The same over Delta tables: both sides of several joins change in one refresh, by files and deletion vectors."""
    delta.source("l", "k int, v int", [(1, 1), (1, 1), (2, 2), (None, 3)])
    delta.source("r", "k int, w int", [(1, 1), (2, 0), (2, 5), (None, 2)])
    queries = [
        "select r.w, sum(l.v) s, count(*) n from l join r on l.k = r.k group by r.w",
        "select l.k, v, r.k as rk, w from l full join r on l.k = r.k",
        "select k, v from l where k not in (select k from r where k is not null)",
    ]
    views = [delta.view(query, f"v{i}") for i, query in enumerate(queries)]
    rounds = (
        (),
        ("update {r} set w = 5 where w = 0", "delete from {l} where v = 1", "delete from {r} where k is null"),
        ("insert into {l} values (2, 7)",),
    )
    for statements in rounds:
        for statement in statements:
            delta.sql(statement)
        for view in views:
            checked(view)


def test_all_inputs_empty(sandbox: MemorySandbox) -> None:
    """Nothing joined with nothing, then something."""
    sandbox.sources({"l": ("k int, v int", []), "r": ("k int, w int", [])})
    view = sandbox.another("select l.k, v, w from l full join r on l.k = r.k")
    checked(view)
    assert rows(view) == []
    sandbox.do(("insert", "r", [(1, 1)]))
    checked(view)
    sandbox.do(("delete", "r", "true"), ("insert", "l", [(1, 1)]))
    checked(view)
    assert rows(view) == [(1, 1, None)]
