"""Look up the sources of views' queries, each view and each source once in an operation.

An operation (an explain, a refresh, a verification) creates one `Resolver`. It compiles the query of each view that it
reads, or reuses the last compilation if the declared sources, their schemas, and Spark's settings have not changed.
Sources that a query does not read are not looked up, so errors in them do not matter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltafold.algebra.constraints import Constraint
from deltafold.algebra.errors import (
    DeltafoldError,
    LostSparkError,
    QueryError,
    SourceError,
    StateError,
    StorageError,
    UsageError,
)
from deltafold.algebra.monoids.declared import MARK, DeclaredMonoid
from deltafold.algebra.program import BUCKET
from deltafold.algebra.recipe import Recipe
from deltafold.algebra.results.address import SqlNames
from deltafold.algebra.results.notes import ReadAsItIs
from deltafold.algebra.results.report import Report
from deltafold.compilation import Compilation, Sources
from deltafold.dataflow.publish import COPY
from deltafold.lake.protocol import VersionedTable
from deltafold.lake.remote.remote_path import Place
from deltafold.language.loops.definition import MeasuredPoints
from deltafold.language.loops.options import evaluate_by
from deltafold.language.mentions import find_mentions
from deltafold.language.query import Settings, answer_settings
from deltafold.operations.metrics import update_metrics
from deltafold.operations.openlineage import Job, Output, Run, name_pipeline, open_run
from deltafold.operations.openlineage import Table as LineageTable
from deltafold.refresh.compatibility import find_redefinition
from deltafold.refresh.mode import Choice, predict_choice
from deltafold.refresh.pipeline_run import Dataset, RunState
from deltafold.refresh.refresh import Refresh
from deltafold.refresh.reporting import unchanged_report
from deltafold.refresh.sources.source_catalog import Declared
from deltafold.refresh.sources.upstream import Inputs, Progress, Targets, UpstreamState, UpstreamView
from deltafold.spark.lost import explain_lost_spark
from deltafold.spark.session_state import temporary_functions
from deltafold.store.history import NO_CLOCKS, Finished, base_versions, clocks_below
from deltafold.store.snapshot import LastAnswer

if TYPE_CHECKING:
    from deltafold.api import Warehouse
    from deltafold.view import View


@dataclass
class Compiled:
    """The memo of a view: its latest compilation, which later operations reuse as long as its key is the same.

    lookup: the sources of that compilation. A View passes the memo from one operation to the next.
    """

    latest: Compilation | None = None
    lookup: _SourceLookup | None = None

    def find(self, view: View, resolver: Resolver) -> Compilation | None:
        """Return the compilation that has the key of now, for an operation."""
        if self.latest is None or self.lookup is None:
            return None
        now = _SourceLookup(view.catalog, resolver)
        if self.latest.key != self.latest.key_over(now, resolver.settings(view.warehouse.spark)):
            return None
        self.lookup.resolver = resolver
        return self.latest


@dataclass(frozen=True)
class SourceCatalog:
    """The declared sources of a warehouse by name: Delta tables, input files, or views; its monoids and SQL names.

    A warehouse adds to it; a view has a copy with the sources that were declared before it, so that no view reads
    itself. All copies share the SQL names, and the views of the warehouse by name.
    """

    declared: Declared
    views: dict[str, View]
    monoids: dict[str, DeclaredMonoid] = field(default_factory=dict[str, DeclaredMonoid])
    sql_names: SqlNames = field(default_factory=SqlNames)
    made: dict[str, View] = field(default_factory=dict[str, "View"])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all sources."""
        return *self.declared.sources, *self.views

    def of_now(self) -> SourceCatalog:
        """Return the catalog of a view that is created now."""
        return replace(self, views=dict(self.views), monoids=dict(self.monoids))


