"""Open the datasets of a project as views of one warehouse, and refresh them with its streaming tables as one pipeline.

Everything that cannot be refreshed at all is found before anything runs. A dataset that is refused, or a source whose
files cannot be landed, stops what reads it, and nothing else (D-232).
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn, cast

from delta.tables import DeltaTable
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from deltafold.algebra.errors import (
    CatalogError,
    DeltafoldError,
    DeltafoldWarning,
    LostSparkError,
    QueryError,
    RefusedError,
    SourceError,
)
from deltafold.algebra.local_path import plain
from deltafold.algebra.results.pipeline_report import PipelineReport
from deltafold.algebra.results.report import Report
from deltafold.algebra.sqltext import literal, quoted
from deltafold.api import Delta, Files, Landing, Stream, View, Warehouse
from deltafold.compilation import Policy
from deltafold.lake.records import records_at
from deltafold.lake.remote.remote_path import place_of
from deltafold.language.determinism.clock import bind_clock
from deltafold.language.evaluation import unknown_table
from deltafold.language.mentions import CASE, find_relations, name_parts
from deltafold.operations.openlineage import Job, name_pipeline, open_run
from deltafold.pipelines.declaration.parsing import DeclarationError, suggest_nearest
from deltafold.pipelines.graph import (
    Graph,
    Leaves,
    Parts,
    Reads,
    Refusal,
    Relation,
    UnavailableError,
    explain_analysis,
    merge_columns,
)
from deltafold.pipelines.project import Dataset, Project, QueryFunction, StreamingTable, TableOptions
from deltafold.pipelines.selection import Nodes, find_nodes
from deltafold.refresh import pipeline_run
from deltafold.refresh.pipeline_run import RunState, refresh_datasets
from deltafold.refresh.sources.upstream import Progress
from deltafold.resolution import Resolver
from deltafold.spark import catalyst
from deltafold.spark.java_errors import causes, conditions, first_line, sentence_of_analysis
from deltafold.spark.lost import explain_lost_spark
from deltafold.spark.threads import choose_threads

POLICIES: Mapping[str, tuple[Policy, ...]] = {
    "auto": ("auto",),
    "incremental": ("incremental", "auto"),  # the second where the query is refused under the first
    "incremental_strict": ("incremental",),
    "full": ("definition",),
}
STRICT = "incremental_strict"
UNVERSIONED_UNDER_STRICT = (
    "policy incremental_strict: the query reads data without versions, so it is recomputed at each run. Stream that "
    "into a table, or choose another policy."
)
CHANGED_ROWS = {"DELTA_SOURCE_IGNORE_DELETE", "DELTA_SOURCE_TABLE_IGNORE_CHANGES"}  # Delta's errors of a stream
REPLACED_TABLE = "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"
SESSION_CATALOG = "spark_catalog"
CATALOG_KIND, IN_MEMORY = "spark.sql.catalogImplementation", "in-memory"
STORAGE = "deltafold.storage"  # a property of streaming tables: the project's storage
CHECKPOINT = "deltafold.checkpoint"  # the number of the checkpoints of its flows, which a full refresh raises


class ProjectRefusedError(DeclarationError):
    """A project has datasets that cannot be refreshed; its message has one line for each."""


@dataclass(frozen=True)
class ProjectQuery:
    """The query of a dataset as a function of the frames of its sources, which its signature names (D-179)."""

    graph: Graph
    name: str
    query: str | QueryFunction
    sources: tuple[str, ...]

    def __post_init__(self) -> None:
        parameters = [inspect.Parameter(source, inspect.Parameter.KEYWORD_ONLY) for source in self.sources]
        object.__setattr__(self, "__signature__", inspect.Signature(parameters))
        object.__setattr__(self, "__name__", self.name)

    def __call__(self, **frames: DataFrame) -> DataFrame:
        """Return the frame of the answer."""

        def table(relation: Relation) -> DataFrame:
            if relation.source not in frames:
                raise QueryError(
                    f"query: it reads {relation.sql}, which it did not when the project was loaded. Run again."
                )
            return frames[relation.source]

        return self.graph.evaluate(self.query, Leaves(table=table, stream=_refuse_stream))


def _refuse_stream(relation: Relation, options: Mapping[str, Any]) -> NoReturn:
    raise QueryError(f"query: it reads {relation.sql} as a stream. Read it as a table.")


NO_TABLE_AT_PATH = frozenset({"PATH_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "DELTA_TABLE_NOT_FOUND"})


@dataclass
class OpenProject:
    """A project on a running Spark: its warehouse and a view for each opened dataset, by complete name.

    unlanded: why declared sources could not be landed; nothing that reads them is opened.
    """

    project: Project
    spark: SparkSession
    views: dict[Parts, View] = field(default_factory=dict[Parts, View])
    unlanded: dict[str, Exception] = field(default_factory=dict[str, Exception])

    @cached_property
    def graph(self) -> Graph:
        """The names of the project."""
        return Graph(self.spark, self.project, self._source_schema)

    @cached_property
    def reads(self) -> Reads:
        """What its queries read; analyses all of them."""
        return Reads.of(self.graph)

    @cached_property
    def root(self) -> str:
        """The folder or URI of states, answers and checkpoints."""
        return plain(self.project.storage).rstrip("/")

    @cached_property
    def warehouse(self) -> Warehouse:
        """The warehouse of its datasets, with the sources that the project declares."""
        warehouse = Warehouse(self.spark, f"{self.root}/warehouse")
        for name, declaration in (self.project.sources or {}).items():
            warehouse.source(name, declaration)
        return warehouse

    def land(self, progress: Progress) -> tuple[Landing, ...]:
        """Land the input files and streams of the declared sources; faults are in `unlanded`."""
        declared = (self.project.sources or {}).items()
        names = [name for name, declaration in declared if isinstance(declaration, Files | Stream)]
        return tuple(landing for name in names if (landing := self.land_source(name, progress)) is not None)

    def land_source(self, name: str, progress: Progress) -> Landing | None:
        """Land the files or the stream of a source; a fault is added to `unlanded`. Raises LostSparkError."""
        progress(f"{name}: landing files")
        try:
            with explain_lost_spark():
                return self.warehouse.land(name)
        except LostSparkError:
            raise
        except Exception as error:
            self.unlanded[name] = error
            return None

    def show_source(self, relation: Relation) -> str:
        """Return the name of a declared source, or the complete name of a table of the catalog."""
        return ".".join(relation.parts) if self.project.sources is None else relation.source

    def _source_schema(self, relation: Relation) -> StructType:
        """Return the schema of a declared source, or of a table of the catalog."""
        declared = self.project.sources
        if declared is None:
            return self._catalog_schema(relation)
        if relation.source not in declared:
            readable = [*declared, *(node.name for node in self.graph.nodes.values())]
            raise QueryError(
                f"query: it reads {relation.written[-1]}, which is not a dataset and not a declared source. "
                f"{suggest_nearest(relation.written[-1], readable)}"
            )
        if relation.source in self.unlanded:
            raise UnavailableError(f"query: it reads {relation.source}, which could not be landed.")
        schema = self.warehouse.schema(relation.source)
        if schema is None:
            raise SourceError(f"source {relation.source}: it has no table yet. Create it first.")
        return schema

    def _catalog_schema(self, relation: Relation) -> StructType:
        try:
            return self.spark.table(relation.sql).schema
        except PySparkException as error:
            if relation.is_path and self.project.tables and error.getCondition() in NO_TABLE_AT_PATH:
                path = relation.parts[-1]
                raise QueryError(
                    f"query: it reads the source {'.'.join(path.split('/')[-2:])}, and {path} is no Delta table. Write "
                    "one there, or correct --tables."
                ) from error
            if not (name := unknown_table(error)):
                raise
            sources = {node.name for node in self.project.nodes or () if node.kind in ("source", "other")}
            fix = "It is a source: run where the catalog has it, or name the folder of such tables by --tables DIR."
            if relation.parts[-1] not in sources:
                fix = suggest_nearest(relation.written[-1], [node.name for node in self.graph.nodes.values()])
            raise QueryError(
                f"query: it reads {name}, which is not a dataset and not a table of the catalog. {fix}"
            ) from error

    def check(self) -> None:
        """Raise ProjectRefusedError for what is refused in the files of the project, but not of one dataset."""
        if self.project.refusals:
            raise ProjectRefusedError("\n".join(self.project.refusals))

    def open(self, chosen: Collection[Parts] | None = None, *, create: bool = True) -> tuple[str, ...]:
        """Do what `open_possible` does. Raises ProjectRefusedError with a line for each refusal and failed landing."""
        unknown = self.open_possible(chosen, create=create)
        refused = self.find_refusals(chosen)
        if sentences := (*self.project.refusals, *map(str, self.unlanded.values()), *refused):
            raise ProjectRefusedError("\n".join(sentences))
        return unknown

    def find_refusals(self, chosen: Collection[Parts] | None) -> list[str]:
        """Return a sentence for each refused dataset among the chosen ones and what they read, or among all."""
        needed = (self.refused.get(self.graph.key(node)) for node in self.reads.find_needed(chosen))
        return [each.sentence for each in needed if each and not isinstance(each.error, UnavailableError)]

    def open_possible(self, chosen: Collection[Parts] | None = None, *, create: bool = True) -> tuple[str, ...]:
        """Compile the views, or the chosen ones and all that these read; what cannot be is in `refused`.

        create: create the tables that no view keeps and that do not exist; else the datasets that read such a table are
        only analysed, and their names are returned.
        """
        if create:
            self._create_databases()
        unknown, missing = list[str](), set[Parts]()
        for node in self.reads.find_needed(chosen):
            key = self.graph.key(node)
            if key in self.refused:
                continue
            if self.reads.below(key) & missing:
                unknown.append(node.name)
                continue
            try:
                self._check_available(key)
                if isinstance(node, Dataset):
                    self._open(key, node)
                if self.is_written(node):
                    if create:
                        self._create(node)
                    elif not self._exists(node):
                        missing.add(key)
            except (DeltafoldError, PySparkException) as error:
                self.refused[key] = Refusal(name=node.name, origin=node.origin, error=explain_analysis(error))
        return tuple(unknown)

    def answer(self, name: str) -> DataFrame:
        """Return the rows of one dataset, or of a table that each run writes. Raises DeclarationError."""
        node = self.find_node(name)
        if not self.is_written(node):
            return self.find_view(name).answer()
        if not self._exists(node):
            raise DeclarationError(f"{node.name}: no run has made its table yet. Run the project.")
        return self.spark.table(".".join(map(quoted, self.graph.key(node))))

    def find_node(self, name: str) -> Dataset | StreamingTable:
        """Return a dataset or streaming table by its name or the last part of that. Raises DeclarationError."""
        parts = self.graph.parse(name)
        found = [node for node in self.reads.order if self.graph.key(node) == self.graph.complete(parts)]
        found = found or [node for node in self.reads.order if self.graph.key(node)[-1:] == (name.lower(),)]
        if len(found) != 1:
            near = suggest_nearest(name, [node.name for node in self.reads.order])
            near = f"Name one of them: {', '.join(node.name for node in found)}." if found else near
            number = f"{len(found)} datasets" if found else "no dataset"
            raise DeclarationError(f"{self.project.name}: it has {number} `{name}`. {near}")
        return found[0]

    def find_view(self, name: str) -> View:
        """Open the view of one dataset. Raises DeclarationError as `find_node`, and for what is no view."""
        node = self.find_node(name)
        key = self.graph.key(node)
        if self.is_written(node):
            table = self._location(key) or ".".join(key)
            raise DeclarationError(
                f"{node.name}: it is a table that each run writes, not a maintained view. Query the table {table}, or "
                f"`deltafold show {node.name}`."
            )
        self.open_possible({key}, create=False)
        if refusal := self.refused.get(key):
            raise ProjectRefusedError("\n".join(self.find_refusals({key}) or [refusal.sentence]))
        if key not in self.views:
            raise DeclarationError(f"{node.name}: it reads a streaming table that no run has made. Run the project.")
        return self.views[key]

    @cached_property
    def refused(self) -> dict[Parts, Refusal]:
        """The datasets and streaming tables that cannot be refreshed, with those that read them."""
        return dict(self.reads.refused)

    def _check_available(self, key: Parts) -> None:
        """Raise UnavailableError for a node that reads what cannot be refreshed or landed."""
        for relation in self.reads.reads[key].values():
            if relation.parts in self.refused or relation.source in self.unlanded:
                raise UnavailableError(f"query: it reads {self.show_source(relation)}, which has an error.")

    def _open(self, key: Parts, dataset: Dataset) -> None:
        """Declare the sources of a dataset that are new, and create its view, under the first policy that fits.

        Without a view for a dataset that each run replaces.
        """
        if key in self.reads.unversioned:
            if dataset.policy == STRICT:
                raise QueryError(UNVERSIONED_UNDER_STRICT)
            return
        if ignored := ", ".join(find_ignored(dataset.options)):
            sentence = f"{ignored} not applied: Deltafold lays out the tables of maintained views itself"
            warnings.warn(f"{dataset.origin}: {dataset.name}: {sentence}.", DeltafoldWarning, stacklevel=2)
        relations = self.reads.reads[key]
        for relation in relations.values():
            if relation.source not in self._sources:
                self.warehouse.source(relation.source, self._declaration(relation))
                self._sources.add(relation.source)
        query = dataset.query
        if not (isinstance(query, str) and self._is_plain(query)):
            query = ProjectQuery(self.graph, dataset.name, query, tuple(sorted(relations)))
        *others, last = POLICIES[dataset.policy]
        for policy in (*others, last):
            view = self.warehouse.view(
                self.graph.relation(key, dataset).source,
                query,
                policy=policy,
                on_change="rebuild",
                on_lost="rebuild",
                publish_as=self._published_name(key, dataset),
            )
            try:
                _ = view.mode  # compiles it
            except RefusedError:
                if policy == last:
                    raise
            else:
                self.views[key] = view
                return

    @cached_property
    def _sources(self) -> set[str]:
        """The sources that are declared in the warehouse."""
        return set(self.project.sources or ())

    def _declaration(self, relation: Relation) -> Delta | View:
        if relation.parts in self.views:
            return self.views[relation.parts]
        if relation.is_path:
            return Delta(relation.written[-1])
        return Delta(table=".".join(relation.written))

    def _is_plain(self, text: str) -> bool:
        """Return whether each table that a text names has the name of its source, so that the text is the query."""
        plan = catalyst.parse_plan(self.spark, text)
        for relation in find_relations(plan, case_sensitive=str(self.spark.conf.get(CASE)) == "true"):
            parts = () if relation is None else name_parts(relation)
            node = self.graph.find(parts) if parts else None
            if len(parts) != 1 or (isinstance(node, Dataset) and not node.kept):
                return False
            if self.graph.relation(parts, node).source != parts[0].lower():
                return False
        return True

    def _published_name(self, key: Parts, dataset: Dataset) -> str | None:
        """Return the name of the SQL view that shows a dataset: its own, unless the project declares its sources."""
        if dataset.publish_as is not None or self.project.sources is not None:
            return dataset.publish_as
        return ".".join(key[1:] if key[0] == SESSION_CATALOG else key)

    def _create_databases(self) -> None:
        """Create the databases of the published names, as the project's own tool does."""
        if self.project.sources is not None:
            return
        keys = (self.graph.key(node) for node in self.reads.order)
        for database in sorted({".".join(map(quoted, key[:-1])) for key in keys}):
            self._create_database(database)

    def _create_database(self, database: str) -> None:
        if not self.spark.catalog.databaseExists(database):
            cast(Any, self.spark).sql(f"CREATE DATABASE IF NOT EXISTS {database}")

    # tables that no view keeps

    def is_written(self, node: Dataset | StreamingTable) -> bool:
        """Return whether a table is written as Spark writes it: by streams, or completely at each run (D-189)."""
        return isinstance(node, StreamingTable) or self.graph.key(node) in self.reads.unversioned

    def checkpoints(self, key: Parts) -> str:
        """Return the folder or URI with the checkpoints of a streaming table."""
        return f"{self.root}/checkpoints/{'.'.join(key)}"

    def _exists(self, table: Dataset | StreamingTable) -> bool:
        """Return whether a table has been made; names it in a catalog that ended with an earlier process."""
        key = self.graph.key(table)
        name, location = ".".join(map(quoted, key)), self._location(key)
        if self.spark.catalog.tableExists(name):
            return True
        if not location or not DeltaTable.isDeltaTable(self.spark, location):
            return False
        self._create_database(".".join(map(quoted, key[:-1])))
        cast(Any, self.spark).sql(f"CREATE TABLE {name} USING delta LOCATION {literal(location)}")
        return True

    def _is_own(self, table: Dataset | StreamingTable) -> bool:
        """Return whether this project made a table that exists, at its storage or where that was before it moved."""
        storage, key = self._properties(table).get(STORAGE), self.graph.key(table)
        if storage is None or storage == self.root:
            return storage is not None
        [detail] = cast(Any, self.spark).sql(f"DESCRIBE DETAIL {'.'.join(map(quoted, key))}").collect()
        return plain(detail["location"]) == self._location(key)

    def _location(self, key: Parts) -> str:
        """Return where a table is whose catalog ends with this process (D-233); empty where the catalog decides."""
        is_kept = key[0] != SESSION_CATALOG or self.spark.conf.get(CATALOG_KIND) != IN_MEMORY
        return "" if is_kept else f"{self.root}/tables/{'.'.join(key[1:])}"

    def _create(self, table: Dataset | StreamingTable, *, replace_checkpoint: int | None = None) -> None:
        """Create a table or the columns that it lacks, or an empty one with other checkpoints instead."""
        key = self.graph.key(table)
        name = ".".join(map(quoted, key))
        location = self._location(key)
        if replace_checkpoint is None and self._exists(table):
            if not self._is_own(table):
                raise CatalogError(
                    f"table {name}: it exists, and this project did not create it. Rename the dataset, or drop the "
                    "table."
                )
            present = self.spark.table(name).schema
            if added := merge_columns(present, self.reads.schemas[key]).fields[len(present) :]:
                cast(Any, self.spark).sql(f"ALTER TABLE {name} ADD COLUMNS ({nullable_ddl(StructType(added))})")
            return
        options = table.options
        properties = {**options.properties, STORAGE: self.root, CHECKPOINT: str(replace_checkpoint or 1)}
        head = "CREATE TABLE" if replace_checkpoint is None else "CREATE OR REPLACE TABLE"
        clauses = [f"{head} {name} ({nullable_ddl(self.reads.schemas[key])}) USING delta"]
        if options.partition_by:
            clauses.append(f"PARTITIONED BY ({', '.join(map(quoted, options.partition_by))})")
        if options.cluster_by:
            clauses.append(f"CLUSTER BY ({', '.join(map(quoted, options.cluster_by))})")
        if options.comment:
            clauses.append(f"COMMENT {literal(options.comment)}")
        if location:
            clauses.append(f"LOCATION {literal(location)}")
        clauses.append(f"TBLPROPERTIES ({assignments(properties)})")
        cast(Any, self.spark).sql(" ".join(clauses))

    def _properties(self, table: Dataset | StreamingTable) -> dict[str, str]:
        name = ".".join(map(quoted, self.graph.key(table)))
        rows = cast(Any, self.spark).sql(f"SHOW TBLPROPERTIES {name}").collect()
        return {row["key"]: row["value"] for row in rows}

    def _table(self, relation: Relation) -> DataFrame:
        return self.spark.table(relation.sql)

    def _stream(self, relation: Relation, options: Mapping[str, Any]) -> DataFrame:
        reader = self.spark.readStream.options(**options)
        return reader.format("delta").load(relation.parts[-1]) if relation.is_path else reader.table(relation.sql)

    def evaluate(self, text: str) -> DataFrame:
        """Return the rows of a query over what the project's datasets and other tables show."""
        return self.graph.evaluate(text, Leaves(table=self._table, stream=_refuse_stream))

    def recompute(self, dataset: Dataset, clock: str) -> int:
        """Replace the rows of a dataset whose query reads data without versions; returns the number of rows.

        A table with other columns is replaced first, which rebuilds what reads it. clock: the time at which the query
        reads the clock (ISO 8601).
        """
        name = ".".join(map(quoted, self.graph.key(dataset)))
        rows = self.graph.evaluate(dataset.query, Leaves(table=self._table, stream=_refuse_stream))
        rows = bind_clock(self.spark, rows, clock)
        if sorted(rows.dtypes) != sorted(self.spark.table(name).dtypes):
            self._create(dataset, replace_checkpoint=1)
        rows.writeTo(name).overwrite(F.lit(True))
        return self.spark.table(name).count()

    def append(self, table: StreamingTable, *, full: bool = False) -> int:
        """Run the flows of a streaming table until they have read everything; returns the rows read.

        Delta's transaction marks make each batch of a flow count once. full: empty the table and begin again; the
        emptied table names new checkpoints in the same commit, so that a crash leaves either both or none (D-181).
        """
        checkpoint = int(self._properties(table).get(CHECKPOINT, "1"))
        if full:
            checkpoint += 1
            self._create(table, replace_checkpoint=checkpoint)
        key, rows = self.graph.key(table), 0
        leaves = Leaves(table=self._table, stream=self._stream)
        for flow in table.flows:
            frame = self.graph.evaluate(flow.query, leaves)
            query = (
                frame.writeStream.format("delta")
                .outputMode("append")
                .option("mergeSchema", "true")
                .option("checkpointLocation", f"{self.checkpoints(key)}/{checkpoint}/{flow.name}")
                .trigger(availableNow=True)
                .toTable(".".join(map(quoted, key)))
            )
            query.awaitTermination()
            rows += sum(int(progress["numInputRows"]) for progress in query.recentProgress)
        return rows


