"""Set up small warehouses for crashes: one source, one view, and changes of the source.

A sandbox is a folder, made once and copied for each crash.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.algebra.plain_options import Publish
from deltafold.algebra.tuning import Tuning
from deltafold.api import Delta, Files, Policy, View, Warehouse, iterate, nearest
from deltafold.lake.delta_table import DELTA
from deltafold.lake.protocol import Lake
from deltafold.store.history import Finished, as_complete
from deltafold.store.journal import Journal
from tests.lake.memory.table import MemoryLake
from tests.local_rows import local
from tests.sandbox import sandbox_of

Rows = Counter[tuple[object, ...]]

GROUPED = "select k, sum(v) s, count(*) n, max(v) top, avg(v) a from orders group by k"
NESTED = "select q, max(s) m, count(*) c from (select k, q, sum(v) s from orders group by k, q) group by q"
HIDDEN = "select q, count(*) c from (select k, q, sum(v) s from orders group by k, q) where s > 1000000 group by q"
RECURSIVE = (
    "with recursive r(v, n) as (select v, 0 from orders where q = 1 union all select r.v + o.v + 1, r.n + 1 from r "
    "join (select * from orders) o on o.id = r.v where r.n < 3) select v, n, count(*) c from r group by v, n"
)
REFUSED = "select k, explode(sequence(1L, (select 1 + count(*) % 2 from orders))) n from orders"
JOINED = (
    "select o.k, o.v, n, row_number() over (partition by o.k order by o.v, o.id) place from orders o "
    "left join (select k, count(*) n from orders group by k) c on o.k = c.k"
)
ABOVE = "select l.q, count(*) c, max(o.v) m, sum(l.s) s from orders o join low l on o.q = l.q group by l.q"
SCHEMA = "id int, k int, v int, q int"
BIG_STATE = Tuning(rewrite_files=0, rewrite_touched_bytes=0)
BIG_CHANGE = Tuning(rewrite_files=0, rewrite_touched_bytes=0, local_rows=0)


def clusters(orders: DataFrame) -> DataFrame:
    """Centers after three steps of k-means, which keeps a log of its points beside its table."""
    points = orders.selectExpr("id", "CAST(v AS DOUBLE) x", "CAST(q AS DOUBLE) y")
    start = points.where("id in (12, 13, 50)").selectExpr("x + id / 64 x", "y")  # points may be equal, centers not

    def step(centers: DataFrame) -> DataFrame:
        near = nearest(points, centers, on=("x", "y"))
        return near.groupBy("center").agg(F.avg("x").alias("x"), F.avg("y").alias("y")).select("x", "y")

    return iterate(start, step, times=3)


@dataclass(frozen=True)
class Kind:
    """A way to maintain a view.

    query: SQL, or a function of the source; tuning: of its warehouse; below: the query of the view `low` it reads;
    published: as a SQL view; publish: as of `Warehouse.view`.
    """

    query: str | Callable[[DataFrame], DataFrame]
    policy: Policy = "incremental"
    tuning: Tuning = field(default_factory=Tuning)
    below: str = ""
    published: bool = False
    publish: Publish = "auto"


KINDS = {
    "one state in place": Kind(GROUPED),
    "one state in place, merged": Kind(GROUPED, tuning=BIG_STATE),
    "two nested states": Kind(NESTED),
    "state and view table": Kind("select k, sum(v) s from orders where q <> 2 group by k having count(*) > 3"),
    "state and view table, merged by Delta": Kind("select distinct k, q from orders where q > 0", tuning=BIG_CHANGE),
    "bag": Kind("select k, v * 2 w from orders where q = 1"),
    "bag, merged": Kind("select k, v * 2 w from orders where q = 1", tuning=BIG_STATE),
    "join and window": Kind(JOINED),
    "recursion": Kind(RECURSIVE),
    "recursion, merged": Kind(RECURSIVE, tuning=BIG_STATE),
    "clusters": Kind(clusters, tuning=Tuning(reread_share=1)),
    "recomputed": Kind(REFUSED, "auto"),
    "by definition": Kind(GROUPED, "definition"),
    "view over a view": Kind(ABOVE, below="select k, q, sum(v) s from orders group by k, q"),
    "published": Kind(GROUPED, published=True),
    "plain": Kind("select k, v * 2 w from orders where q = 1", publish="plain"),
}


BATCH = dict[tuple[str, str], Rows]()  # by kind and commit: the copies of a warehouse ask for the same again and again


class CrashSandbox:
    """One warehouse with the source `orders` and the view `v`."""

    def __init__(self, spark: SparkSession, folder: Path, kind: str, lake: Lake = DELTA) -> None:
        self.spark, self.folder, self.kind = spark, folder, kind
        self.sandbox, self.orders = sandbox_of(spark, folder, lake), str(folder / "orders")

    @property
    def journal(self) -> Path:
        return self.folder / "warehouse" / "views" / "v" / "journal"

    def warehouse(self) -> Warehouse:
        """The warehouse as a new process opens it, without caches."""
        warehouse = self.sandbox.opened(tuning=KINDS[self.kind].tuning)
        warehouse.source("orders", Delta(self.orders))
        warehouse.source("dropped", Files(str(self.folder / "dropped"), "csv", "n INT, day STRING", partition_by="day"))
        return warehouse

    def view(self, query: str | None = None) -> View:
        """The view as a new process sees it."""
        warehouse = self.warehouse()
        kind = KINDS[self.kind]
        on_lost = "rebuild" if self._lost.exists() else "refuse"
        if kind.below:
            warehouse.source("low", warehouse.view("low", kind.below, on_lost=on_lost))
        published = self.sql_view if kind.published else None
        return warehouse.view(
            "v", query or kind.query, kind.policy, kind.publish, publish_as=published, on_lost=on_lost
        )

    @property
    def _lost(self) -> Path:
        """A file that is there once the source lost what was read of it: in other stages no view may be rebuilt."""
        return self.folder / "lost"

    @property
    def sql_view(self) -> str:
        """The name that the view is published as, another one in each copy of a world."""
        return f"default.v_{hashlib.sha256(str(self.folder).encode()).hexdigest()[:16]}"

    @property
    def unfinished(self) -> bool:
        """Whether the last epoch in the journal is unfinished."""
        last = Journal(self.journal).last()
        return last is not None and not isinstance(last, Finished)

    @property
    def generation(self) -> int:
        """The generation of the last epoch in the journal, 0 before the first."""
        last = Journal(self.journal).last()
        return 0 if last is None else last.intent.generation

    @property
    def finished(self) -> int:
        """The number of complete epochs; parts do not count."""
        return sum(as_complete(event) is not None for event in Journal(self.journal).entries())

    def batch(self, version: int | None = None) -> Rows:
        """The batch answer at a version, or at the latest."""
        table, kind = self.sandbox.table("orders"), KINDS[self.kind]
        at = (self.kind, table.commit_id(table.version() or 0 if version is None else version))
        if at not in BATCH:
            answer = self._evaluate(kind, self.rows(version))
            BATCH[at] = Counter(tuple(row) for row in answer.collect())
        return BATCH[at]

    def _evaluate(self, kind: Kind, orders: DataFrame) -> DataFrame:
        if callable(kind.query):
            return kind.query(orders)
        query = kind.query.replace("join low ", f"join ({kind.below}) ")
        return self.spark.sql(query.replace("from orders", "from {orders}"), orders=orders)

    def rows(self, version: int | None = None) -> DataFrame:
        """The source at a version, or at the latest."""
        table = self.sandbox.table("orders")
        latest = table.version()
        assert latest is not None
        return table.scan(latest if version is None else version)

    def answer(self) -> Rows:
        return Counter(tuple(row) for row in self.view().answer().collect())

    def pointed(self) -> Rows | None:
        """The rows that a reader finds by the pointer file; None if there is no file."""
        file = self.journal.parent / "current.json"
        if not file.exists():
            return None
        told = json.loads(file.read_text())
        rows = self.sandbox.lake.table(self.spark, str(file.parent / told["table"])).at(told["version"])
        return Counter(tuple(row) for row in rows.select(*(column["name"] for column in told["columns"])).collect())

    def shown(self) -> Rows:
        """The rows of the SQL view."""
        return Counter(tuple(row) for row in self.spark.table(self.sql_view).collect())

    def sql(self, text: str, **paths: str) -> None:
        """SQL in which {orders} is the source."""
        self.sandbox.sql(text, **paths)

    def create(self) -> CrashSandbox:
        rows = [(i, i % 5 if i % 7 else None, i * 3 % 11, i % 4) for i in range(60)]
        self.sandbox.insert("orders", SCHEMA, rows)
        return self

    def change(self, number: int = 1) -> None:
        """Delete, update and insert (equal rows too) in one commit, so that groups are added, removed and changed."""
        low = number * 10
        kept = self.rows().where(f"not coalesce(id between {low - 10} and {low - 4} or k = {number % 5}, false)")
        corrected = {"v": f"if(id % 9 = {number}, v + 100, v)", "q": f"if(id % 9 = {number}, 1, q)"}
        rows = [(500, 9, 7, 1), (501, None, 2, 1), (1, number % 5, 3, 1), (1, 6, 3, 1), (1, 6, 3, 1)]
        after = kept.withColumns({name: F.expr(value) for name, value in corrected.items()})
        after = after.union(local(self.spark, rows, SCHEMA))
        self.sandbox.write("orders", after, "overwrite")

    def make_again(self) -> None:
        """Drop the source, and create it with another history, in a warehouse whose views are rebuilt for it."""
        self.sandbox.remove("orders")
        self.create()
        for number in (3, 4):
            self.change(number)
        self._lost.touch()

    def rewrite(self) -> None:
        """Rewrite the files with the same rows."""
        self.sql("update {orders} set v = v where id % 2 = 0")

    def drop(self, **days: int) -> None:
        """Write files of these days, one row each, and remove those of others."""
        shutil.rmtree(self.folder / "dropped", ignore_errors=True)
        for day, number in days.items():
            folder = self.folder / "dropped" / f"day={day}"
            folder.mkdir(parents=True)
            (folder / "rows.csv").write_text(f"n\n{number}\n")

    def landed(self) -> Rows:
        table = self.warehouse().tables()["dropped"]
        return Counter(tuple(row) for row in table.scan(table.version() or 0).collect())

    def copied(self, folder: Path) -> CrashSandbox:
        shutil.copytree(self.folder, folder)
        lake = self.sandbox.lake
        return CrashSandbox(self.spark, folder, self.kind, lake.copied() if isinstance(lake, MemoryLake) else lake)
