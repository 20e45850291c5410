"""Declared keys and append-only sources: terms that vanish, states that shrink, violations that name rows."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from incremental.api import Delta, ForeignKey
from tests.corpus.memory import MemoryView
from tests.corpus.world import Step, World, checked

SCHEMAS = {"orders": "ok int, status string", "lines": "lk int, number int, price int"}
DECLARED = {
    "orders": Delta("orders", primary_key=("ok",)),
    "lines": Delta("lines", foreign_keys=(ForeignKey(("lk",), "orders"),)),
}
FIRST: dict[str, list[Any]] = {
    "orders": [(1, "open"), (2, "open"), (3, "done")],
    "lines": [(1, 1, 10), (1, 2, 20), (2, 1, 5), (None, 1, 7)],
}
ARRIVAL: tuple[Step, ...] = (
    ("insert", "orders", [(4, "open"), (5, "done")]),
    ("insert", "lines", [(4, 1, 3), (4, 2, 4), (2, 2, 6)]),
)
INNER = "select status, sum(price) s, max(price) m from orders join lines on ok = lk group by status"
JOINS = {
    "inner": INNER,
    "the other way round": "select ok, price from lines, orders where lk = ok and status <> 'done'",
    "a filter": "select ok, price from lines join (select * from orders where status = 'open') on lk = ok",
    "left": "select price, status from lines left join orders on lk = ok and status = 'open'",
    "right": "select price, status from orders right join lines on lk = ok",
    "semi": "select price from lines where lk in (select ok from orders where status = 'open')",
    "exists or": "select price from lines where price = 5 or exists (select 1 from orders where ok = lk)",
    "anti": "select price from lines where not exists (select 1 from orders where ok = lk and status = 'open')",
    "from the other side": "select ok, price from orders left join lines on lk = ok",
    "without lines": "select ok from orders where not exists (select 1 from lines where lk = ok)",
    "full": "select ok, price from orders full join lines on lk = ok",
}
READS_NO_OLD_LINES = {"inner", "the other way round", "a filter", "right", "left", "semi", "exists or", "anti"}


def world(spark: SparkSession, **constraints: Any) -> World:
    declared = {name: constraints.get(name, DECLARED[name]) for name in DECLARED}
    return World(spark, {name: (SCHEMAS[name], FIRST[name]) for name in SCHEMAS}, declared)


def reads(view: MemoryView, name: str) -> set[int]:
    """The versions of a source that a refresh read as a whole; the view is compared with Spark's answer."""
    view.sources[name].reads.clear()
    view.refresh()
    found = set(view.sources[name].reads)
    checked(view)
    return found


@pytest.mark.parametrize("join", JOINS)
def test_new_orders_that_arrive_with_their_lines_scan_no_old_lines(spark: SparkSession, long: bool, join: str) -> None:
    """Neither do orders that leave with theirs; an update in place needs the usual terms."""
    if not long and list(JOINS).index(join) % 3:
        pytest.skip("only with --long")
    scene = world(spark)
    view = scene.view(JOINS[join])
    checked(view)
    before, _ = scene.tables["lines"].version(), scene.do(*ARRIVAL)
    found = reads(view, "lines")
    assert (before in found) is (join not in READS_NO_OLD_LINES), found
    scene.do(("update", "orders", {"status": "'done'"}, "ok = 2"), ("insert", "orders", [(6, "open")]))
    checked(view)
    scene.do(("delete", "lines", "lk = 4"), ("delete", "orders", "ok in (4, 6)"))
    checked(view)
    scene.do(("update", "lines", {"lk": "3"}, "lk = 1"), ("update", "orders", {"ok": "9"}, "ok = 1"))
    checked(view)
