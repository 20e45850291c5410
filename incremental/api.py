"""The whole public surface: Warehouse and View. In: sources and batch queries. Out: maintained views and their reports.

wh = Warehouse(spark, root)
wh.source("orders", Delta(path))
view = wh.view("totals", "select customer, sum(price) total from orders group by customer")
view.refresh()
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from incremental.algebra.errors import DeltafoldError, QueryError, SourceError, StateError
from incremental.algebra.plan import Column
from incremental.algebra.report import Description, Landing, Report, Verification
from incremental.algebra.sources import Delta, Files, SourceDeclaration
from incremental.compilation import Compilation, Policy
from incremental.compiler.strategy import Publish
from incremental.language.query import QueryText
from incremental.runtime.choice import Choice
from incremental.runtime.journal import Entry, Intent, Pin
from incremental.runtime.lake import Table
from incremental.runtime.landing import Landings, declared_schema
from incremental.runtime.refresh import Progress, Refresh, Store
from incremental.runtime.verify import discrepancy

SAMPLE = 5


class Warehouse:
    """A folder of landed sources, states and views.

    spark: a session with Delta; root: a local folder, made when needed.
    """

    def __init__(self, spark: SparkSession, root: str | Path) -> None:
        self.spark, self.root = spark, Path(root).absolute()
        self._declared: dict[str, SourceDeclaration] = {}

    def source(self, name: str, declaration: SourceDeclaration) -> None:
        """Declare a source under the name queries use; a name can be declared once. Raises SourceError."""
        if not name.isidentifier() or name.startswith("__"):
            raise SourceError(f"{name!r} is no name for a source: use letters, digits and underscores")
        if name in self._declared:
            raise SourceError(f"source {name} is declared twice")
        self._declared[name] = declaration

    def land(self, name: str, partitions: Sequence[str] | None = None) -> Landing:
        """Bring dropped files into the source's table: the named partitions, or all that changed.

        Raises SourceError for an unknown source or partition and for malformed rows.
        """
        declaration = self._declaration(name)
        if not isinstance(declaration, Files):
            raise SourceError(f"source {name} is a Delta table, which needs no landing")
        folder = self.root / "landed" / name
        return Landings(self.spark, name, declaration, self._table(name), folder).land(partitions)

    def version(self, name: str) -> int | None:
        """The latest Delta version of a source, None while it has no data."""
        return self._table(name).version()

    def view(self, name: str, query: QueryText, policy: Policy = "incremental", publish: Publish = "auto") -> View:
        """A view of a query: SQL text, or a function of the sources' DataFrames that returns one.

        Raises QueryError where Spark cannot analyse it, SourceError where a source has no data yet.
        """
        if not name.isidentifier():
            raise QueryError(f"{name!r} is no name for a view: use letters, digits and underscores")
        if policy not in ("incremental", "auto", "definition"):
            raise QueryError(f"there is no policy {policy!r}: use incremental, auto or definition")
        return View(self, name, query, policy, publish)

    def tables(self) -> dict[str, Table]:
        """The Delta table of every declared source."""
        return {name: self._table(name) for name in self._declared}

    def schemas(self) -> dict[str, StructType]:
        """The schema of every declared source that has one by now."""
        known: dict[str, StructType] = {}
        for name, declaration in self._declared.items():
            if isinstance(declaration, Files):
                known[name] = nullable(declared_schema(name, declaration))
            elif self._table(name).version() is not None:
                known[name] = nullable(self._table(name).schema())
        return known

    def invariant(self) -> frozenset[str]:
        """The sources declared not to change."""
        return frozenset(name for name, declaration in self._declared.items() if declaration.invariant)

    def _declaration(self, name: str) -> SourceDeclaration:
        if name not in self._declared:
            raise SourceError(f"there is no source {name!r}; declared are: {', '.join(self._declared) or 'none'}")
        return self._declared[name]

    def _table(self, name: str) -> Table:
        declaration = self._declaration(name)
        path = str(self.root / "sources" / name) if isinstance(declaration, Files) else str(declaration.path)
        return Table(self.spark, path)


@dataclass(frozen=True)
class View:
    """A maintained view; nothing is read before `refresh`."""

    warehouse: Warehouse
    name: str
    query: QueryText
    policy: Policy
    publish: Publish

    @property
    def columns(self) -> tuple[Column, ...]:
        """The answer's columns under the user's names."""
        return self._compilation.columns

    @property
    def verdict(self) -> str:
        """`incremental` or `recompute`."""
        return self._choice().maintenance.mode

    def explain(self) -> str:
        """How the view is maintained, or why it is recomputed; raises RefusedError when it is neither."""
        return self._compilation.explain(self._choice())

    def description(self) -> Description:
        """The compiled view as plain data, for an orchestrator's graph."""
        return self._compilation.description(self._choice())

    def refresh(self, versions: Mapping[str, int] | None = None, progress: Progress | None = None) -> Report:
        """One epoch, up to the sources' latest versions or the given ones; finishes an interrupted epoch first.

        Raises RefusedError, SourceError, BusyError, ChangedQueryError; nothing is half done after any of them.
        """
        return self._refresh().run(versions, progress)

    def rebuild(self, progress: Progress | None = None) -> Report:
        """Build the state anew as the next generation; readers keep the old one until it is complete."""
        return self._refresh().run(None, progress, rebuild=True)

    def answer(self) -> DataFrame:
        """The answer of the last finished epoch, in the query's order if it has one."""
        intent = self._finished().intent
        names = [f"`{column.name.replace('`', '``')}`" for column in self.columns]
        frame = self._final(intent).at(self._version(intent)).select(*names)
        keys = [order(o.name, o.ascending, o.nulls_first) for o in self._compilation.query.ordering]
        return frame.orderBy(*keys) if keys else frame

    @property
    def path(self) -> str:
        """The ordinary Delta table that holds the answer of the last finished epoch."""
        return self._final(self._finished().intent).path

    def verify(self) -> Verification:
        """Compare the view with the batch query at the source versions of its last epoch, duplicates counted."""
        intent = self._finished().intent
        versions = {name: pin.after for name, pin in intent.sources.items()}
        tables = self.warehouse.tables()
        expected = self._compilation.batch({name: tables[name].at(version) for name, version in versions.items()})
        expected, actual = expected.toDF(*(c.name for c in self.columns)), self.answer()
        found, rows = discrepancy(expected, actual, SAMPLE), actual.count()
        ok = not found.missing and not found.extra
        what = "equals the batch query" if ok else f"differs: {found.missing} rows missing, {found.extra} too many"
        sentence = f"{self.name}: {what} at epoch {intent.epoch} ({rows} rows)"
        return Verification(self.name, ok, found.missing, found.extra, rows, versions, found.sample, sentence)

    def history(self) -> tuple[Report, ...]:
        """The reports of all finished epochs, oldest first."""
        return tuple(entry.report for entry in self._store.journal.entries() if entry.report is not None)

    def drop(self) -> None:
        """Remove the view's states, tables and journal; sources stay."""
        shutil.rmtree(self._store.folder, ignore_errors=True)

    @cached_property
    def _compilation(self) -> Compilation:
        warehouse = self.warehouse
        return Compilation(
            warehouse.spark,
            self.name,
            self.query,
            self.policy,
            self.publish,
            warehouse.schemas(),
            warehouse.invariant(),
        )

    @property
    def _store(self) -> Store:
        return Store(self.warehouse.spark, self.warehouse.root / "views" / self.name, self.name)

    def _refresh(self) -> Refresh:
        if self.warehouse.schemas() != self._compilation.schemas:  # a source was altered since the query was read
            self.__dict__.pop("_compilation", None)
        return Refresh(self._store, self._compilation.ways, self.warehouse.tables())

    def _choice(self) -> Choice:
        """How the next refresh would run."""
        entries, tables = self._store.journal.entries(), self.warehouse.tables()
        pins = entries[-1].intent.sources if entries else {}
        versions = {name: tables[name].version() for name in self._compilation.query.sources}
        known = {name: version for name, version in versions.items() if version is not None}
        if len(known) < len(versions):  # nothing to measure yet
            return Choice(self._compilation.ways.of(entries[-1].intent.mode if entries else None))
        next_pins = {n: Pin(pins[n].after if n in pins else None, version, "") for n, version in known.items()}
        return self._compilation.ways.choose(entries, next_pins, tables)

    def _finished(self) -> Entry:
        """The last finished epoch; an interrupted one is not looked at."""
        done = [entry for entry in self._store.journal.entries() if entry.report is not None]
        if not done:
            raise StateError(f"view {self.name} has no finished epoch yet: refresh it first")
        return done[-1]

    def _final(self, intent: Intent) -> Table:
        return self._store.table(intent.generation, self._final_name(intent))

    def _final_name(self, intent: Intent) -> str:
        return self._compilation.ways.of(intent.mode).tables[-1]

    def _version(self, intent: Intent) -> int:
        """The version of the answer's table at an epoch: what an unfinished next one began from, else the latest."""
        last = self._store.journal.last()
        table = self._final(intent)
        if last is not None and last.report is None and last.intent.generation == intent.generation:
            before = last.intent.tables.get(self._final_name(intent))
            if before is not None:
                return before
        version = table.version()
        if version is None:
            raise StateError(f"the table {table.path} of view {self.name} is gone: rebuild the view")
        return version


def order(name: str, ascending: bool, nulls_first: bool) -> SparkColumn:
    """One key of ORDER BY."""
    column = F.col(f"`{name.replace('`', '``')}`")
    if ascending:
        return column.asc_nulls_first() if nulls_first else column.asc_nulls_last()
    return column.desc_nulls_first() if nulls_first else column.desc_nulls_last()


def nullable(schema: StructType) -> StructType:
    """The schema as Delta and dropped files give it: any column may be NULL, and nothing is noted beside it."""
    return StructType([type(field)(field.name, field.dataType, True) for field in schema])


__all__ = [
    "Delta", "DeltafoldError", "Description", "Files", "Landing", "Report", "Verification", "View", "Warehouse",
]  # fmt: skip
