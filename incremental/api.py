"""The whole public surface: Warehouse and View. In: sources and batch queries. Out: maintained views and their reports.

wh = Warehouse(spark, root)
wh.source("orders", Delta(path))
view = wh.view("totals", "select customer, sum(price) total from orders group by customer")
view.refresh()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from incremental.algebra.constraints import Constraint
from incremental.algebra.errors import DeltafoldError, QueryError, SourceError
from incremental.algebra.plan import Column
from incremental.algebra.report import Description, Landing, Report, Verification
from incremental.algebra.sources import Delta, Files, ForeignKey, SourceDeclaration, declared, is_name
from incremental.algebra.upkeep import Status, Upkeep
from incremental.compilation import Compilation, Policy
from incremental.compiler.strategy import Publish
from incremental.language.query import QueryText
from incremental.runtime.branch import branched, dropped
from incremental.runtime.chain import Below, Inputs, standing
from incremental.runtime.choice import Choice, foreseen
from incremental.runtime.declared import Declared
from incremental.runtime.lake import Table
from incremental.runtime.layout import quoted
from incremental.runtime.metrics import observed
from incremental.runtime.published import Published
from incremental.runtime.refresh import Progress, Refresh
from incremental.runtime.rollback import Rollback
from incremental.runtime.store import Store
from incremental.runtime.upkeep import WEEK_HOURS, upkeep
from incremental.runtime.verify import verified


class Warehouse:
    """A folder of landed sources, states and views.

    spark: a session with Delta; root: a local folder, made when needed.
    """

    def __init__(self, spark: SparkSession, root: str | Path) -> None:
        self.spark, self.root = spark, Path(root).absolute()
        self._declared = Declared(spark, self.root)
        self._views: dict[str, View] = {}

    def source(self, name: str, declaration: SourceDeclaration | View) -> None:
        """Declare a source under the name queries use; a name can be declared once. Raises SourceError.

        A view, of this or another warehouse, is a source by its answer, for the views that are made after this.
        """
        if not is_name(name):
            raise SourceError(f"{name!r} is no name for a source: use letters, digits and underscores")
        if name.lower() in {known.lower() for known in (*self._declared.sources, *self._views)}:
            raise SourceError(f"source {name} is declared twice (Spark does not tell a from A in names)")
        if isinstance(declaration, View):
            self._views[name] = declaration
        else:
            self._declared.sources[name] = declared(name, declaration)

    def land(self, name: str, partitions: Sequence[str] | None = None) -> Landing:
        """Bring dropped files into the source's table: the named partitions, or all that changed.

        Raises SourceError for an unknown source or partition, and for malformed rows that are not quarantined.
        """
        return self._source(name).landings(name).land(partitions)

    def replay(self, name: str) -> Landing:
        """Land the partitions of a source that have rows in quarantine again, by the schema that is declared now.

        Where the landed table has another schema, it takes this one and is landed anew. Raises SourceError as `land`.
        """
        return self._source(name).landings(name).replay()

    def quarantine(self, name: str) -> DataFrame:
        """The rows of dropped files that did not fit: partition, file, line, row, reason, quarantined_at."""
        return self._source(name).landings(name).quarantine.rows()

    def partitions(self, name: str) -> tuple[str, ...]:
        """The partitions of a source that have been dropped or landed, in order; raises SourceError."""
        return self._source(name).landings(name).partitions()

    def version(self, name: str) -> int | None:
        """The latest Delta version of a source that is no view, None while it has no data."""
        return self._source(name).table(name).version()

    def view(self, name: str, query: QueryText, policy: Policy = "incremental", publish: Publish = "auto") -> View:
        """A view of a query: SQL text, or a function of the sources' DataFrames that returns one.

        Raises QueryError where Spark cannot analyse it, SourceError where a source has no data yet.
        """
        if not is_name(name):
            raise QueryError(f"{name!r} is no name for a view: use letters, digits and underscores")
        if policy not in ("incremental", "auto", "definition"):
            raise QueryError(f"there is no policy {policy!r}: use incremental, auto or definition")
        return View(self, name, query, policy, publish, dict(self._views))

    def tables(self) -> dict[str, Table]:
        """The Delta table of every declared source that is no view."""
        return self._declared.tables()

    def schemas(self) -> dict[str, StructType]:
        """The schema of every declared source that is no view and has one by now."""
        return self._declared.schemas()

    def invariant(self) -> frozenset[str]:
        """The sources declared not to change."""
        return frozenset(name for name, declaration in self._declared.sources.items() if declaration.invariant)

    def constraints(self) -> tuple[Constraint, ...]:
        """The declared keys and the sources that only grow; raises SourceError where they do not fit the sources."""
        return self._declared.constraints()

    def quarantined(self) -> dict[str, int]:
        """How many rows of each landed source are in quarantine, where there are any; runs no query."""
        return self._declared.quarantined()

    def _source(self, name: str) -> Declared:
        """The declared sources, if this is no view."""
        if name in self._views:
            raise SourceError(f"source {name} is the view {self._views[name].name}: refresh that, or what reads it")
        return self._declared


@dataclass(frozen=True)
class View:
    """A maintained view; nothing is read before `refresh`. views: those that its query may read, by source."""

    warehouse: Warehouse
    name: str
    query: QueryText
    policy: Policy
    publish: Publish
    views: Mapping[str, View] = field(default_factory=dict[str, "View"], compare=False)

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

    def refresh(
        self,
        versions: Mapping[str, int] | None = None,
        progress: Progress | None = None,
        chunk: int | None = None,
    ) -> Report:
        """One epoch, up to the sources' latest versions or the given ones; finishes an interrupted epoch first.

        chunk: bytes of source files that one epoch takes in; a larger change, a first load above all, takes several.
        The views that its query reads go to the same versions first; `versions` may name what only they read.
        Raises RefusedError, SourceError, BusyError, ChangedQueryError; nothing is half done after any of them.
        """
        return self._refresh().run(versions, progress, chunk=chunk)

    def rebuild(self, progress: Progress | None = None, chunk: int | None = None) -> Report:
        """Build the state anew as the next generation; readers keep the old one until it is complete."""
        return self._refresh().run(None, progress, rebuild=True, chunk=chunk)

    def answer(self) -> DataFrame:
        """The answer of the last finished epoch, in the query's order if it has one."""
        return self._compilation.ordered(self._published.rows().select(*(quoted(c.name) for c in self.columns)))

    @property
    def path(self) -> str:
        """The ordinary Delta table that holds the answer of the last finished epoch."""
        return self._published.table.path

    def verify(self, share: float = 1.0) -> Verification:
        """Compare the view with the batch query at its last epoch's versions, duplicates counted.

        share: the part of the keys (without any, of the rows) to compare; another one after each epoch.
        """
        intent = self._published.entry.intent
        sample, versions = self._compilation.sample(share, intent.epoch), standing(intent.sources)
        return verified(intent, versions, self._batch(versions), self.answer(), sample)

    def history(self) -> tuple[Report, ...]:
        """The reports of all finished epochs, oldest first."""
        return tuple(entry.report for entry in self._store.journal.entries() if entry.report)

    def status(self) -> Status:
        """Age and lag of the last epoch, sizes of the tables, what is unfinished or quarantined; runs no query."""
        return replace(observed(self._store, self._base), quarantined=self.warehouse.quarantined())

    def maintain(self, retention_hours: float = WEEK_HOURS, progress: Progress | None = None) -> Upkeep:
        """Compact tables and landed sources; remove what neither a view nor a version of these hours needs."""
        return upkeep(self._store, self._compilation.ways, self._inputs(), retention_hours, progress)

    def rollback(self, epoch: int, generation: int | None = None, progress: Progress | None = None) -> Report:
        """Go back to a finished epoch, as a new generation; the next refresh goes forward from there."""
        self._reread()
        return Rollback(self._store, self._compilation.ways, self._inputs()).to(epoch, generation, progress)

    def branch(self, name: str, into: Warehouse | None = None) -> View:
        """Another view, of this warehouse or `into`, that begins with the last epoch and goes its own way."""
        made = (into or self.warehouse).view(name, self.query, self.policy, self.publish)
        branched(self._store, made._store, self._compilation.ways, self._inputs())
        return made

    def drop(self) -> None:
        """Remove the view's states, tables and journal; sources stay. Raises StateError while it has branches."""
        dropped(self._store)

    @cached_property
    def _compilation(self) -> Compilation:
        spark, schemas, invariant = self.warehouse.spark, self._schemas(), self.warehouse.invariant()
        views, facts = frozenset(self.views), self.warehouse.constraints()
        return Compilation(spark, self.name, self.query, self.policy, self.publish, schemas, invariant, views, facts)

    @property
    def _store(self) -> Store:
        return Store(self.warehouse.spark, self.warehouse.root / "views" / self.name, self.name)

    @property
    def current(self) -> bool:
        """Whether no row has come or gone since the last finished epoch."""
        return self.status().current

    @property
    def schema(self) -> StructType:
        """The columns of the answer with Spark's types, any of which may be NULL."""
        self._reread()
        return self._compilation.schema

    def _base(self, way: str) -> Table:
        """A table by the way to it (see runtime/chain.py)."""
        source, _, rest = way.partition("/")
        return self.views[source]._base(rest) if rest and source in self.views else self.warehouse.tables()[source]

    def _schemas(self) -> dict[str, StructType]:
        return self.warehouse.schemas() | {name: view.schema for name, view in self.views.items()}

    def _reread(self) -> None:
        """Read the query again where a source was altered since."""
        if "_compilation" in self.__dict__ and self._schemas() != self._compilation.schemas:
            self.__dict__.pop("_compilation")

    def _refresh(self) -> Refresh:
        self._reread()
        return Refresh(self._store, self._compilation.ways, self._inputs())

    def _inputs(self) -> Inputs:
        """What the query reads."""
        read, tables = self._compilation.query.sources, self.warehouse.tables()
        views = {name: view._below() for name, view in self.views.items() if name in read}
        return Inputs(self.name, {name: table for name, table in tables.items() if name in read}, views)

    def _below(self) -> Below:
        """This view as another one reads it."""
        columns, refresh = tuple(column.name for column in self.columns), self._refresh()
        return Below(self.warehouse.spark, self.name, self._store.folder, columns, refresh.inputs, refresh.reach)

    def _batch(self, versions: Mapping[str, int]) -> DataFrame:
        """The batch query at these versions, on the batch queries of the views that it reads, not on their tables."""
        read, tables = self._compilation.query.sources, self.warehouse.tables()
        frames = {name: tables[name].at(versions[name]) for name in read if name in tables}
        for name in set(read) & set(self.views):
            below = {way.removeprefix(f"{name}/"): v for way, v in versions.items() if way.startswith(f"{name}/")}
            frames[name] = self.views[name]._batch(below)
        return self._compilation.batch(frames).toDF(*(column.name for column in self.columns))

    def _choice(self) -> Choice:
        """How the next refresh would run, with the views below as they stand."""
        read, spark = self._compilation.query.sources, self.warehouse.spark
        views = {name: view for name, view in self.views.items() if name in read and view.history()}
        tables = self.warehouse.tables() | {name: Table(spark, view.path) for name, view in views.items()}
        return foreseen(self._compilation.ways, read, self._store.journal, tables)

    @property
    def _published(self) -> Published:
        return Published(self._store, self._compilation.ways)


__all__ = [
    "Delta", "DeltafoldError", "Description", "Files", "ForeignKey", "Landing", "Policy", "Report", "Status",
    "Upkeep", "Verification", "View", "Warehouse",
]  # fmt: skip