def find_ignored(options: TableOptions) -> list[str]:
    """Return the options that the table of a maintained view does not have."""
    layout = {"partitioning": options.partition_by, "clustering": options.cluster_by}
    return [*(name for name, columns in layout.items() if columns), *filter(is_delta_property, options.properties)]


def is_delta_property(name: str) -> bool:
    """Return whether a table property has a meaning for Delta Lake."""
    return name.lower().startswith("delta.")


def nullable_ddl(schema: StructType) -> str:
    """Return the columns of a table that a stream writes, all of which may be NULL."""
    return ", ".join(f"{quoted(column.name)} {column.dataType.simpleString()}" for column in schema)


def assignments(properties: Mapping[str, str]) -> str:
    """Return the properties as SQL writes them."""
    return ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The datasets that a run refreshes and rebuilds: all, if none is named.

    refresh, full_refresh: names, as of `spark-pipelines run`; select, exclude: dbt's texts (`selection`); exactly: the
    names of those that an orchestrator asks for.
    """

    refresh: tuple[str, ...] = ()
    full_refresh: tuple[str, ...] = ()
    full_refresh_all: bool = False
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    exactly: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.only and (self.refresh or self.full_refresh):
            raise DeclarationError(
                "--select and --exclude: they cannot be combined with --refresh or --full-refresh. Rebuild what is "
                "selected with --full-refresh-all."
            )
        if self.full_refresh_all and (self.refresh or self.full_refresh):
            raise DeclarationError(
                "--full-refresh-all: it cannot be combined with --refresh or --full-refresh. Remove one of them."
            )

    @property
    def only(self) -> bool:
        """Whether what the chosen datasets read is not refreshed, too, but read as it is: dbt's rule."""
        return bool(self.select or self.exclude or self.exactly)

    def work(self, reads: Reads) -> dict[Parts, bool]:
        """Return whether each chosen dataset is rebuilt; the events of AUTO CDC flows are chosen with their tables.

        Raises DeclarationError for a name that is not declared.
        """
        chosen, nodes = self._choose(reads), reads.graph.nodes
        work = dict[Parts, bool]()
        for key, full in chosen.items():
            events = getattr(nodes[key], "events", None)
            if events is not None and (kept := reads.graph.key(events)) in reads.read_nodes(key):
                work[kept] = full or chosen.get(kept, False)
            work[key] = full or work.get(key, False)
        return work

    def _choose(self, reads: Reads) -> dict[Parts, bool]:
        """Return the datasets that the user names, or all."""
        graph, nodes = reads.graph, reads.order
        if self.exactly:
            keys = {graph.complete(graph.parse(name)) for name in self.exactly}
            return {key: self.full_refresh_all for node in nodes if (key := graph.key(node)) in keys}
        if self.only:
            selectable = graph.project.nodes if graph.project.nodes is not None else find_nodes(reads)
            chosen = Nodes.of(selectable).select(self.select, self.exclude)
            keys = {graph.complete(graph.parse(name)) for name in chosen}
            return {key: self.full_refresh_all for node in nodes if (key := graph.key(node)) in keys}
        if not self.refresh and not self.full_refresh:
            return {graph.key(node): self.full_refresh_all for node in nodes}
        names = {graph.key(node): node.name for node in nodes}
        work = dict[Parts, bool]()
        for asked, full in ((self.refresh, False), (self.full_refresh, True)):
            for name in asked:
                key = graph.complete(graph.parse(name))
                if key not in names:
                    near = suggest_nearest(name, list(names.values()))
                    raise DeclarationError(f"{graph.project.name}: it has no dataset `{name}`. {near}")
                work[key] = full
        return work


