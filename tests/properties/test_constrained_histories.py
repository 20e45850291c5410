"""The one promise where keys are declared: random histories that keep them, cut into random refreshes.

Rows come in files of their own, leave with whole files or out of files that are rewritten, and change in place, so that
foreign keys empty terms in some refreshes and in others not.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from deltafold.api import Delta, ForeignKey
from deltafold.lake.files import Identity
from tests.night import every
from tests.sandbox import MemorySandbox, checked

SCHEMAS = {
    "c": "ck int, region int",
    "o": "ok int, oc int, parent int, status int",
    "i": "ik int, n int, price int",
}
DECLARED = {
    "c": Delta("c", primary_key=("ck",)),
    "o": Delta("o", primary_key=("ok",), foreign_keys=(ForeignKey(("oc",), "c"), ForeignKey(("parent",), "o"))),
    "i": Delta("i", primary_key=("ik", "n"), foreign_keys=(ForeignKey(("ik",), "o"),)),
}
QUERIES = (
    "select region, sum(price) s, max(price) m from c, o, i where ck = oc and ok = ik group by region",
    "select ok, status, price from o join i on ok = ik where status > 0",
    "select a.ok, b.status from o a join o b on a.parent = b.ok",
    "select a.ok, b.ok as above, price from o a left join o b on a.parent = b.ok and b.status = 1 join i on ik = a.ok",
    "select price, status from o right join i on ik = ok and status = 1",
    "select ok, n from o left join i on ik = ok",
    "select ck, count(ok) n from c left join o on oc = ck group by ck",
    "select ok from o where not exists (select 1 from i where ik = ok and price > 2)",
    "select price from i where price = 1 or ik in (select ok from o where status = 0)",
    "select region, ok from c full join o on oc = ck",
    "select region, count(distinct ok, ck) n from (select distinct region, ck, ok from c join o on oc = ck) "
    "group by region",
    "select count(*) n, sum(status) s from (select distinct ok, status, parent from o where status < 2)",
    "select x.ok, i.price from i join (select oc, ok, status from o where status <> 1) x on x.ok = i.ik "
    "left join c on ck = x.oc and region = 0 where ck is null",
)


class Kept:
    """Three tables whose keys hold after every `turn`."""

    def __init__(self, sandbox: MemorySandbox, seed: int) -> None:
        self.random, self.spark = random.Random(seed), sandbox.spark
        for name, schema in SCHEMAS.items():
            sandbox.insert(name, schema, [])
            sandbox.warehouse.source(name, replace(DECLARED[name], path=sandbox.path(name)))
        self.tables = {name: sandbox.tables.written_by_others(self.spark, sandbox.path(name)) for name in SCHEMAS}
        self.files: dict[str, dict[Identity, list[tuple[Any, ...]]]] = {name: {} for name in SCHEMAS}
        self.rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in SCHEMAS}
        self.next = 0
        for _ in range(3):
            self._customers()
            self._orders()
        self.commit()

    def turn(self) -> None:
        """One to three changes, each of which keeps the keys, in one commit of each table."""
        kinds = [self._customers, self._orders, self._orders, self._leave, self._change, self._refer, self._items]
        for _ in range(self.random.choice([1, 1, 2, 3])):
            self.random.choice(kinds)()
        self.commit()

    def commit(self) -> None:
        """Keep the files whose rows all are there still; the rest comes in a file of its own."""
        for name, schema in SCHEMAS.items():
            missing = list(self.rows[name])
            kept: dict[Identity, list[tuple[Any, ...]]] = {}
            for identity, rows in self.files[name].items():
                if all(row in missing for row in rows):
                    kept[identity] = rows
                    missing = [row for row in missing if row not in rows]
            if missing or len(kept) < len(self.files[name]):
                table = self.tables[name]
                gone = set(self.files[name]) - set(kept)
                table.replace_files(gone, self.spark.createDataFrame(missing, schema))
                new = [identity for identity in table.latest.files if identity not in kept]
                self.files[name] = kept | dict.fromkeys(new, missing)

    def _customers(self) -> None:
        self.rows["c"] += [(self._new(), self.random.randrange(3)) for _ in range(2)]

    def _orders(self) -> None:
        """Orders that come with their items."""
        for _ in range(self.random.choice([1, 2])):
            customer = self.random.choice([None, *(row[0] for row in self.rows["c"])])
            parent = self.random.choice([None, *(row[0] for row in self.rows["o"])])
            self.rows["o"].append((self._new(), customer, parent, self.random.randrange(3)))
            self.rows["i"] += [(self.next, n, self.random.randrange(4)) for n in range(self.random.randrange(3))]

    def _items(self) -> None:
        """Items of orders that are there, or of none."""
        order = self.random.choice([*(row[0] for row in self.rows["o"])]) if self.rows["o"] else None
        if order is not None:
            self.rows["i"].append((order, self._new(), 1))

    def _leave(self) -> None:
        """Orders that leave with their items and with those that refer to them, and customers without orders."""
        gone = {row[0] for row in self.random.sample(self.rows["o"], min(len(self.rows["o"]), 2))}
        while more := {row[0] for row in self.rows["o"] if row[2] in gone} - gone:
            gone |= more
        self.rows["o"] = [row for row in self.rows["o"] if row[0] not in gone]
        self.rows["i"] = [row for row in self.rows["i"] if row[0] not in gone]
        used = {row[1] for row in self.rows["o"]}
        self.rows["c"] = [row for row in self.rows["c"] if row[0] in used or self.random.random() < 0.5]

    def _change(self) -> None:
        """What is no key changes in place, so that rows pass in and out of filters."""
        for name in ("o", "c"):
            if self.rows[name]:
                at = self.random.randrange(len(self.rows[name]))
                self.rows[name][at] = (*self.rows[name][at][:-1], self.random.randrange(3))

    def _refer(self) -> None:
        """References move to other rows, or to none."""
        for at, (key, _, parent, status) in enumerate(self.rows["o"]):
            if self.random.random() < 0.3:
                self.rows["o"][at] = (key, self.random.choice([None, *(c[0] for c in self.rows["c"])]), parent, status)

    def _new(self) -> int:
        self.next += 1
        return self.next


@pytest.mark.parametrize("seed", every(14, range(14)))
def test_views_under_declared_keys_equal_their_queries(sandbox: MemorySandbox, long: bool, seed: int) -> None:
    """Some refreshes find rows that only came, or only left; others both."""
    kept = Kept(sandbox, seed)
    chosen = random.Random(seed).sample(QUERIES, 3 if long else 1)
    views = [sandbox.another(query) for query in chosen]
    for turn in range(5 if long else 4):
        if turn:
            kept.turn()
        for view in views:
            checked(view)
