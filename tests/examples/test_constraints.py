"""Declared keys and append-only sources: terms that vanish, states that shrink, violations that name rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from incremental.algebra.errors import ChangedQueryError, SourceError
from incremental.api import Delta, ForeignKey, View, Warehouse
from tests.corpus.memory import MemoryView
from tests.corpus.world import Step, World, checked
from tests.examples.scene import Scene
from tests.examples.scene import checked as confirmed
from tests.examples.scene import rows as delta_rows

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
    if not long and list(JOINS).index(join) % 5:
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


def on_delta(scene: Scene, given: Mapping[str, Delta] | None = None, warehouse: Warehouse | None = None) -> None:
    """The same tables as Delta tables; the lines are a log too."""
    for name, schema in SCHEMAS.items():
        if warehouse is None:
            scene.insert(name, schema, FIRST[name])
        constraints: Any = {"primary_key": DECLARED[name].primary_key, "foreign_keys": DECLARED[name].foreign_keys}
        declared = (given or {}).get(name, Delta(scene.path(name), **constraints))
        (warehouse or scene.warehouse).source(name, declared)


def broken(view: View, *said: str) -> None:
    """A refresh says what is wrong and leaves nothing behind, neither in the tables nor in the journal."""
    history, answer, files = view.history(), delta_rows(view), sorted(Path(view.path).parent.parent.rglob("*.*"))
    with pytest.raises(SourceError) as refusal:
        view.refresh()
    assert all(part in str(refusal.value) for part in said), refusal.value
    assert (view.history(), delta_rows(view)) == (history, answer)
    assert sorted(Path(view.path).parent.parent.rglob("*.*")) == files


def test_violations_name_rows_and_write_nothing(scene: Scene) -> None:
    """Each kind, several at once; the refresh after the repair takes all of it in."""
    on_delta(scene)
    view = scene.view(INNER)
    scene.sql("insert into {orders} values (1, 'again'), (null, 'x')")
    with pytest.raises(
        SourceError, match=r"primary key \(ok\) at version 1: .* has \(ok = NULL\); \(ok = 1\): correct"
    ):
        view.refresh()
    assert view.history() == ()
    scene.sql("delete from {orders} where ok is null or status = 'again'")
    report = confirmed(view)
    assert "check constraints" in report.phases
    scene.sql("insert into {orders} values (3, 'twice'), (4, 'new')")
    scene.sql("insert into {lines} values (4, 1, 1), (77, 1, 1), (null, 9, 9)")
    broken(
        view,
        "source orders breaks its primary key (ok) at version 3: more than one row, or a NULL, has (ok = 3): correct",
        "source lines breaks its foreign key (lk) to orders at version 1: it refers to rows that orders (ok) at "
        "version 3 does not have, by (lk = 77): correct the data and refresh again",
    )
    scene.sql("delete from {orders} where status = 'twice'")
    scene.sql("update {lines} set lk = 4 where lk = 77")
    confirmed(view)
    scene.sql("delete from {orders} where ok = 2")
    broken(view, "rows of orders (ok) left it at version 5 that are still referred to by (lk = 2): correct the data")
    scene.sql("delete from {lines} where lk = 2")
    confirmed(view)


def test_append_only_sources(scene: Scene) -> None:
    """A compaction is no change; a deletion is refused until the rows are back."""
    on_delta(scene, {"lines": Delta(scene.path("lines"), append_only=True)})
    view = scene.view("select lk, max(price) m from lines group by lk")
    confirmed(view)
    scene.sql("insert into {lines} values (1, 3, 50)")
    scene.sql("optimize {lines}")
    confirmed(view)
    scene.sql("delete from {lines} where number = 3")
    broken(
        view,
        "source lines is declared append-only, but between its versions 2 and 3 rows left it or were changed: "
        "(lk = 1, number = 3, price = 50): bring them back and refresh again, or remove the declaration",
    )
    scene.sql("insert into {lines} values (1, 3, 50), (1, 4, 60)")
    confirmed(view)


def test_a_constraint_that_nobody_checked_before_is_not_relied_on(scene: Scene) -> None:
    """Lines that were there before the key was declared may refer to an order that comes only now."""
    free = {name: Delta(scene.path(name)) for name in SCHEMAS}
    on_delta(scene, free)
    scene.sql("insert into {lines} values (9, 1, 90)")
    confirmed(scene.view(INNER))
    scene.sql("insert into {orders} values (9, 'late')")
    declared = Warehouse(scene.spark, scene.warehouse.root)
    on_delta(scene, warehouse=declared)
    view = declared.view("v", INNER)
    confirmed(view)
    assert ("late", 90, 90) in delta_rows(view)
    scene.sql("insert into {lines} values (8, 1, 90)")
    broken(view, "it refers to rows that orders (ok) at version 1 does not have, by (lk = 8)")


def test_a_key_that_makes_a_state_needless_asks_for_a_rebuild(scene: Scene) -> None:
    """The tables differ: nothing is mixed."""
    free = {name: Delta(scene.path(name)) for name in SCHEMAS}
    on_delta(scene, free)
    query = "select status, count(*) n from (select distinct ok, status from orders) group by status"
    confirmed(scene.view(query))
    scene.sql("insert into {orders} values (9, 'late')")
    declared = Warehouse(scene.spark, scene.warehouse.root)
    on_delta(scene, warehouse=declared)
    view = declared.view("v", query)
    with pytest.raises(ChangedQueryError, match="declared keys"):
        view.refresh()
    view.rebuild()
    scene.sql("delete from {orders} where ok = 9")
    confirmed(view)