def check_refreshed(opened: OpenProject, work: Mapping[Parts, bool]) -> None:
    """Raise ProjectRefusedError for chosen datasets that read others which were never refreshed."""
    refusals = list[str]()
    for key in work:
        for relation in opened.reads.reads[key].values():
            if relation.node is None or relation.parts in work or relation.parts in opened.refused:
                continue
            if opened.is_written(relation.node):
                is_empty = opened.warehouse.version(relation.source) == 0  # which creates it
            else:
                is_empty = opened.views[relation.parts].store.journal.last_complete() is None
            if is_empty:
                node, read = opened.graph.nodes[key], relation.node.name
                refusals.append(
                    f"{node.origin}: {node.name}: it reads {read}, which was never refreshed. Select that, too, or "
                    f"+{relation.parts[-1]} with all that it reads."
                )
    if refusals:
        raise ProjectRefusedError("\n".join(refusals))


def check_streams(opened: OpenProject, work: Mapping[Parts, bool]) -> None:
    """Raise DeclarationError for a streaming table that is emptied while another one, which streams it, is not."""
    for reader, streamed in opened.reads.streams.items():
        emptied = [key for key in streamed if work.get(key) and key in opened.graph.nodes]
        if emptied and not work.get(reader):
            name, table = opened.graph.nodes[reader].name, opened.graph.nodes[emptied[0]].name
            raise DeclarationError(
                f"{table}: {name} streams it, and a stream does not go on with a table that was filled again. Name "
                f"both, or neither: --full-refresh {table},{name}."
            )


