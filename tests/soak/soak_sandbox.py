"""Set up the warehouse of a soak: three sources, views of every kind over them, and the expected rows of each.

A sandbox is a folder, and a warehouse in it or in a store; another process opens the same sandbox in it. The expected
rows of a view are Spark's batch answer at the versions of the view's last epoch, over the sources alone.
"""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from deltafold.algebra.errors import StateError
from deltafold.api import Delta, Files, Policy, Tuning, View, Warehouse
from deltafold.lake.delta_table import DeltaTable
from deltafold.lake.records import records_at
from deltafold.lake.remote.remote_path import Place, place_of
from deltafold.operations.retention import pinned_base_versions
from deltafold.spark.catalyst import JavaError
from tests.properties.comparing import difference

QUERIES: dict[str, str] = {
    "totals": "select k, sum(v) s, count(*) n, max(v) top, avg(x) a from {orders} group by k",
    "nested": "select q, max(s) m, count(*) c from (select k, q, sum(v) s from {orders} group by k, q) group by q",
    "joined": "select o.k, o.v, d.name, row_number() over (partition by o.k order by o.v, o.id, d.name) place "
    "from {orders} o left join {dims} d on o.k = d.k",
    "bag": "select o.k, o.v * 2 w, s.day from {orders} o join {sales} s on o.k = s.k where o.q < 2",
    "days": "select day, k, sum(v) s, count(distinct v) c from {sales} group by day, k",
    "above": "select d.k, count(*) c, sum(d.s) s, max(o.v) m from {days} d join {orders} o on d.k = o.k group by d.k",
    "summit": "select max(s) - min(s) spread, count(*) n from {above}",
    "recomputed": "select k, explode(sequence(1L, (select 1 + count(*) % 2 from {orders}))) n from {orders}",
}
POLICIES: Mapping[str, Policy] = {"joined": "auto", "recomputed": "auto"}
TABLES = ("orders", "dims")  # Delta tables of others
ROOT_VARIABLE = "SOAK_WAREHOUSE"  # the warehouse's address, where it is not in the sandbox's folder
BRANCH = "__b"  # a branch is named by its view, this, and a number
SALES = "k INT, v INT, day STRING"
PIPELINE = """\
sources:
  sales:
    files: {path: ../../drop, format: csv, schema: {k: INT, v: INT, day: STRING}, partition_by: day}
"""
MERGED = Tuning(
    rewrite_files=0, rewrite_touched_bytes=0, bucket_bytes=1, buckets=2
)  # even small tables are merged, and lie in buckets
BY_DELTA = replace(MERGED, local_rows=0)  # by its MERGE, as a large change is