class _SourceLookup(Sources):
    """The sources of one view, each looked up when its compilation needs it; schemas that it reads are cached."""

    def __init__(self, catalog: SourceCatalog, resolver: Resolver) -> None:
        self._catalog = catalog
        self.resolver = resolver
        self._schemas: dict[str, StructType | None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return self._catalog.names

    @property
    def looked_up(self) -> Mapping[str, StructType | None]:
        return self._schemas

    @property
    def views(self) -> frozenset[str]:
        return frozenset(self._catalog.views)

    @property
    def invariant(self) -> frozenset[str]:
        return self._catalog.declared.invariant()

    @property
    def monoids(self) -> Mapping[str, DeclaredMonoid]:
        return self._catalog.monoids

    def schema(self, name: str) -> StructType | None:
        if name not in self._schemas:
            self._schemas[name] = self.resolver.schema(self._catalog, name)
        return self._schemas[name]

    def peek(self, name: str) -> StructType | None:
        try:
            return self.resolver.schema(self._catalog, name)
        except DeltafoldError:
            return None

    def without_data(self, name: str, *, was_read: bool) -> str:
        return self._catalog.declared.without_data(name, was_read=was_read)

    def partitioned_by(self, name: str) -> tuple[str, ...]:
        if name in self._catalog.views:
            key = self.resolver.view(self._catalog.views[name]).partition_key
            return () if key is None else (key,)
        return self._catalog.declared.partitioned_by(name)

    def constraints(self, read: Collection[str]) -> tuple[Constraint, ...]:
        return self._catalog.declared.constraints(read, self.schema)


class Resolver:
    """The lookups of one operation: views, sources and settings, each looked up once.

    run: of a pipeline, of which the refreshes of its views are parts (lineage).
    """

    def __init__(self, run: Run | None = None) -> None:
        self.run = run
        self._views: dict[int, ResolvedView] = {}
        self._schemas: dict[tuple[int, str], StructType | None] = {}
        self._settings: dict[SparkSession, Settings] = {}

    def view(self, view: View) -> ResolvedView:
        """Return a view with its query and sources."""
        return self._views.setdefault(id(view), ResolvedView(view, self))

    def schema(self, catalog: SourceCatalog, name: str) -> StructType | None:
        """Return the schema of a source, None if it has none yet or is not declared."""
        if name in catalog.views:
            return self.view(catalog.views[name]).compilation.schema
        if name not in catalog.declared.sources:
            return None
        key = id(catalog.declared), name
        if key not in self._schemas:
            self._schemas[key] = catalog.declared.schema(name)
        return self._schemas[key]

    def settings(self, spark: SparkSession) -> Settings:
        """Return the settings that answers depend on."""
        if spark not in self._settings:
            self._settings[spark] = answer_settings(spark)
        return self._settings[spark]

    def datasets(
        self, warehouse: Warehouse, names: Collection[str], rebuilt: Collection[str], *, only: bool = False
    ) -> list[Dataset]:
        """Return the views of these names, and all that they read, as the datasets of a pipeline.

        Views of other warehouses are named with their folder. rebuilt: the names of views to rebuild; only: the views
        that these read are not refreshed, but read as their last epoch left them.
        """
        datasets = dict[Place, Dataset]()
        waiting = deque(warehouse.views[name] for name in names)
        chosen = {view.folder for view in waiting}
        while waiting:
            view = waiting.popleft()
            if view.folder not in datasets:
                resolved, own = self.view(view), view.warehouse is warehouse
                name = view.name if own else f"{view.warehouse.root.name}/{view.name}"
                dataset = resolved.dataset(name, rebuild=own and name in rebuilt)
                if only and view.folder not in chosen:
                    datasets[view.folder] = replace(dataset, reads=(), refresh=resolved.keep_within)
                else:
                    datasets[view.folder] = dataset
                    waiting += resolved.read
        return list(datasets.values())


def compile_view(view: View, resolver: Resolver) -> Compilation:
    """Return the compiled query of a view over its sources as they are now; raises what `Compilation.analysis` does.

    The latest compilation is reused if its key is the same. What a key cannot have is looked at again: a function, or a
    text that calls temporary functions, is analysed, and its plans are compared; a text that reads a view of the
    session or the catalog is compiled.
    """
    spark, memo = view.warehouse.spark, view.compiled
    latest = memo.find(view, resolver)
    if latest is not None and not callable(view.query) and not temporary_functions(spark, MARK):
        return latest
    lookup = _SourceLookup(view.catalog, resolver)
    compilation = Compilation(
        spark=spark,
        name=view.name,
        text=view.query,
        policy=view.policy,
        publish=view.publish,
        sources=lookup,
        mentions=find_mentions(spark, view.query),
        settings=resolver.settings(spark),
        origin=view.origin,
        kept=view.store.journal.last_recipe(),
        earlier=None if latest is None else latest.analysis,
    )
    if latest is not None and latest.has_query_of(compilation):
        return latest
    memo.latest = None if compilation.analysis.replaceable else compilation
    memo.lookup = lookup
    return compilation


@dataclass(frozen=True)
class ResolvedView:
    """A view in one operation: its query, compiled over its current sources, and its inputs."""

    view: View
    resolver: Resolver

    @cached_property
    def compilation(self) -> Compilation:
        """The compiled query; each stage runs when it is first needed."""
        return compile_view(self.view, self.resolver)

    def is_of(self, recipe: Recipe) -> bool:
        """Return whether a state was built from this query; False if it cannot be analysed any more."""
        try:
            return self.compilation.query.fingerprint == recipe.fingerprint
        except (QueryError, SourceError, StorageError):
            return False

    def quarantined(self) -> dict[str, int]:
        """Return the rows in quarantine of each source that the query may read; compiles nothing."""
        catalog = self.view.catalog
        latest = self.view.compiled.latest
        mentions = find_mentions(self.view.warehouse.spark, self.view.query) if latest is None else latest.mentions
        return catalog.declared.quarantined(mentions.among(catalog.names))

    @cached_property
    def tables(self) -> dict[str, VersionedTable]:
        """The tables that the query reads, by source."""
        declared = self.view.catalog.declared
        return {name: declared.table(name) for name in self.compilation.query.sources if name in declared.sources}

    @cached_property
    def views(self) -> dict[str, ResolvedView]:
        """The views that the query reads, by source."""
        views = self.view.catalog.views
        return {name: self.resolver.view(views[name]) for name in self.compilation.query.sources if name in views}

    @cached_property
    def partition_key(self) -> str | None:
        """The answer's column that contains a partition column of a source unchanged."""
        return self.compilation.partition_key

    @cached_property
    def inputs(self) -> Inputs:
        """The inputs of a refresh: tables, and views that it refreshes first."""
        views = {name: view.below for name, view in self.views.items()}
        grown, types = self.compilation.query.grown, self.compilation.current.recipe.sources
        return Inputs(self.view.name, self.tables, views, grown, types)

    @cached_property
    def refresh(self) -> Refresh:
        """The refresh protocol for the view; raises UsageError for a clustering that the answer cannot have."""
        if fault := self.view.plain_options.clustering_fault([column.name for column in self.compilation.columns]):
            raise UsageError(f"view {self.view.name}: {fault}.")
        return Refresh(
            self.view.store,
            self.compilation.mode_policy,
            self.inputs,
            on_change=self.view.on_change,
            on_lost=self.view.on_lost,
        )

    @cached_property
    def below(self) -> UpstreamView:
        """The view as an input of another view."""
        columns = tuple(column.name for column in self.compilation.columns)
        return UpstreamView(self.view.store, columns, self.refresh.inputs, self.refresh.reach)

    @cached_property
    def read(self) -> tuple[View, ...]:
        """The views that the query reads, as declared last; those that it mentions, if it cannot be analysed."""
        catalog = self.view.catalog
        try:
            with explain_lost_spark():
                names: Collection[str] = self.views
        except LostSparkError:
            raise
        except Exception:  # reported when the dataset is refreshed
            names = find_mentions(self.view.warehouse.spark, self.view.query).among(catalog.names)
        read = [catalog.views[name] for name in names if name in catalog.views]
        return tuple({view.folder: view.catalog.made.get(view.name, view) for view in read}.values())

    def dataset(self, name: str, *, rebuild: bool) -> Dataset:
        """Return the view as a dataset of a pipeline."""
        tables, columns = dict[str, VersionedTable](), dict[str, Collection[str]]()
        refresh: Callable[[RunState, Progress | None], Report] = partial(self.refresh_within, rebuild=rebuild)
        try:
            with explain_lost_spark():
                inputs = self.refresh.inputs
                tables |= inputs.located
                columns |= {inputs.places[name]: inputs.types.get(name, {}).keys() for name in inputs.tables}
        except LostSparkError:
            raise
        except Exception as error:  # the run reports it
            refresh = partial(self.fail_within, fault=error)
        return Dataset(
            name=name,
            folder=self.view.folder,
            reads=tuple(view.folder for view in self.read),
            refresh=refresh,
            tables=tables,
            columns=columns,
        )

    def refresh_within(self, run: RunState, progress: Progress | None, *, rebuild: bool) -> Report:
        """Refresh the view as a part of a pipeline."""
        with self.watch() as own:
            report = self.refresh.run_within(run.targets, run.done, progress, run.changes, rebuild=rebuild)
            read = [run.done[folder].report for folder in self.inputs.read_views if folder in run.done]
            own.report = replace(report, below=tuple(read))  # whose epochs are the versions of the inputs
            return report

    def fail_within(self, run: RunState, progress: Progress | None, *, fault: Exception) -> Report:
        """Raise why the view cannot be refreshed."""
        with self.watch():
            raise fault

    def keep_within(self, run: RunState, progress: Progress | None) -> Report:
        """Give the views of a pipeline that read this one its last epoch; raises StateError if it has none."""
        store = self.view.store
        entry = store.journal.last_complete()
        if entry is None:
            raise StateError(f"view {self.view.name}: it was never refreshed. Refresh it, too.")
        final = self.compilation.mode_policy.of(entry.intent.mode).tables[-1]
        consumed = base_versions(entry.intent.sources)
        missed = {
            path: run.targets[place]
            for path, place in self.inputs.places.items()
            if place in run.targets and consumed.get(path) != run.targets[place]
        }
        report = unchanged_report(self.view.name, entry, entry.intent.sources, ReadAsItIs(missed=missed))
        run.done[store.folder.resolve()] = UpstreamState(entry, final, report)
        return report

    @contextmanager
    def watch(self) -> Generator[Run]:
        """Write the metrics of a refresh and send its lineage, which get its report; explain the end of Spark."""
        with (
            explain_lost_spark(),
            open_run(self.lineage_job, self.resolver.run, self.find_lineage_job) as run,
            update_metrics(self.view.store, self.inputs),
        ):
            yield run

    def lineage_job(self) -> Job:
        """Return the refresh of the view as OpenLineage's job; without inputs for a query that cannot be compiled."""
        view = self.view
        job = Job(
            name=f"{name_pipeline(view.warehouse.root)}.{view.name}",
            query=view.query if isinstance(view.query, str) else getattr(view.query, "text", None),
            output=(output := Output(location=str(view.folder), address=lambda: view.address)),
        )
        try:
            compilation = self.compilation
            locations = {name: (table.place, None) for name, table in self.tables.items()}
            locations |= {name: (str(below.view.folder), below.view.name) for name, below in self.views.items()}
            inputs = {
                name: LineageTable(location=place, view=below, columns=_columns(compilation.sources.schema(name)))
                for name, (place, below) in locations.items()
            }
            columns = tuple((column.name, column.type) for column in compilation.columns)
            output = replace(output, columns=columns, lineage=compilation.lineage)
            return replace(job, inputs=inputs, output=output)
        except Exception:  # raised again by the refresh
            return job

    def find_lineage_job(self, name: str) -> Job | None:
        """Return the job of a view below, at any depth, by its name."""
        return next((below.lineage_job() for below in self._chain if below.view.name == name), None)

    @property
    def choice(self) -> Choice:
        """Predict the mode of the next refresh, with the views below at their current versions."""
        finished = {name: LastAnswer(resolved.view.store) for name, resolved in self.views.items()}
        answers = {name: answer.table for name, answer in finished.items() if answer.exists}
        read = self.compilation.query.sources
        journal = self.view.store.journal
        return predict_choice(
            self.compilation.mode_policy, read, journal, self.tables | answers, self.view.warehouse.tuning
        )

    def batch(
        self,
        versions: Mapping[str, int],
        points: MeasuredPoints | None = None,
        clocks: Mapping[str, str] = NO_CLOCKS,
    ) -> DataFrame:
        """Return the batch query at these versions, over the batch queries of the views that it reads.

        versions: of all base sources, by their path through the views; points: evaluates its loops, which are else
        evaluated by their definition; clocks: the times at which queries read the clock (clocks_of), now by default.
        """
        read = {path: version for path, version in versions.items() if self.inputs.find_place(path) is not None}
        return self._batch(self.inputs.locate(read), points, clocks, {})

    def _batch(
        self,
        targets: Targets,
        points: MeasuredPoints | None,
        clocks: Mapping[str, str],
        below: dict[Place, DataFrame],
    ) -> DataFrame:
        """Return the batch query with each base table at a version, by its location; below: those of views so far."""
        frames = {name: table.scan(targets[self.inputs.places[name]]) for name, table in self.tables.items()}
        for name, view in self.views.items():
            folder = view.view.folder
            if folder not in below:
                below[folder] = view._batch(targets, view._points_at(targets), clocks_below(clocks, name), below)
            frames[name] = below[folder]
        with nullcontext() if points is None else evaluate_by(points):
            return self.compilation.batch(frames, clocks.get("", "")).toDF(
                *(column.name for column in self.compilation.columns)
            )

    def _points_at(self, targets: Targets) -> MeasuredPoints | None:
        """Return the stored answers of its loops, if its last epoch is of these versions; None without loops."""
        entry = self.view.store.journal.last_complete() if self.compilation.query.loops else None
        consumed = {} if entry is None else base_versions(entry.intent.sources)
        wanted = {path: targets[place] for path, place in self.inputs.places.items()}
        return self.measured_points(entry) if entry is not None and wanted.items() <= consumed.items() else None

    def measured_points(self, entry: Finished) -> MeasuredPoints:
        """Return the stored answers of the loops that the query calls, as an epoch left them."""
        store = self.view.store
        generation = entry.intent.generation
        tables = {
            number: store.table(generation, name).scan(version)
            for number, name in enumerate(self.compilation.query.loops)
            if (version := entry.after.get(name)) is not None
        }
        return MeasuredPoints({number: table.drop(COPY, BUCKET) for number, table in tables.items()})

    def check_unchanged(self) -> None:
        """Raise ChangedQueryError if the state, of this view or one below, was built from another query."""
        for resolved in (*self._chain, self):
            store = resolved.view.store
            entry = LastAnswer(store).entry
            if redefinition := find_redefinition(store.view, store.journal, entry, resolved.compilation.current):
                raise redefinition.refuse("Rebuild the view before it is verified, or restore what changed")

    @cached_property
    def _chain(self) -> tuple[ResolvedView, ...]:
        """Return the views below, at any depth, each once and before its readers."""
        below = [resolved for view in self.views.values() for resolved in (*view._chain, view)]
        return tuple({id(resolved.view): resolved for resolved in below}.values())


def _columns(schema: StructType | None) -> tuple[tuple[str, str], ...]:
    """Return names and types of a source's columns."""
    return () if schema is None else tuple((field.name, field.dataType.simpleString()) for field in schema)
