"""Declared keys and append-only sources: terms that vanish, states that shrink, violations that name rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import DataFrame

from deltafold.algebra.errors import ChangedQueryError, SourceError
from deltafold.api import Delta, ForeignKey, View, Warehouse
from tests.lake.memory.table import MemoryTable
from tests.night import every
from tests.sandbox import MemorySandbox, checked, confirm, rows

SCHEMAS = {"orders": "ok int, status string", "lines": "lk int, number int, price int"}
DECLARED = {
    "orders": Delta("orders", primary_key=("ok",)),
    "lines": Delta("lines", foreign_keys=(ForeignKey(("lk",), "orders"),)),
}
FIRST: dict[str, list[Any]] = {
    "orders": [(1, "open"), (2, "open"), (3, "done")],
    "lines": [(1, 1, 10), (1, 2, 20), (2, 1, 5), (None, 1, 7)],
}
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


@contextmanager
def reading(sandbox: MemorySandbox, name: str) -> Iterator[set[int]]:
    """The versions of a source that are read as a whole."""
    found, at = set[int](), MemoryTable.at

    def noting(table: MemoryTable, version: int) -> DataFrame:
        if table.path == sandbox.path(name):
            found.add(version)
        return at(table, version)

    with mock.patch.object(MemoryTable, "at", noting):
        yield found


@pytest.mark.parametrize("join", every(20, JOINS))
def test_new_orders_that_arrive_with_their_lines_scan_no_old_lines(sandbox: MemorySandbox, join: str) -> None:
    """Neither do orders that leave with theirs; an update in place needs the usual terms."""
    declare(sandbox)
    view = sandbox.view(JOINS[join])
    checked(view)
    before = sandbox.table("lines").version()
    sandbox.insert("orders", SCHEMAS["orders"], [(4, "open"), (5, "done")])
    sandbox.insert("lines", SCHEMAS["lines"], [(4, 1, 3), (4, 2, 4), (2, 2, 6)])
    with reading(sandbox, "lines") as found:
        view.refresh()
    assert (before in found) is (join not in READS_NO_OLD_LINES), found
    confirm(view)
    sandbox.sql("update {orders} set status = 'done' where ok = 2")
    sandbox.sql("insert into {orders} values (6, 'open')")
    checked(view)
    sandbox.sql("delete from {lines} where lk = 4")
    sandbox.sql("delete from {orders} where ok in (4, 6)")
    checked(view)
    sandbox.sql("update {lines} set lk = 3 where lk = 1")
    sandbox.sql("update {orders} set ok = 9 where ok = 1")
    checked(view)


def declare(sandbox: MemorySandbox, given: Mapping[str, Delta] | None = None, again: Warehouse | None = None) -> None:
    """The tables with their keys, or with what is given; again: another warehouse in which they are declared too."""
    for name, schema in SCHEMAS.items():
        if again is None:
            sandbox.insert(name, schema, FIRST[name])
        declared = (given or {}).get(name, replace(DECLARED[name], path=sandbox.path(name)))
        (again or sandbox.warehouse).source(name, declared)


def broken(view: View, *said: str) -> None:
    """A refresh says what is wrong and leaves nothing behind, neither in the tables nor in the journal."""
    history, answer, files = view.history(), rows(view), sorted(Path(view.path).parent.parent.rglob("*.*"))
    with pytest.raises(SourceError) as refusal:
        view.refresh()
    assert all(part in str(refusal.value) for part in said), refusal.value
    assert (view.history(), rows(view)) == (history, answer)
    assert sorted(Path(view.path).parent.parent.rglob("*.*")) == files


def test_violations_name_rows_and_write_nothing(sandbox: MemorySandbox) -> None:
    """Each kind, several at once; the refresh after the repair takes all of it in."""
    declare(sandbox)
    view = sandbox.view(INNER)
    sandbox.sql("insert into {orders} values (1, 'again'), (null, 'x')")
    with pytest.raises(
        SourceError, match=r"primary key \(ok\) is broken at version 1: .* keys \(ok = NULL\); \(ok = 1\). Correct"
    ):
        view.refresh()
    assert view.history() == ()
    sandbox.sql("delete from {orders} where ok is null or status = 'again'")
    report = checked(view)
    assert "check constraints" in report.phases
    sandbox.sql("insert into {orders} values (3, 'twice'), (4, 'new')")
    sandbox.sql("insert into {lines} values (4, 1, 1), (77, 1, 1), (null, 9, 9)")
    broken(
        view,
        "source orders: its primary key (ok) is broken at version 3: duplicate or NULL keys (ok = 3). Correct",
        "source lines: its foreign key (lk) to orders is broken at version 1: orders (ok) at version 3 has no rows for "
        "(lk = 77). Correct the data and refresh again",
    )
    sandbox.sql("delete from {orders} where status = 'twice'")
    sandbox.sql("update {lines} set lk = 4 where lk = 77")
    checked(view)
    sandbox.sql("delete from {orders} where ok = 2")
    broken(
        view, "rows of orders (ok) were removed at version 5 that are still referenced by (lk = 2). Correct the data"
    )
    sandbox.sql("delete from {lines} where lk = 2")
    checked(view)


def test_append_only_sources(sandbox: MemorySandbox) -> None:
    """A compaction is no change; a deletion is refused until the rows are back."""
    declare(sandbox, {"lines": Delta(sandbox.path("lines"), append_only=True)})
    view = sandbox.view("select lk, max(price) m from lines group by lk")
    checked(view)
    sandbox.sql("insert into {lines} values (1, 3, 50)")
    sandbox.sql("optimize {lines}")
    checked(view)
    sandbox.sql("delete from {lines} where number = 3")
    broken(
        view,
        "source lines: declared append-only, but between its versions 2 and 3 rows were removed or updated: "
        "(lk = 1, number = 3, price = 50). Restore them and refresh again, or remove the declaration",
    )
    sandbox.sql("insert into {lines} values (1, 3, 50), (1, 4, 60)")
    checked(view)


def test_a_constraint_that_nobody_checked_before_is_not_relied_on(sandbox: MemorySandbox) -> None:
    """Lines that were there before the key was declared may refer to an order that comes only now."""
    free = {name: Delta(sandbox.path(name)) for name in SCHEMAS}
    declare(sandbox, free)
    sandbox.sql("insert into {lines} values (9, 1, 90)")
    checked(sandbox.view(INNER))
    sandbox.sql("insert into {orders} values (9, 'late')")
    declared = sandbox.opened()
    declare(sandbox, again=declared)
    view = declared.view("v", INNER)
    checked(view)
    assert ("late", 90, 90) in rows(view)
    sandbox.sql("insert into {lines} values (8, 1, 90)")
    broken(view, "orders (ok) at version 1 has no rows for (lk = 8)")


def test_a_key_that_makes_a_state_needless_asks_for_a_rebuild(sandbox: MemorySandbox) -> None:
    """The tables differ: nothing is mixed."""
    free = {name: Delta(sandbox.path(name)) for name in SCHEMAS}
    declare(sandbox, free)
    query = "select status, count(*) n from (select distinct ok, status from orders) group by status"
    checked(sandbox.view(query))
    sandbox.sql("insert into {orders} values (9, 'late')")
    declared = sandbox.opened()
    declare(sandbox, again=declared)
    view = declared.view("v", query)
    with pytest.raises(ChangedQueryError, match="declared keys"):
        view.refresh()
    view.rebuild()
    sandbox.sql("delete from {orders} where ok = 9")
    checked(view)
