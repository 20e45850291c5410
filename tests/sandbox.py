"""Set up a warehouse in a new folder with sources to write to, and check each refresh, in memory or on Delta.

Both sandboxes have the same verbs and drive the same Warehouse; a test moves from one to the other by its fixture,
`sandbox` (in memory, about ten times faster) or `delta`. Delta itself is needed for SQL beyond `MemorySandbox.sql`,
files on the disk, and whatever the contract of the lakes (tests/lake/memory) says is not like Delta.
"""

from __future__ import annotations

import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self
from unittest import mock

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from benchmarks.contest import Commit, list_commits
from deltafold.algebra.tuning import Tuning
from deltafold.api import Delta, Report, View, Warehouse
from deltafold.lake.delta_table import DELTA
from deltafold.lake.log import whole_files
from deltafold.lake.protocol import Lake, Table
from deltafold.spark import catalyst
from deltafold.store.snapshot import answer_table
from tests.lake.memory.table import MemoryLake, MemoryTable
from tests.local_rows import local
from tests.properties.comparing import copies_values, difference, types

NAMED = re.compile(r"\{(\w+)\}")
INSERT = re.compile(r"insert into \{(\w+)\} (?:\(([^)]*)\) )?((?:values|select|with)\b.+)", re.DOTALL)
DELETE = re.compile(r"delete from \{(\w+)\}(?: where (.+))?", re.DOTALL)
UPDATE = re.compile(r"update \{(\w+)\} set (.+?)(?: where (.+))?", re.DOTALL)
OPTIMIZE = re.compile(r"optimize \{(\w+)\}")
RESTORE = re.compile(r"restore table \{(\w+)\} to version as of (\d+)")
ADD_COLUMN = re.compile(r"alter table \{(\w+)\} add column (\w+) (\w+)")
ASSIGNMENT = re.compile(r", (?=[\w`]+ = )")

READS: Mapping[str, Mapping[str, int]] = {
    "small": {},
    "pruned": {"prune_above_bytes": 0, "range_slices": 3},
    "large": {"prune_above_bytes": 0, "range_slices": 3, "broadcast_rows": 0, "broadcast_bytes": 0},
}
"""The tuning by which a refresh reads its inputs; see tests/reading.py."""

Step = tuple[Any, ...]
"""(verb, source, what): insert rows, delete or copy where, update (values, where)."""


