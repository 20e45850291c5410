"""The public View: one batch query whose answer is kept. In: a warehouse, a query. Out: its epochs and its answer.

It is made by `Warehouse.view` (api.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from incremental.algebra.address import Address
from incremental.algebra.errors import QueryError, SourceError
from incremental.algebra.plan import Column
from incremental.algebra.recipe import Recipe
from incremental.algebra.report import Description, Report, Verification
from incremental.algebra.sqltext import quoted
from incremental.algebra.upkeep import Status, Upkeep
from incremental.compilation import Compilation, OnChange, Policy
from incremental.compiler.draft import Publish
from incremental.lake.protocol import VersionedTable
from incremental.language.query import QueryText
from incremental.operations.branch import branched, dropped
from incremental.operations.maintenance import WEEK_HOURS, upkeep
from incremental.operations.metrics import measured, observed
from incremental.operations.rollback import Rollback
from incremental.operations.verify import verify
from incremental.refresh.compatibility import redefinition
from incremental.refresh.journal import Entry
from incremental.refresh.mode import Choice, foreseen
from incremental.refresh.publisher import addressed
from incremental.refresh.refresh import Progress, Refresh
from incremental.refresh.snapshot import Published
from incremental.refresh.upstream import Below, Inputs, standing
from incremental.refresh.view_store import Store

if TYPE_CHECKING:
    from incremental.api import Warehouse


@dataclass(frozen=True)
class View:
    """A maintained view; nothing is read before `refresh`. views: those that its query may read, by source."""

    warehouse: Warehouse
    name: str
    query: QueryText
    policy: Policy
    publish: Publish
    views: Mapping[str, View] = field(default_factory=dict[str, "View"], compare=False)
    on_change: OnChange = "refuse"
    publish_as: str | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The answer's columns under the user's names."""
        return self._compilation.columns

    @property
    def verdict(self) -> str:
        """`incremental` or `recompute`."""
        return self._choice().maintenance.mode

    def explain(self, trace: bool = False) -> str:
        """Return how the view is maintained, or why it is recomputed; raises RefusedError if it is refused.

        trace: also the query's plan after each pass of the compiler.
        """
        return self._compilation.explain(self._choice(), trace)

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
        check_versions(versions)
        return self._run(versions, progress, False, checked(chunk))

    def rebuild(self, progress: Progress | None = None, chunk: int | None = None) -> Report:
        """Build the state anew as the next generation; readers keep the old one until it is complete."""
        return self._run(None, progress, True, checked(chunk))

    def _run(
        self, versions: Mapping[str, int] | None, progress: Progress | None, rebuild: bool, chunk: int | None
    ) -> Report:
        refresh = self._refresh()
        with measured(self._store, refresh.inputs):
            return refresh.run(versions, progress, rebuild, chunk)

    def answer(self) -> DataFrame:
        """The answer of the last finished epoch in the query's order; that of the old query until a rebuild is done."""
        return self._answered(*self._published.seen())

    def _answered(self, entry: Entry, rows: DataFrame) -> DataFrame:
        """The answer in the table of an epoch."""
        built = self._store.journal.recipe(entry.intent.fingerprint)
        if built is not None and not self._is_of(built):
            return rows.select(*(quoted(name) for name, _ in built.columns))
        return self._compilation.ordered(rows.select(*(quoted(c.name) for c in self.columns)))

    @property
    def address(self) -> Address:
        """Where the answer of the last finished epoch is: table, version, columns; raises StateError before one."""
        return addressed(self._store.folder, self.name, self.publish_as)

    @property
    def path(self) -> str:
        """The ordinary Delta table that holds the answer of the last finished epoch; a rebuild begins another."""
        return self._published.table.path

    def verify(self, share: float = 1.0) -> Verification:
        """Compare the view with the batch query at its last epoch's versions, duplicates counted.

        share: the part of the keys (without any, of the rows) to compare; another one after each epoch.
        Raises ChangedQueryError where the view, or one that it reads, was built from another query, SourceError where a
        source is another table than the one of its last epoch.
        """
        self._check_unchanged()
        entry, rows = self._published.seen()
        intent = entry.intent
        self._inputs().check({name: pin for name, pin in intent.sources.items() if name not in self.views})
        sample, versions = self._compilation.sample(share, intent.epoch), standing(intent.sources)
        return verify(intent, versions, self._batch(versions), self._answered(entry, rows), sample)

    def history(self) -> tuple[Report, ...]:
        """The reports of all finished epochs, oldest first."""
        return tuple(entry.report for entry in self._store.journal.entries() if entry.report is not None)

    def status(self) -> Status:
        """Age and lag of the last epoch, sizes of the tables, what is unfinished or quarantined; runs no query."""
        return replace(observed(self._store, self._base), quarantined=self.warehouse.quarantined())

    def maintain(self, retention_hours: float = WEEK_HOURS, progress: Progress | None = None) -> Upkeep:
        """Compact tables and landed sources; remove what neither a view nor a version of these hours needs."""
        return upkeep(self._store, self._compilation.ways, self._inputs(), retention_hours, progress)

    def rollback(self, epoch: int, generation: int | None = None, progress: Progress | None = None) -> Report:
        """Go back to a finished epoch, as a new generation; the next refresh goes forward from there."""
        return self._rollback().to(epoch, generation, progress)

    def rebucket(self, buckets: int, progress: Progress | None = None) -> Report:
        """Store states and view in so many buckets, as a new generation; no source is read."""
        return self._rollback().rebucket(buckets, progress)

    def branch(self, name: str, into: Warehouse | None = None) -> View:
        """Another view, of this warehouse or `into`, that begins with the last epoch and goes its own way."""
        made = (into or self.warehouse).view(name, self.query, self.policy, self.publish, self.on_change)
        branched(self._store, made._store, self._inputs())
        return made

    def drop(self) -> None:
        """Remove the view's states, tables, journal and SQL view; raises StateError while it has branches."""
        dropped(self._store)
        self.warehouse.forget(self.name)

    @cached_property
    def _compilation(self) -> Compilation:
        spark, schemas, invariant = self.warehouse.spark, self._schemas(), self.warehouse.invariant()
        views, facts = frozenset(self.views), self.warehouse.constraints
        options = self.policy, self.publish, schemas, invariant, facts, views, self._partitioned_by()
        return Compilation(spark, self.name, self.query, *options, self._store.journal.built())

    @property
    def _store(self) -> Store:
        warehouse = self.warehouse
        folder = warehouse.root / "views" / self.name
        return Store(warehouse.spark, folder, self.name, warehouse.lake, warehouse.tuning, self.publish_as)

    @property
    def current(self) -> bool:
        """Whether no row has come or gone since the last finished epoch."""
        return self.status().current

    @property
    def schema(self) -> StructType:
        """The columns of the answer with Spark's types, any of which may be NULL."""
        self._reread()
        return self._compilation.schema

    def _base(self, way: str) -> VersionedTable:
        """A table by the way to it (see refresh/upstream.py)."""
        source, _, rest = way.partition("/")
        if rest and source in self.views:
            return self.views[source]._base(rest)
        if rest or source not in (tables := self.warehouse.tables()):
            raise SourceError(
                f"view {self.name} was last refreshed from source {source}, which is not declared any more: "
                "rebuild the view, or declare the source again"
            )
        return tables[source]

    def _schemas(self) -> dict[str, StructType]:
        return self.warehouse.schemas() | {name: view.schema for name, view in self.views.items()}

    def _partitioned_by(self) -> dict[str, tuple[str, ...]]:
        """The partition columns of each source; of a view, the one that its answer passes on."""
        passed = {name: view._compilation.partition_key for name, view in self.views.items()}
        return self.warehouse.partitioned_by() | {name: (key,) for name, key in passed.items() if key is not None}

    def _reread(self) -> None:
        """Read the query again where a source, or a setting that it depends on, was altered since."""
        known: Compilation | None = self.__dict__.get("_compilation")
        if known is not None and not known.holds(self._schemas()):
            del self.__dict__["_compilation"]

    def _refresh(self) -> Refresh:
        self._reread()
        return Refresh(self._store, self._compilation.ways, self._inputs(), self.on_change)

    def _rollback(self) -> Rollback:
        self._reread()
        return Rollback(self._store, self._compilation.ways, self._inputs())

    def _inputs(self) -> Inputs:
        """What the query reads."""
        read, tables = self._compilation.query.sources, self.warehouse.tables()
        views = {name: view._below() for name, view in self.views.items() if name in read}
        return Inputs(self.name, {name: table for name, table in tables.items() if name in read}, views)

    def _below(self) -> Below:
        """This view as another one reads it."""
        columns, refresh = tuple(column.name for column in self.columns), self._refresh()
        return Below(self._store, columns, refresh.inputs, refresh.reach)

    def _batch(self, versions: Mapping[str, int]) -> DataFrame:
        """The batch query at these versions, on the batch queries of the views that it reads, not on their tables."""
        read, tables = self._compilation.query.sources, self.warehouse.tables()
        frames = {name: tables[name].scanned(versions[name]) for name in read if name in tables}
        for name in set(read) & set(self.views):
            below = {way.removeprefix(f"{name}/"): v for way, v in versions.items() if way.startswith(f"{name}/")}
            frames[name] = self.views[name]._batch(below)
        return self._compilation.batch(frames).toDF(*(column.name for column in self.columns))

    def _choice(self) -> Choice:
        """How the next refresh would run, with the views below as they stand."""
        read = self._compilation.query.sources
        views = {name: view for name, view in self.views.items() if name in read and view.history()}
        answers = {name: view._published.table for name, view in views.items()}
        tables = {**self.warehouse.tables(), **answers}
        return foreseen(self._compilation.ways, read, self._store.journal, tables)

    @property
    def _published(self) -> Published:
        return Published(self._store)

    def _is_of(self, recipe: Recipe) -> bool:
        """Whether the query is the one that a state was built from."""
        try:
            return self._compilation.query.fingerprint == recipe.fingerprint
        except QueryError:
            return False

    def _check_unchanged(self) -> None:
        """Refuse to compare what was built from another query, here or below."""
        self._reread()
        for name in set(self._compilation.query.sources) & set(self.views):
            self.views[name]._check_unchanged()
        entry = self._published.entry
        if found := redefinition(self.name, self._store.journal, entry, self._compilation.current):
            raise found.refused("rebuild the view before it is verified, or restore what changed")


def check_versions(versions: object) -> None:
    """Refuse versions that are not numbers by source; raises QueryError."""
    given = cast("Mapping[object, object]", versions) if isinstance(versions, Mapping) else None
    if versions is not None and (given is None or not all(type(version) is int for version in given.values())):
        raise QueryError(f"versions are Delta version numbers by source, such as {{'orders': 12}}, not {versions!r}")


def checked(chunk: int | None) -> int | None:
    """The bytes of a part; raises QueryError for none."""
    if chunk is not None and chunk < 1:
        raise QueryError(f"a change cannot be taken in parts of {chunk} bytes: give 1 or more, or None for all at once")
    return chunk