def run_project(
    opened: OpenProject,
    selection: Selection,
    progress: Progress | None,
    explain: Callable[[Exception], str] = str,
) -> PipelineReport:
    """Refresh the chosen datasets as one pipeline; what these read, too, except where it was not selected (D-191).

    explain: returns what the report and the progress show of an error. Raises LostSparkError, ProjectRefusedError if a
    selected dataset reads one that was never refreshed, and DeclarationError for half a chain of streams to rebuild.
    """
    work = selection.work(opened.reads)
    check_streams(opened, work)
    if selection.only:
        check_refreshed(opened, work)
    with open_run(lambda: Job(name=name_pipeline(opened.warehouse.root))) as run:
        datasets = _datasets_of_run(opened, work, Resolver(run), only=selection.only)
        run.report = report = refresh_datasets(datasets, progress, opened.spark, choose_threads(None), explain)
        return report


def _datasets_of_run(
    opened: OpenProject, work: Mapping[Parts, bool], resolver: Resolver, *, only: bool
) -> list[pipeline_run.Dataset]:
    """Return the chosen datasets, and what they read, in the form that is refreshed."""
    views = {view.name: work[key] for key, view in opened.views.items() if key in work}
    rebuilt = [name for name, full in views.items() if full]
    keys = {view.folder: key for key, view in opened.views.items()}
    datasets = {
        keys[dataset.folder]: _view_of_run(opened, keys[dataset.folder], dataset)
        for dataset in resolver.datasets(opened.warehouse, views, rebuilt, only=only)
    }
    for key, full in work.items():
        if key not in opened.refused and opened.is_written(opened.graph.nodes[key]):
            datasets[key] = _table_of_run(opened, key, full=full)
    for node in opened.reads.find_needed(work):
        if refusal := opened.refused.get(key := opened.graph.key(node)):
            datasets[key] = _fail(opened, key, refusal.name, refusal.error, str(refusal.origin))
    reads = opened.reads.reads
    found = {each.parts: each.source for key in datasets for each in reads[key].values() if each.node is None}
    for key, source in found.items():
        if source in opened.unlanded:
            datasets[key] = _fail(opened, key, source, opened.unlanded[source])
    for key, dataset in datasets.items():
        below = {each.parts for each in reads.get(key, {}).values()} if dataset.fault is None else set[Parts]()
        datasets[key] = replace(dataset, reads=tuple(datasets[each].folder for each in below & datasets.keys()))
    return [*datasets.values()]