class Sandbox(ABC):
    """Sources and views, and the operations of tests on them."""

    lake: Lake
    reads: ClassVar[str] = "small"  # one of READS
    deletion_vectors = True  # for tables that are created from now on

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self._views = spark, folder, 0
        self.warehouse = self.opened()

    def opened(
        self, folder: str = "warehouse", spark: SparkSession | None = None, tuning: Tuning | None = None
    ) -> Warehouse:
        """Open the warehouse as another process does, or another warehouse beside it."""
        tuning = replace(tuning or Tuning(), plain_bytes=0)  # one table less in each refresh; else publish="plain"
        return Warehouse(spark or self.spark, self.folder / folder, tuning, self.lake)

    def tune(self, **numbers: Any) -> None:
        """Set other sizes and limits of the warehouse."""
        self.warehouse.tuning = replace(self.warehouse.tuning, **numbers)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def table(self, name: str) -> Table:
        """The table of a source."""
        return self.lake.table(self.spark, self.path(name))

    def source(self, name: str, schema: str, rows: Sequence[Any], invariant: bool = False) -> None:
        """Create a table and declare it."""
        self.insert(name, schema, rows)
        self.declare(name, invariant)

    def declare(self, name: str, invariant: bool = False) -> None:
        """Declare an existing table."""
        self.warehouse.source(name, Delta(self.path(name), invariant=invariant))

    def insert(self, name: str, schema: str, rows: Sequence[Any], mode: str = "append") -> None:
        """Write rows."""
        self.write(name, local(self.spark, rows, schema), mode)

    def sources(self, tables: Mapping[str, tuple[str, Sequence[Any]]]) -> Self:
        """Create tables of a schema and rows each, and declare them."""
        for name, (schema, rows) in tables.items():
            self.source(name, schema, rows)
        return self

    def view(self, query: Any, name: str = "v", **options: Any) -> View:
        """Declare or redefine the view of this name, with this query."""
        return self.warehouse.view(name, query, **options)

    def another(self, query: Any, **options: Any) -> View:
        """Declare a view with a new name."""
        self._views += 1
        return self.view(query, f"v{self._views}", **options)

    def do(self, *steps: Step) -> None:
        """Run steps one after the other."""
        for verb, name, what, *more in steps:
            match verb:
                case "insert":
                    schema = self.table(name).schema()
                    self.write(name, local(self.spark, what, schema))
                case "delete":
                    self.sql(f"delete from {{{name}}} where {what}")
                case "copy":
                    self.sql(f"insert into {{{name}}} select * from {{{name}}} where {what} limit 9")
                case "update":
                    values = ", ".join(f"{column} = {value}" for column, value in what.items())
                    self.sql(f"update {{{name}}} set {values} where {more[0]}")
                case _:
                    raise ValueError(verb)

    @abstractmethod
    def write(self, name: str, frame: DataFrame, mode: str = "append", partition: str | None = None) -> None:
        """Write a frame to an external table, as one file of each partition.

        mode `reshape`: overwrite it with other columns or another partition.
        """

    @abstractmethod
    def sql(self, text: str, **paths: str) -> None:
        """Run a statement in which {name} is the table of that source; paths: of other tables, such as a view's."""

    def remove(self, folder: str) -> None:
        """Remove a table, or all tables in a folder, as an outsider would."""
        shutil.rmtree(self.folder / folder)

    @abstractmethod
    def vacuum(self, name: str) -> None:
        """Remove the files of older versions of a source at once."""

    def read(self, text: str, versions: Mapping[str, int] | None = None) -> DataFrame:
        """Run a query in which {name} is the table of that source, at its latest version or at one of `versions`."""
        names = set(NAMED.findall(text))
        tables = {name: self.table(name) for name in names}
        latest = {name: table.version() or 0 for name, table in tables.items()}
        chosen = latest | dict(versions or {})
        frames: dict[str, Any] = {name: tables[name].scan(chosen[name]) for name in names}
        return self.spark.sql(text, **frames)


class DeltaSandbox(Sandbox):
    """Delta tables, written by plain Spark."""

    lake = DELTA

    def write(self, name: str, frame: DataFrame, mode: str = "append", partition: str | None = None) -> None:
        writer = (
            frame.coalesce(1)
            .write.format("delta")
            .option("delta.enableDeletionVectors", str(self.deletion_vectors).lower())
        )
        if mode == "reshape":
            writer, mode = writer.option("overwriteSchema", "true"), "overwrite"
        if partition is not None:
            writer = writer.partitionBy(partition)
        writer.mode(mode).save(self.path(name))

    def sql(self, text: str, **paths: str) -> None:
        known = {name: self.path(name) for name in NAMED.findall(text)} | paths
        self.spark.sql(text.format(**{name: f"delta.`{path}`" for name, path in known.items()})).collect()

    def remove(self, folder: str) -> None:
        super().remove(folder)
        self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]

    def vacuum(self, name: str) -> None:
        check = "spark.databricks.delta.retentionDurationCheck.enabled"
        self.spark.conf.set(check, "false")
        self.sql(f"vacuum {{{name}}} retain 0 hours")
        self.spark.conf.unset(check)


