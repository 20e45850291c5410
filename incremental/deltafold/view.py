"""Define the public View: one batch query whose answer is maintained.

`Warehouse.view` (api.py) creates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from deltafold.algebra.errors import DeltafoldError, SourceError, StorageError, UsageError
from deltafold.algebra.plain_options import PlainOptions, Publish
from deltafold.algebra.plan import Column
from deltafold.algebra.results import html
from deltafold.algebra.results.address import Address
from deltafold.algebra.results.report import Description, Report, Verification
from deltafold.algebra.results.upkeep import Status, Upkeep
from deltafold.algebra.sqltext import quoted
from deltafold.compilation import Policy, Remedy
from deltafold.display import show_progress
from deltafold.lake.protocol import VersionedTable
from deltafold.lake.remote.remote_path import Place
from deltafold.language.query import QueryText
from deltafold.operations.branch import create_branch, drop_view, forget, readers
from deltafold.operations.metrics import status_with_metrics
from deltafold.operations.rollback import Rollback
from deltafold.operations.upkeep import WEEK_HOURS, check_hours, upkeep, with_growth
from deltafold.operations.verify import Sample, verify, verify_plain
from deltafold.refresh.sources.upstream import Progress
from deltafold.resolution import Compiled, ResolvedView, Resolver, SourceCatalog
from deltafold.spark.java_errors import explain_errors
from deltafold.store.answer_pointer import find_address
from deltafold.store.history import Finished, base_versions, clocks_of
from deltafold.store.plain_answer import PLAIN
from deltafold.store.snapshot import LastAnswer, status_of
from deltafold.store.view_store import Store

if TYPE_CHECKING:
    from deltafold.api import Warehouse


@dataclass(frozen=True, kw_only=True, repr=False)
class View:
    """A maintained view; no data is read before `refresh`.

    catalog: the sources that its query may read; origin: where its query is from, for errors; compiled: its latest
    compilation.
    """

    warehouse: Warehouse
    name: str
    query: QueryText
    policy: Policy
    publish: Publish
    catalog: SourceCatalog = field(compare=False)
    on_change: Remedy = "refuse"
    publish_as: str | None = None
    on_lost: Remedy = "refuse"
    plain_options: PlainOptions = field(default_factory=PlainOptions)
    origin: str = ""
    compiled: Compiled = field(default_factory=Compiled, compare=False)

    def __repr__(self) -> str:
        return f"<View: {self.name} in {self.warehouse.root}>"

    def _repr_html_(self) -> str:
        query = self.query if isinstance(self.query, str) else getattr(self.query, "text", None)
        shown = query or f"function {getattr(self.query, '__name__', type(self.query).__name__)}"
        try:
            return html.view(self.name, shown, self.status(), self.history())
        except DeltafoldError as error:  # a notebook would show its traceback instead of the view
            return html.block(html.element("p", repr(self)), html.element("p", str(error)))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The answer's columns under the user's names."""
        return self._resolved.compilation.columns

    @property
    def mode(self) -> str:
        """The mode of its next epoch: `incremental` or `recompute`."""
        return self._resolved.choice.strategy.mode

    def explain(self, *, trace: bool = False) -> html.Explanation:
        """Return how the view is maintained, or why it is recomputed; raises RefusedError if it is refused.

        trace: also the query's plan after each pass of the compiler. Where a source of the last epoch is gone, return
        that and how the epoch was maintained.
        """
        resolved = self._resolved
        try:
            return resolved.compilation.explain(resolved.choice, trace=trace)
        except (SourceError, StorageError):
            if not (gone := status_of(self.store, self._base).problems):
                raise
            return html.Explanation("\n".join([*gone.values(), "", self._last_answer.explain()]))

    def description(self) -> Description:
        """Return the compiled view as plain data, for an orchestrator's graph."""
        resolved = self._resolved
        return resolved.compilation.description(resolved.choice)

    def refresh(
        self,
        versions: Mapping[str, int] | None = None,
        progress: Progress | None = None,
        chunk: int | None = None,
    ) -> Report:
        """Refresh to the sources' latest versions or the given ones, after finishing an interrupted epoch.

        chunk: bytes of source files per epoch; a larger change, typically the first load, is split into several epochs.
        The views that its query reads are refreshed to the same versions first; `versions` may name sources that only
        they read. Raises RefusedError, SourceError, BusyError, ChangedQueryError, LostSparkError (Spark ended; the next
        refresh finishes what was begun); all of them leave the old answer.
        """
        check_versions(versions)
        return self._run(versions, progress, check_chunk(chunk), rebuild=False)

    def rebuild(self, progress: Progress | None = None, chunk: int | None = None) -> Report:
        """Rebuild the state as the next generation; readers keep the old one until it is complete."""
        return self._run(None, progress, check_chunk(chunk), rebuild=True)

    def _run(
        self, versions: Mapping[str, int] | None, progress: Progress | None, chunk: int | None, *, rebuild: bool
    ) -> Report:
        resolved = self._resolved
        with resolved.watch() as run, show_progress(progress) as step:
            run.report = report = resolved.refresh.run(versions, step, rebuild=rebuild, chunk_bytes=chunk)
            return report

    def answer(self) -> DataFrame:
        """Return the last finished epoch's answer in the query's order; the old query's until a rebuild is done."""
        return self._answer_rows(self._resolved, *self._last_answer.read_consistently())

    def count(self) -> int:
        """Return the number of rows of the last finished epoch's answer; the query is not analysed for it."""
        return self._last_answer.read_consistently()[1].count()

    def _answer_rows(self, resolved: ResolvedView, entry: Finished, rows: DataFrame) -> DataFrame:
        """Return the answer in the table of an epoch."""
        built = self.store.journal.recipe(entry.intent.fingerprint)
        if built is not None and not resolved.is_of(built):
            return rows.select(*(quoted(name) for name, _ in built.columns))
        compilation = resolved.compilation
        return compilation.order(rows.select(*(quoted(column.name) for column in compilation.columns)))

    @property
    def address(self) -> Address:
        """The address of the last finished epoch's answer: table, version, columns; StateError before epoch 1."""
        return find_address(self.store.folder, self.name, self.publish_as)

    @property
    def path(self) -> str:
        """The path of the Delta table with the last finished epoch's answer, as `address` has it."""
        return self.address.path

    @property
    def versions(self) -> dict[str, int]:
        """The Delta version of every base source in the last finished epoch; raises StateError before epoch 1.

        A source that only a view below reads is named by its path: `totals/orders`.
        """
        return base_versions(self._last_answer.entry.intent.sources)

    def batch(self, versions: Mapping[str, int] | None = None) -> DataFrame:
        """Run the batch query at the versions of the last finished epoch, or at the given ones.

        It reads the clock, if it does, at the time of that epoch; at given versions when it is run.
        versions: of all base sources, by the names in `versions`. A view below is replaced by its own batch query.
        """
        check_versions(versions)
        resolved = self._resolved
        if versions is None:
            intent = self._last_answer.entry.intent
            return resolved.batch(base_versions(intent.sources), clocks=clocks_of(intent))
        if missing := resolved.inputs.places.keys() - versions.keys():
            raise UsageError(f"versions: {', '.join(sorted(missing))} missing. Give a version of each base source.")
        return resolved.batch(versions)

    def verify(self, share: float = 1.0) -> Verification:
        """Compare the view with the batch query at its last epoch's versions, duplicates counted.

        share: the share of the keys (of the rows, if there is no key) to compare; each epoch has another sample.
        Raises ChangedQueryError if the view, or one that it reads, was built from another query, SourceError if a
        source is another table than in its last epoch.
        """
        resolved = self._resolved
        resolved.check_unchanged()
        entry, rows = self._last_answer.read_consistently()
        intent = entry.intent
        resolved.inputs.check({name: pin for name, pin in intent.sources.items() if name not in resolved.views})
        sample = resolved.compilation.sample(share, intent.epoch)
        versions = base_versions(intent.sources)
        points = resolved.measured_points(entry)
        expected = resolved.batch(versions, points, clocks_of(intent))
        sources = {path: f"source {name} (version {versions[name]})" for name, path in resolved.inputs.places.items()}
        with explain_errors(sources, moving=False, work="verification", guard=resolved.compilation.current.guard):
            answer = self._answer_rows(resolved, entry, rows)
            verified = verify(intent, versions, expected, answer, sample, points.measured)
            return self._verify_plain(verified, entry, answer, sample) if verified.ok else verified

    def _verify_plain(
        self, verified: Verification, entry: Finished, answer: DataFrame, sample: Sample | None
    ) -> Verification:
        """Compare the plain table, if there is one, with the answer of an epoch that was verified."""
        table = self.store.table_at(PLAIN)
        version = table.version()
        address = self.address  # after the version, which a later epoch that is finished may have written
        if not address.plain or version is None or not address.is_of(entry.intent.generation, entry.intent.epoch):
            return verified
        return verify_plain(verified, answer, table.scan(version), sample)

    def history(self) -> tuple[Report, ...]:
        """Return the reports of all finished epochs, oldest first."""
        return tuple(event.report for event in self.store.journal.entries() if isinstance(event, Finished))

    def status(self) -> Status:
        """Return age and lag of the last epoch, table sizes, unfinished work and quarantined rows; runs no query."""
        status = replace(status_with_metrics(self.store, self._base), quarantined=self._resolved.quarantined())
        if status.epoch is None:
            return status
        address = self.address
        return replace(status, path=address.path, reader_features=address.reader_features)

    def maintain(self, retention_hours: float = WEEK_HOURS, progress: Progress | None = None) -> Upkeep:
        """Compact tables and landed sources; remove files that no view and no version of the last `hours` needs.

        Stores the view in more buckets first if they have become too large.
        """
        resolved = self._resolved
        check_hours(self.name, retention_hours)
        grown = self._rollback_run.grow(progress)
        done = upkeep(self.store, resolved.compilation.mode_policy, resolved.inputs, retention_hours, progress)
        return done if grown is None else with_growth(done, grown)

    def rollback(self, epoch: int, generation: int | None = None, progress: Progress | None = None) -> Report:
        """Roll back to a finished epoch, as a new generation; the next refresh continues from there."""
        return self._rollback_run.to(epoch, generation, progress)

    def rebucket(self, buckets: int, progress: Progress | None = None) -> Report:
        """Rewrite states and view with a number of buckets, as a new generation; no source is read."""
        return self._rollback_run.rebucket(buckets, progress)

    def branch(self, name: str, into: Warehouse | None = None) -> View:
        """Create a view in this warehouse or `into` that starts from the last epoch and is maintained separately."""
        branch = (into or self.warehouse).view(
            name,
            self.query,
            policy=self.policy,
            publish=self.publish,
            on_change=self.on_change,
            on_lost=self.on_lost,
            comment=self.plain_options.comment,
            table_properties=dict(self.plain_options.properties),
            cluster_by=self.plain_options.cluster_by,
        )
        create_branch(self.store, branch.store, self._resolved.inputs)
        return branch

    def drop(self, *, force: bool = False) -> None:
        """Remove the view's states, tables, journal and SQL view; raises StateError while it has branches.

        force: drop it even if another view, refreshed anywhere or declared in this process, reads it; rebuild that one.
        """
        drop_view(self.store, () if force else readers(self.folder), force=force)
        forget(self.folder)
        self.catalog.sql_names.free(self.name)
        self.catalog.made.pop(self.name, None)

    def reads(self, folder: Place) -> bool:
        """Return whether the query reads the view in a folder as a source."""
        names = {name for name, view in self.catalog.views.items() if view.folder == folder}
        return bool(names) and not names.isdisjoint(self._resolved.compilation.query.sources)

    @property
    def folder(self) -> Place:
        """The folder with the view's journal and tables."""
        return self.store.folder.resolve()

    @property
    def store(self) -> Store:
        """The store of its journal and tables."""
        warehouse = self.warehouse
        folder = warehouse.root / "views" / self.name
        return Store(
            spark=warehouse.spark,
            folder=folder,
            view=self.name,
            lake=warehouse.lake,
            tuning=warehouse.tuning,
            publish_as=self.publish_as,
            publish=self.publish,
            plain_options=self.plain_options,
        )

    @property
    def current(self) -> bool:
        """Whether no source row was added or removed since the last finished epoch."""
        return self.status().current

    @property
    def schema(self) -> StructType:
        """The columns of the answer with Spark's types, all nullable."""
        return self._resolved.compilation.schema

    @property
    def _resolved(self) -> ResolvedView:
        """Resolve the view and its sources for one operation."""
        return Resolver().view(self)

    @property
    def _rollback_run(self) -> Rollback:
        resolved = self._resolved
        return Rollback(self.store, resolved.compilation.mode_policy, resolved.inputs)

    @property
    def _last_answer(self) -> LastAnswer:
        return LastAnswer(self.store)

    def _base(self, source_path: str) -> VersionedTable:
        """Return a base table by its path through the views (see refresh/sources/upstream.py)."""
        source, _, rest = source_path.partition("/")
        if rest and source in self.catalog.views:
            return self.catalog.views[source]._base(rest)
        if rest or source not in self.catalog.declared.sources:
            raise SourceError(
                f"view {self.name}: last refreshed from source {source}, which is no longer declared. "
                "Rebuild the view, or declare the source again."
            )
        return self.catalog.declared.table(source)


def check_versions(versions: object) -> None:
    """Raise UsageError for versions that are not numbers by source."""
    by_source = cast("Mapping[object, object]", versions) if isinstance(versions, Mapping) else None
    if versions is not None and (by_source is None or not all(type(number) is int for number in by_source.values())):
        raise UsageError(
            f"versions: {versions!r} is not valid. Give Delta version numbers by source, such as {{'orders': 12}}."
        )


def check_chunk(chunk: object) -> int | None:
    """Return the bytes of a chunk; raises UsageError for anything but a number from 1."""
    if chunk is None or (isinstance(chunk, int) and chunk >= 1):
        return chunk
    raise UsageError(f"chunk: {chunk!r} is not valid. Give a number of bytes, 1 or more, or None for no limit.")
