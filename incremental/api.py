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
from typing import Literal

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from incremental.algebra.errors import DeltafoldError, QueryError, Refusal, RefusedError, SourceError, StateError
from incremental.algebra.plan import Column
from incremental.algebra.program import Program
from incremental.algebra.report import Description, Landing, Report, StateDescription, Verification
from incremental.algebra.sources import Delta, Files, SourceDeclaration
from incremental.catalyst import isolated
from incremental.compiler.compile import check_outputs, check_rows, compiled
from incremental.compiler.explain import explain, explain_refusal
from incremental.compiler.strategy import Publish
from incremental.language.query import Query, QueryText, evaluate, read_query
from incremental.language.ties import settled
from incremental.runtime.journal import Entry, Intent
from incremental.runtime.lake import Table
from incremental.runtime.landing import Landings, declared_schema
from incremental.runtime.maintain import Incremental, Maintenance
from incremental.runtime.recompute import Recomputed
from incremental.runtime.refresh import Progress, Refresh, Store
from incremental.runtime.verify import discrepancy

Policy = Literal["incremental", "auto", "definition"]
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
        return tuple(Column(name, column.type) for column, name in self._query.outputs)

    @property
    def verdict(self) -> str:
        """`incremental` or `recompute`."""
        return "incremental" if isinstance(self._maintenance, Incremental) else "recompute"

    def explain(self) -> str:
        """How the view is maintained, or why it is recomputed; raises RefusedError when it is neither."""
        if isinstance(self._maintenance, Incremental):
            return explain(self.name, self._maintenance.program)
        return explain_refusal(self.name, self._refusals, recomputes=True)

    def description(self) -> Description:
        """The compiled view as plain data, for an orchestrator's graph."""
        states: tuple[StateDescription, ...] = ()
        if isinstance(self._maintenance, Incremental):
            program = self._maintenance.program
            states = tuple(
                StateDescription(s.name, tuple(k.name for k in s.keys), tuple(c.name for c in s.columns))
                for s in program.states
            )
        columns = tuple((column.name, column.type) for column in self.columns)
        sources = self._maintenance.sources
        return Description(self.name, self._query.fingerprint, self.verdict, states, columns, self.explain(), sources)

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
        keys = [order(o.name, o.ascending, o.nulls_first) for o in self._query.ordering]
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
        expected = self._batch({name: tables[name].at(version) for name, version in versions.items()})
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
    def _schemas(self) -> dict[str, StructType]:
        return self.warehouse.schemas()

    @cached_property
    def _query(self) -> Query:
        schemas = self._schemas
        if not schemas:
            reason = "declare its sources and land their data first"
            raise SourceError(f"view {self.name} has no source with a schema: {reason}")
        query = read_query(self.warehouse.spark, self.query, schemas)
        check_outputs(query.outputs)
        return query

    @cached_property
    def _compiled(self) -> Program | RefusedError:
        query = self._query
        forbidden = [(f.text, f.because, f.instead) for f in query.forbidden]
        try:
            return compiled(
                query.plan, query.outputs, query.fingerprint, forbidden, self.warehouse.invariant(), self.publish
            )
        except RefusedError as error:
            return error

    @property
    def _refusals(self) -> tuple[Refusal, ...]:
        return self._compiled.refusals if isinstance(self._compiled, RefusedError) else ()

    @cached_property
    def _maintenance(self) -> Maintenance:
        if self._query.forbidden and isinstance(self._compiled, RefusedError):
            # recomputing cannot help: two runs of the batch query differ
            raise self._compiled
        if isinstance(self._compiled, Program) and self.policy != "definition":
            return Incremental(self._compiled, self._query.attributes)
        if isinstance(self._compiled, RefusedError) and self.policy == "incremental":
            raise self._compiled
        check_rows(self._query.outputs)
        columns = tuple(name for _, name in self._query.outputs)
        by_definition = self.policy == "definition"
        return Recomputed(self._query.fingerprint, self._query.sources, columns, self._batch, by_definition)

    def _batch(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """The user's query as Spark runs it, in a session of its own, with choices among equals settled as we do."""
        spark = self.warehouse.spark if callable(self.query) else isolated(self.warehouse.spark)
        return settled(spark, evaluate(spark, self.query, frames, self._schemas))

    @property
    def _store(self) -> Store:
        return Store(self.warehouse.spark, self.warehouse.root / "views" / self.name, self.name)

    def _refresh(self) -> Refresh:
        if self.warehouse.schemas() != self._schemas:  # a source was altered since the query was read
            for known in ("_schemas", "_query", "_compiled", "_maintenance"):
                self.__dict__.pop(known, None)
        return Refresh(self._store, self._maintenance, self.warehouse.tables())

    def _finished(self) -> Entry:
        """The last finished epoch; an interrupted one is not looked at."""
        done = [entry for entry in self._store.journal.entries() if entry.report is not None]
        if not done:
            raise StateError(f"view {self.name} has no finished epoch yet: refresh it first")
        return done[-1]

    def _final(self, intent: Intent) -> Table:
        return self._store.table(intent.generation, self._maintenance.tables[-1])

    def _version(self, intent: Intent) -> int:
        """The version of the answer's table at an epoch: what an unfinished next one began from, else the latest."""
        last = self._store.journal.last()
        table = self._final(intent)
        if last is not None and last.report is None and last.intent.generation == intent.generation:
            before = last.intent.tables.get(self._maintenance.tables[-1])
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