class SoakSandbox:
    """One warehouse; nothing of it is remembered but batch answers that were computed once."""

    def __init__(self, spark: SparkSession, folder: Path, views: Sequence[str] = tuple(QUERIES)) -> None:
        self.spark, self.folder, self.names, self.tuning = spark, folder, tuple(views), Tuning()
        self.root = place_of(os.environ.get(ROOT_VARIABLE) or str(folder / "warehouse"))
        self._known: dict[tuple[str, tuple[tuple[str, int], ...]], list[Any]] = {}

    @property
    def drop(self) -> Path:
        """The folder of input files."""
        return self.folder / "drop"

    @property
    def views(self) -> tuple[str, ...]:
        """The views, with the branches that there are."""
        folders = records_at(self.root / "views").folders(f"*{BRANCH}*")
        return (*self.names, *(folder for folder in folders if not folder.startswith(".")))

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables of others that some view reads."""
        return tuple(name for name in TABLES if any(name in self.reads(view) for view in self.names))

    def reads(self, view: str) -> tuple[str, ...]:
        """The base sources of a view, those of the views below it too."""
        direct = reads(view)
        return tuple(
            dict.fromkeys(base for name in direct for base in (self.reads(name) if name in QUERIES else [name]))
        )

    def create(self) -> SoakSandbox:
        self.sql("create table {orders} (id int, k int, v int, q int, x double) using delta "
                 "tblproperties ('delta.enableDeletionVectors' = 'true')")  # fmt: skip
        self.sql("create table {dims} (k int, name string) using delta")
        for low in range(0, 60, 15):
            rows = (
                f"({i}, {i % 5 if i % 7 else 'null'}, {i * 3 % 11}, {i % 4}, {i / 10})" for i in range(low, low + 15)
            )
            self.sql(f"insert into {{orders}} values {', '.join(rows)}")
        self.sql("insert into {dims} values (0, 'zero'), (1, 'one'), (1, 'eins'), (7, 'seven'), (null, 'none')")
        for day in range(1, 4):
            self.put(f"2024-05-0{day}", [(day, day), (day % 2, 3), (4, 5)])
        home = self.folder / "pipelines" / "days"
        home.mkdir(parents=True)
        (home / "pipeline.yaml").write_text(PIPELINE)
        (home / "query.sql").write_text(QUERIES["days"].format(sales="sales"))
        self.warehouse("days").land("sales")
        return self

    def warehouse(self, view: str) -> Warehouse:
        """The warehouse as a new process opens it, with what a view needs."""
        made = Warehouse(self.spark, self.root, self.tuning)
        for name in TABLES:
            made.source(name, Delta(str(self.folder / name)))
        made.source("sales", Files(str(self.drop), "csv", SALES, partition_by="day"))
        for low in chain(view)[:-1]:
            made.source(low, made.view(low, query(low), POLICIES.get(low, "incremental")))
        return made

    def view(self, name: str) -> View:
        origin = name.partition(BRANCH)[0]
        return self.warehouse(origin).view(name, query(origin), POLICIES.get(origin, "incremental"))

    def sql(self, text: str, spark: SparkSession | None = None) -> None:
        """SQL in which {orders} and {dims} are the tables."""
        tables = {name: f"delta.`{self.folder / name}`" for name in TABLES}
        (spark or self.spark).sql(text.format(**tables)).collect()

    def put(self, day: str, rows: Sequence[tuple[object, object]]) -> None:
        """Drop a day's file, in place of the one that is there."""
        folder = self.drop / f"day={day}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rows.csv").write_text("k,v\n" + "".join(f"{k},{v}\n" for k, v in rows))

    def storage(self, table: str) -> DeltaTable:
        return DeltaTable(self.spark, str(self.folder / table))

    def needed(self, table: str) -> int | None:
        """The oldest version of a table of others that some view, or a reader of it, stands at."""
        folders = [self.root / "views" / name for name in self.views]
        found = [
            stand for folder in folders if records_at(folder).exists() for _, stand in pinned_base_versions(folder)
        ]
        return min((v for stand in found for way, v in stand.items() if way.split("/")[-1] == table), default=None)

    def wrong(self, name: str) -> str | None:
        """What readers of a view see that the batch query does not give; None where its versions are gone."""
        view = self.view(name)
        try:
            versions = view.versions
        except StateError:  # a first load, perhaps in parts, was never finished
            return ""
        expected = self._expected(name.partition(BRANCH)[0], versions)
        if expected is None:
            return None
        found = difference(expected, view.answer().collect())
        return f"{name} at {versions}: {found}" if found else ""

    def _expected(self, name: str, versions: Mapping[str, int]) -> list[Any] | None:
        key = name, tuple(sorted(versions.items()))
        if key not in self._known:
            try:
                self._known[key] = self.spark.sql(self._batch(name, versions)).collect()
            except JavaError as error:
                if "FILE_NOT_EXIST" in str(error) or "FileNotFound" in str(error):
                    return None
                raise
        return self._known[key]

    def _batch(self, name: str, versions: Mapping[str, int]) -> str:
        parts: dict[str, str] = {}
        for source in reads(name):
            if source in QUERIES:
                below = {
                    way.removeprefix(f"{source}/"): v for way, v in versions.items() if way.startswith(f"{source}/")
                }
                parts[source] = f"({self._batch(source, below)})"
            else:
                parts[source] = f"delta.`{self._path(source)}` version as of {versions[source]}"
        return QUERIES[name].format(**parts)

    def _path(self, source: str) -> Place:
        return self.folder / source if source in TABLES else self.root / "sources" / source

    def unlanded(self) -> str:
        """What the landed table has otherwise than the input files."""
        files = Counter[tuple[object, ...]]()
        for path in self.drop.glob("day=*/*.csv"):
            with path.open() as text:
                files.update((int(row["k"]), int(row["v"]), path.parent.name[4:]) for row in csv.DictReader(text))
        table = self.spark.read.format("delta").load(str(self._path("sales")))
        landed = Counter(tuple(row) for row in table.select("k", "v", "day").collect())
        return f"sales: missing {files - landed}, too many {landed - files}" if files != landed else ""


def reads(view: str) -> list[str]:
    """What a query names."""
    return re.findall(r"{(\w+)}", QUERIES[view])


def query(view: str) -> str:
    """The query over its sources' names."""
    return QUERIES[view].format(**{name: name for name in reads(view)})


def chain(view: str) -> list[str]:
    """The views below one, the lowest first, and itself."""
    origin = view.partition(BRANCH)[0]
    below = [low for name in reads(origin) if name in QUERIES for low in chain(name)]
    return [*dict.fromkeys(below), view]