class MemorySandbox(Sandbox):
    """Tables in memory."""

    def __init__(self, spark: SparkSession, folder: Path, lake: MemoryLake | None = None) -> None:
        self.lake = self.tables = lake or MemoryLake()
        self._paths = dict[str, str]()
        super().__init__(spark, folder)

    def write(self, name: str, frame: DataFrame, mode: str = "append", partition: str | None = None) -> None:
        reshape = mode == "reshape"
        table, mode = self._written(name), "overwrite" if reshape else mode
        table.write(frame, mode, partition, reshape=reshape, vectors=self.deletion_vectors)

    def sql(self, text: str, **paths: str) -> None:
        """INSERT, DELETE, UPDATE, OPTIMIZE, RESTORE, or ALTER TABLE ADD COLUMN."""
        self._paths = paths
        if found := INSERT.fullmatch(text):
            self._insert(*found.groups())
        elif found := DELETE.fullmatch(text):
            name, where = found.groups("true")
            self._written(name).delete(where)
        elif found := UPDATE.fullmatch(text):
            name, values, where = found.groups("true")
            self._written(name).update(dict(value.split(" = ", 1) for value in ASSIGNMENT.split(values)), where)
        elif found := OPTIMIZE.fullmatch(text):
            self._written(found[1]).compact("true")
        elif found := RESTORE.fullmatch(text):
            self._written(found[1]).restore(int(found[2]))
        elif found := ADD_COLUMN.fullmatch(text):
            self._written(found[1]).add_column(found[2], catalyst.schema_of(f"c {found[3]}")["c"].dataType)
        else:
            raise ValueError(f"the sandbox in memory does not know this statement: {text}")

    def vacuum(self, name: str) -> None:
        self._written(name).remove_older(0)

    def beside(self, name: str) -> MemorySandbox:
        """Return another sandbox in a subfolder."""
        return MemorySandbox(self.spark, self.folder / name)

    def _insert(self, name: str, columns: str | None, query: str) -> None:
        table = self._written(name)
        names = [each.strip() for each in columns.split(",")] if columns else table.schema().names
        wanted = StructType([table.schema()[each] for each in names])
        frame = self.read(query).toDF(*names)
        table.write(frame.select(*(frame[f.name].cast(f.dataType).alias(f.name) for f in wanted)))

    def _written(self, name: str) -> MemoryTable:
        return self.tables.written_by_others(self.spark, self._paths.get(name, self.path(name)))


def sandbox_of(spark: SparkSession, folder: Path, lake: Lake) -> Sandbox:
    """Return a sandbox over existing tables of a lake."""
    return MemorySandbox(spark, folder, lake) if isinstance(lake, MemoryLake) else DeltaSandbox(spark, folder)


def maintained_path(view: View) -> str:
    """The path of the table that a refresh changes, which readers of a plain table never see."""
    entry = view.store.journal.last_complete()
    assert entry is not None
    return view.store.table(entry.intent.generation, answer_table(view.name, entry)).path


def checked(view: View, **options: Any) -> Report:
    """Refresh, then compare with the batch query; on Delta, also the reported commits with those in its logs."""
    root = view.warehouse.root
    folder = root if view.warehouse.lake is DELTA and isinstance(root, Path) else None  # of one on this machine
    before = list_commits(folder) if folder else set[Commit]()
    with as_asked(view):
        report = view.refresh(**options)
    if folder:
        new = list_commits(folder) - before
        assert len(new) == report.commits, sorted(str(file) for file, _ in new)
    confirm(view)
    return report


@contextmanager
def as_asked(view: View) -> Generator[None]:
    """Make refreshes read their inputs as the parameter `reads` of the test asks.

    Other than small, files with deletion vectors are read as a whole, too.
    """
    warehouse, tuning = view.warehouse, view.warehouse.tuning
    if tuning.prune_above_bytes:
        warehouse.tuning = replace(tuning, **READS[Sandbox.reads])
    many = whole_files.MANY_BYTES if Sandbox.reads == "small" else 0
    try:
        with mock.patch.object(whole_files, "MANY_BYTES", many):
            yield
    finally:
        warehouse.tuning = tuning


def confirm(view: View) -> None:
    """Assert that the answer has the batch query's rows and types, without the product's own verifier."""
    expected = view.batch()
    answer = view.answer()
    assert types(answer) == types(expected)
    found = difference(expected.collect(), answer.collect(), copies_values(expected))
    assert not found, found


def rows(view: View) -> list[tuple[Any, ...]]:
    """The answer as sorted plain tuples."""
    return sorted((tuple(row) for row in view.answer().collect()), key=repr)


def row(view: View) -> Row:
    """The answer's only row."""
    (only,) = view.answer().collect()
    return only