def _fail(opened: OpenProject, key: Parts, name: str, error: Exception, origin: str = "") -> pipeline_run.Dataset:
    """Return what cannot be refreshed as a dataset of a run, which fails, or is skipped because of what it reads."""

    def refuse(state: RunState, progress: Progress | None) -> NoReturn:
        raise error

    fault = None if isinstance(error, UnavailableError) else error
    folder = place_of(opened.checkpoints(key))
    return pipeline_run.Dataset(name=name, folder=folder, reads=(), refresh=refuse, origin=origin, fault=fault)


def _table_of_run(opened: OpenProject, key: Parts, *, full: bool) -> pipeline_run.Dataset:
    """Return a table that no view keeps as a dataset of a run; full: emptied first."""
    table = opened.graph.nodes[key]
    source = opened.warehouse.tables().get(opened.graph.relation(key, table).source)

    folder = place_of(opened.checkpoints(key))
    wait = opened.warehouse.tuning.lock_seconds

    def write(state: RunState, progress: Progress | None) -> int:
        with records_at(folder).lock(f"table {table.name}", "refreshed", wait), _explain_errors(table.name):
            if isinstance(table, StreamingTable):
                return opened.append(table, full=full)
            return opened.recompute(table, state.done.clock)

    return pipeline_run.Dataset(
        name=table.name,
        origin=str(table.origin),
        folder=folder,
        reads=(),
        refresh=write,
        writes={} if source is None else {source.place: source},
    )


