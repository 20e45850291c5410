"""Small warehouses to crash in: one source, one view, and what happens to them stage by stage.

A world is a folder, made once and copied for each crash. A crash is survived when readers see the last finished epoch
until the next refresh, which finishes what was begun and takes in what came since.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from incremental.api import Delta, Policy, View, Warehouse
from incremental.runtime.journal import Journal
from tests.crash.points import Killed, Point, Run, Stop, raise_killed, watched

Rows = Counter[tuple[object, ...]]

GROUPED = "select k, sum(v) s, count(*) n, max(v) top, avg(v) a from orders group by k"
NESTED = "select q, max(s) m, count(*) c from (select k, q, sum(v) s from orders group by k, q) group by q"
HIDDEN = "select q, count(*) c from (select k, q, sum(v) s from orders group by k, q) where s > 1000000 group by q"
RECURSIVE = (
    "with recursive r(k, n) as (select k, v from orders union all select k, n + 1 from r where n < 2) "
    "select k, n from r"
)
JOINED = (
    "select o.k, o.v, n, row_number() over (partition by o.k order by o.v, o.id) place from orders o "
    "left join (select k, count(*) n from orders group by k) c on o.k = c.k"
)
ABOVE = "select l.q, count(*) c, max(o.v) m, sum(l.s) s from orders o join low l on o.q = l.q group by l.q"
SCHEMA = "id int, k int, v int, q int"
BIG_STATE = ("maintain.SMALL_FILES", "publish.SMALL_FILES")


@dataclass(frozen=True)
class Kind:
    """A way to keep a view; zero: module constants that are zero in it; below: the query of the view `low` it reads."""

    query: str
    policy: Policy = "incremental"
    zero: tuple[str, ...] = ()
    below: str = ""


KINDS = {
    "one state in place": Kind(GROUPED),
    "one state in place, merged": Kind(GROUPED, zero=BIG_STATE),
    "two nested states": Kind(NESTED),
    "state and view table": Kind("select k, sum(v) s from orders where q <> 2 group by k having count(*) > 3"),
    "state and view table, merged": Kind("select distinct k, q from orders where q > 0", zero=BIG_STATE),
    "bag": Kind("select k, v * 2 w from orders where q = 1"),
    "bag, merged": Kind("select k, v * 2 w from orders where q = 1", zero=BIG_STATE),
    "join and window": Kind(JOINED),
    "recomputed": Kind(RECURSIVE, "auto"),
    "by definition": Kind(GROUPED, "definition"),
    "view over a view": Kind(ABOVE, below="select k, q, sum(v) s from orders group by k, q"),
}


class World:
    """One warehouse with the source `orders` and the view `v`."""

    def __init__(self, spark: SparkSession, folder: Path, kind: str) -> None:
        self.spark, self.folder, self.kind, self.orders = spark, folder, kind, str(folder / "orders")

    @property
    def journal(self) -> Path:
        return self.folder / "warehouse" / "views" / "v" / "journal"

    def view(self, query: str | None = None) -> View:
        """The view as a new process sees it: nothing is remembered from before."""
        warehouse = Warehouse(self.spark, self.folder / "warehouse")
        warehouse.source("orders", Delta(self.orders))
        kind = KINDS[self.kind]
        if kind.below:
            warehouse.source("low", warehouse.view("low", kind.below))
        return warehouse.view("v", query or kind.query, kind.policy)

    @property
    def unfinished(self) -> bool:
        """Whether the journal ends with an epoch that was begun only."""
        last = Journal(self.journal).last()
        return last is not None and last.report is None

    def finished(self) -> int:
        return len(self.view().history())

    def batch(self) -> Rows:
        """The batch answer at the latest version."""
        kind = KINDS[self.kind]
        query = kind.query.replace("join low ", f"join ({kind.below}) ")
        query = query.replace("from orders", f"from delta.`{self.orders}`")
        return Counter(tuple(row) for row in self.spark.sql(query).collect())

    def answer(self) -> Rows:
        return Counter(tuple(row) for row in self.view().answer().collect())

    def sql(self, text: str) -> None:
        self.spark.sql(text.replace("orders", f"delta.`{self.orders}`"))

    def create(self) -> World:
        rows = [(i, i % 5 if i % 7 else None, i * 3 % 11, i % 4) for i in range(60)]
        frame = self.spark.createDataFrame(rows, SCHEMA).coalesce(1)
        frame.write.format("delta").save(self.orders)
        return self

    def change(self, number: int = 1) -> None:
        """Deletes, a correction, inserts with equal rows: groups come, go and change. One commit, for it is quick."""
        low = number * 10
        before = self.spark.read.format("delta").load(self.orders)
        kept = before.where(f"not coalesce(id between {low - 10} and {low - 4} or k = {number % 5}, false)")
        corrected = {"v": f"if(id % 9 = {number}, v + 100, v)", "q": f"if(id % 9 = {number}, 1, q)"}
        rows = [(500, 9, 7, 1), (501, None, 2, 1), (1, number % 5, 3, 1), (1, 6, 3, 1), (1, 6, 3, 1)]
        after = kept.withColumns({name: F.expr(value) for name, value in corrected.items()})
        after = after.union(self.spark.createDataFrame(rows, SCHEMA))
        after.coalesce(1).write.format("delta").mode("overwrite").save(self.orders)

    def rewrite(self) -> None:
        """Other files, the same rows."""
        self.sql("update orders set v = v where id % 2 = 0")

    def copied(self, folder: Path) -> World:
        shutil.copytree(self.folder, folder)
        return World(self.spark, folder, self.kind)

    def settings(self) -> ExitStack:
        """The module constants of the kind, until closed."""
        stack = ExitStack()
        for name in KINDS[self.kind].zero:
            stack.enter_context(mock.patch(f"incremental.runtime.{name}", 0))
        return stack


@dataclass(frozen=True)
class Stage:
    """What a world has lived through, and the run that is to be stopped."""

    prepare: Callable[[World], None]
    run: Callable[[World], object]


def begun(world: World) -> None:
    world.view().refresh()


def changed(world: World) -> None:
    begun(world)
    world.change()


def rewritten(world: World) -> None:
    begun(world)
    world.rewrite()


def half_way(world: World) -> None:
    """A crash in the middle of the second epoch: after its first table was written."""
    changed(world)
    stop_when(world, lambda point: point.side == "after" and point.function.startswith("Table."))


def refresh(world: World) -> object:
    return world.view().refresh()


def rebuild(world: World) -> object:
    return world.view().rebuild()


STAGES = {
    "first load": Stage(lambda _: None, refresh),
    "change": Stage(changed, refresh),
    "change that cancels out": Stage(rewritten, refresh),
    "rebuild": Stage(changed, rebuild),
    "resume": Stage(half_way, refresh),
}


def stop_when(world: World, wanted: Callable[[Point], bool]) -> None:
    """A refresh killed at the first point that is wanted."""
    with watched() as run:
        reach = run.reach

        def reach_and_stop(point: Point) -> None:
            reach(point)
            if wanted(point):
                raise_killed()

        run.reach = reach_and_stop  # type: ignore[method-assign]
        try:
            refresh(world)
        except Killed:
            return
    raise AssertionError(f"never came to the point: {[str(point) for point in run.passed]}")


def stopped(world: World, stage: Stage, stop: Stop) -> Run:
    """The stage's run, killed at a point within this process."""
    with watched(stop) as run:
        try:
            stage.run(world)
        except Killed:
            return run
    raise AssertionError(f"there is no point {stop} in {[str(point) for point in run.passed]}")


def seen(world: World) -> Rows | None:
    """What readers see; None before the first epoch has ended."""
    return world.answer() if world.finished() else None


def check_survived(world: World, before: Rows | None, finished: int, late: bool) -> None:
    """A crashed world: readers see the last finished epoch, and one refresh brings it to the latest versions.

    before, finished: what readers saw, and the number of finished epochs, before the run that was stopped.
    late: whether data arrives between the crash and that refresh; otherwise it does afterwards.
    """
    latest = world.batch()
    assert seen(world) == (before if world.finished() == finished else latest)
    unfinished = world.unfinished
    if late:
        world.change(2)
    report = world.view().refresh()
    verdicts = [entry.verdict for entry in world.view().history()]
    assert ("resumed" in verdicts[finished:]) == unfinished, verdicts
    assert not unfinished or "resumed" in report.sentence, report.sentence
    assert world.answer() == world.batch()
    assert world.view().refresh().verdict == "nothing to do"
    if not late:
        world.change(2)
        world.view().refresh()
        assert world.answer() == world.batch()
