"""An answer whose rows before are read from its own table: windows over joins, where the answer shows their keys."""

from __future__ import annotations

from unittest import mock

import pytest

from deltafold.dataflow.delta_rules import DeltaRules
from tests.night import every
from tests.sandbox import DeltaSandbox, MemorySandbox, Step, checked, rows

RANKED = "row_number() over (partition by t.k order by t.v, t.s) r"
STORED = {
    "a window": f"select t.k, t.v, d.s u, {RANKED} from t left join d on t.j = d.j",
    "the first row of each key": f"select * from (select t.k as n, d.s u, {RANKED} from t left join d on t.j = d.j) "
    "where r = 1",
    "a key shown twice": f"select t.k, t.k as m, u, {RANKED} from t left join (select j, max(s) u from d group by j) e "
    "on t.j = e.j",
    "a window over what was looked up": "select k, s, sum(w) over (partition by k order by v) w from (select t.k, t.v, "
    "t.s, coalesce(sum_v, 0) w from t left join (select j, sum(v) sum_v from d group by j) e on t.j = e.j)",
    "rows without a match": f"select t.k, t.v, {RANKED} from t where not exists (select 1 from d where d.j = t.j)",
    "an inner join": f"select t.k, t.s, d.v w, {RANKED} from t join d on t.j = d.j where d.v > 3",
    "a key of the looked-up side": "select d.k, t.s, rank() over (partition by d.k order by t.v) r from t left join d "
    "on t.j = d.j",
}
RECOMPUTED = {
    "a hidden key": f"select t.v, d.s u, {RANKED} from t left join d on t.j = d.j",
    "a computed key": f"select t.k + 1 as k, t.v, {RANKED} from t left join d on t.j = d.j",
    "no join": f"select k, v, s, {RANKED} from t",
    "a function of groups": "select count(*) n, sum(v) v from (select date'2020-01-01' + t.v as at, t.k, t.v "
    "from t join d on t.j = d.j) group by session_window(at, '1 day'), k",
}
HISTORY: tuple[tuple[Step, ...], ...] = (
    (
        ("insert", "d", [(1, 20, 3, "new"), (3, 2, 9, "other"), (None, None, 1, "x")]),
        ("update", "t", {"v": "v + 7"}, "k = 3"),
    ),
    (("delete", "t", "k = 2 or v in (4, 5)"), ("delete", "d", "j in (1, 3)")),
    (
        ("insert", "t", [(1, 3, 7, "t7"), (1, 3, 7, "t7"), (None, 4, 8, "n"), (99, 5, 1, "far")]),
        ("update", "d", {"s": "concat(s, '!')"}, "j = 4"),
    ),
    (("delete", "t", "k = 99 or k is null"),),
)


@pytest.mark.parametrize("name", every(3, {**STORED, **RECOMPUTED}))
def test_answers(sandbox: MemorySandbox, name: str, long: bool) -> None:
    """Protects from keys that are not found among the touched ones, and from rows before that the table has not.

    By day both sides change in one refresh, by night each step has its own.
    """
    sandbox.source("t", "k int, j int, v int, s string", [(i % 7, i % 6, i, f"t{i}") for i in range(40)])
    sandbox.source("d", "k int, j int, v int, s string", [(i % 3, i + i // 5, i, f"d{i}" * 9) for i in range(60)])
    view = sandbox.view({**STORED, **RECOMPUTED}[name], "v")
    checked(view)
    change = DeltaRules.change_of_stored
    with mock.patch.object(DeltaRules, "change_of_stored", autospec=True, side_effect=change) as spy:
        for steps in [(step,) for together in HISTORY for step in together] if long else HISTORY:
            sandbox.do(*steps)
            checked(view)
    assert bool(spy.call_count) == (name in STORED)


def test_keys_that_are_equal_but_not_identical(sandbox: MemorySandbox) -> None:
    """Protects from a group whose rows show 0.0 and -0.0, and of which only some are found."""
    key = "key double, name string, j int, v int"
    sandbox.source("t", key, [(0.0, "A", 1, 1), (-0.0, "A", 2, 2), (float("nan"), "b", 3, 3), (None, None, 1, 4)])
    sandbox.source("d", "j int, s string", [(1, "one" * 99), (2, "two" * 99)])
    sum_up = "sum(v) over (partition by key, name)"
    view = sandbox.view(f"select t.key, t.name, t.v, {sum_up} total, d.j from t left join d on t.j = d.j", "v")
    checked(view)
    for step in (
        ("insert", "t", [(-0.0, "A", 1, 10), (float("nan"), "b", 3, 20), (None, None, 9, 30)]),
        ("delete", "t", "v in (1, 4)"),
        ("delete", "d", "j = 2"),
    ):
        sandbox.do(step)
        checked(view)


def test_ties_that_are_equal_but_not_identical(delta: DeltaSandbox) -> None:
    """Protects from rows before in another order than those stored: «lacks 2 of the rows to delete»."""
    delta.source("t", "k int, d double", [(1, 0.0), (1, -0.0)])
    view = delta.view("select k, to_json(collect_list(d) over (partition by k)) as l from t")
    view.refresh()
    again = "select /*+ coalesce(1) */ * from values (1, -0.0D), (1, 0.0D) v(k, d)"
    delta.sql(f"create or replace table {{t}} using delta as {again}")
    view.refresh()
    delta.sql("insert into {t} values (1, 1D)")
    view.refresh()
    assert len(set(rows(view))) == 1
    assert len(rows(view)) == 3


def test_a_join_by_the_value_of_in(sandbox: MemorySandbox) -> None:
    """Protects from a restriction by a column that a join makes, put below that join."""
    sandbox.source("t", "id int, k int", [(i, i % 3) for i in range(9)])
    sandbox.source("u", "k int", [(0,), (1,)])
    sandbox.source("w", "n int", [(i,) for i in range(4)])
    sandbox.tune(prune_above_bytes=0)
    view = sandbox.view(
        "select x.id, y.n from (select id, k in (select k from u) as held from t) x left join "
        "(select n, n > 1 as flag from w) y on x.held = y.flag"
    )
    checked(view)
    for step in (("insert", "w", [(5,)]), ("delete", "w", "n = 0"), ("insert", "u", [(2,)])):
        sandbox.do(step)
        checked(view)