def _view_of_run(opened: OpenProject, key: Parts, dataset: pipeline_run.Dataset) -> pipeline_run.Dataset:
    """Return a view as a dataset of a run, which gets its comment and its properties after it was refreshed."""
    node = opened.graph.nodes[key]
    assert isinstance(node, Dataset)

    def refresh(state: RunState, progress: Progress | None) -> Report | int:
        done = dataset.refresh(state, progress)
        if isinstance(done, Report) and done.kept is not None:
            return done
        with _explain_errors(node.name):
            describe_published(opened.spark, opened.views[key], node)
        return done

    return replace(dataset, name=node.name, origin=str(node.origin), refresh=refresh)


@contextmanager
def _explain_errors(name: str) -> Generator[None]:
    """Raise SourceError for errors of Spark's, LostSparkError where it has ended."""
    try:
        with explain_lost_spark():
            yield
    except StreamingQueryException as error:
        found = conditions(error)
        if changed := CHANGED_ROWS.intersection(found):
            place = found[changed.pop()].get("dataPath", "of a flow")
            raise SourceError(
                f"{name}: its stream stopped: the table {place} lost or changed rows, and a stream takes new ones "
                f"alone. Read that table in a materialized view, or begin again with what it has now: --full-refresh "
                f"{name}."
            ) from error
        if REPLACED_TABLE in found:
            raise SourceError(
                f"{name}: its stream stopped: a table that it reads was replaced by another one. Begin again with what "
                f"that has now: --full-refresh {name}."
            ) from error
        cause = first_line(causes(error)[-1]).rstrip(".")
        raise SourceError(
            f"{name}: its stream stopped: {cause}. Correct the query or the data, and run again."
        ) from error
    except catalyst.JavaError as error:
        raise SourceError(f"{name}: {sentence_of_analysis(error)}") from error


def describe_published(spark: SparkSession, view: View, dataset: Dataset) -> None:
    """Give the SQL view of a dataset its comment and table properties, where it has others."""
    options = dataset.options
    wanted = {name: value for name, value in options.properties.items() if not is_delta_property(name)}
    wanted |= {"comment": options.comment} if options.comment else {}
    if not wanted or view.publish_as is None:
        return
    name = ".".join(map(quoted, view.publish_as.split(".")))
    cast(Any, spark).sql(f"ALTER VIEW {name} SET TBLPROPERTIES ({assignments(wanted)})")
