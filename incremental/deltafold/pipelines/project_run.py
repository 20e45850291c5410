"""Open the datasets of a project as views of one warehouse, and refresh each after those that it reads.

A dataset that fails stops what reads it and nothing else. Everything that cannot be refreshed at all is refused before
anything runs.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, NoReturn, TypeVar, cast

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltafold.algebra.errors import CatalogError, DeltafoldError, LostSparkError, QueryError, RefusedError, SourceError
from deltafold.algebra.local_path import plain
from deltafold.algebra.results.report import Report
from deltafold.algebra.sqltext import literal, quoted
from deltafold.api import Delta, View, Warehouse
from deltafold.compilation import Policy
from deltafold.language.mentions import CASE, find_relations, name_parts
from deltafold.pipelines.declaration.parsing import DeclarationError, suggest_nearest
from deltafold.pipelines.graph import Graph, Leaves, Parts, Reads, Relation
from deltafold.pipelines.project import Dataset, Project, QueryFunction, StreamingTable
from deltafold.spark import catalyst
from deltafold.spark.java_errors import sentence_of_analysis

Progress = Callable[[str], None]
Node = TypeVar("Node", Dataset, StreamingTable)
State = Literal["refreshed", "failed", "skipped"]
POLICIES: Mapping[str, tuple[Policy, ...]] = {
    "auto": ("auto",),
    "incremental": ("incremental", "auto"),  # the second where the query is refused under the first
    "incremental_strict": ("incremental",),
    "full": ("definition",),
}
SESSION_CATALOG = "spark_catalog"
STORAGE = "deltafold.storage"  # a property of streaming tables: the project's storage
CHECKPOINT = "deltafold.checkpoint"  # the number of the checkpoints of its flows, which a full refresh raises


class ProjectRefusedError(DeclarationError):
    """A project has datasets that cannot be refreshed; its message has one line for each."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run did with one dataset; rows: that flows read; report: of a maintained one; error: of a failed one."""

    dataset: str
    state: State
    sentence: str
    seconds: float = 0.0
    rows: int | None = None
    report: Report | None = None
    error: Exception | None = None

    def facts(self) -> dict[str, Any]:
        """Return it as plain data."""
        facts = {"dataset": self.dataset, "state": self.state, "sentence": self.sentence, "seconds": self.seconds}
        if self.rows is not None:
            facts["rows"] = self.rows
        return facts if self.report is None else {**facts, "report": json.loads(self.report.to_json())}


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


def _refuse_stream(relation: Relation) -> NoReturn:
    raise QueryError(f"query: it reads {relation.sql} as a stream. Read it as a table.")


@dataclass
class OpenProject:
    """A project on a running Spark: its warehouse and a view for each dataset, by complete name."""

    project: Project
    spark: SparkSession
    views: dict[Parts, View] = field(default_factory=dict[Parts, View])

    @cached_property
    def graph(self) -> Graph:
        """The names of the project."""
        return Graph(self.spark, self.project)

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
        """The warehouse of its datasets."""
        return Warehouse(self.spark, f"{self.root}/warehouse")

    def check(self) -> None:
        """Raise ProjectRefusedError for all queries that cannot be analysed."""
        if self.reads.refusals:
            raise ProjectRefusedError("\n".join(self.reads.refusals))

    def open(self, *, create: bool = True) -> tuple[str, ...]:
        """Compile all views. Raises ProjectRefusedError.

        create: create the streaming tables that do not exist; else the datasets that read such a table are only
        analysed, and their names are returned.
        """
        self.check()
        if create:
            self._create_databases()
        missing = set[Parts]()
        for node in self.reads.order:
            if isinstance(node, StreamingTable):
                if create:
                    self._create(node)
                elif not self._exists(node):
                    missing.add(self.graph.key(node))
        refusals, unknown = dict[Parts, str](), list[str]()
        for node in self.reads.order:
            key = self.graph.key(node)
            below = self.reads.below(key)
            if below & missing:
                unknown.append(node.name)
            elif isinstance(node, Dataset) and not below & refusals.keys():
                try:
                    self._open(key, node)
                except DeltafoldError as error:
                    refusals[key] = f"{node.origin}: {node.name}: {error}"
        if refusals:
            raise ProjectRefusedError("\n".join(refusals.values()))
        return tuple(unknown)

    def _open(self, key: Parts, dataset: Dataset) -> None:
        """Declare the sources of a dataset that are new, and create its view, under the first policy that fits."""
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
                publish_as=self._published_name(key),
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
        return set()

    def _declaration(self, relation: Relation) -> Delta | View:
        if isinstance(relation.node, Dataset):
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

    def _published_name(self, key: Parts) -> str:
        """Return the name of the SQL view that shows a dataset."""
        return ".".join(key[1:] if key[0] == SESSION_CATALOG else key)

    def _create_databases(self) -> None:
        """Create the databases of the published names, as the project's own tool does."""
        keys = (self.graph.key(node) for node in self.reads.order)
        for database in sorted({".".join(map(quoted, key[:-1])) for key in keys}):
            if not self.spark.catalog.databaseExists(database):
                cast(Any, self.spark).sql(f"CREATE DATABASE IF NOT EXISTS {database}")

    # streaming tables

    def _exists(self, table: StreamingTable) -> bool:
        return self.spark.catalog.tableExists(".".join(map(quoted, self.graph.key(table))))

    def _create(self, table: StreamingTable, *, replace_checkpoint: int | None = None) -> None:
        """Create a streaming table if it does not exist, or replace it by an empty one with other checkpoints."""
        key = self.graph.key(table)
        name = ".".join(map(quoted, key))
        if replace_checkpoint is None and self._exists(table):
            if self._properties(table).get(STORAGE) != self.root:
                raise CatalogError(
                    f"{table.origin}: {table.name}: the table exists, and this project did not create it. Rename it, "
                    "or drop the table."
                )
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
        clauses.append(f"TBLPROPERTIES ({assignments(properties)})")
        cast(Any, self.spark).sql(" ".join(clauses))

    def _properties(self, table: StreamingTable) -> dict[str, str]:
        name = ".".join(map(quoted, self.graph.key(table)))
        rows = cast(Any, self.spark).sql(f"SHOW TBLPROPERTIES {name}").collect()
        return {row["key"]: row["value"] for row in rows}

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
        leaves = Leaves(
            table=lambda relation: self.spark.table(relation.sql),
            stream=lambda relation: self.spark.readStream.table(relation.sql),
        )
        for flow in table.flows:
            frame = self.graph.evaluate(flow.query, leaves)
            query = (
                frame.writeStream.format("delta")
                .outputMode("append")
                .option("mergeSchema", "true")
                .option("checkpointLocation", f"{self.root}/checkpoints/{'.'.join(key)}/{checkpoint}/{flow.name}")
                .trigger(availableNow=True)
                .toTable(".".join(map(quoted, key)))
            )
            query.awaitTermination()
            rows += sum(int(progress["numInputRows"]) for progress in query.recentProgress)
        return rows


def nullable_ddl(schema: StructType) -> str:
    """Return the columns of a table that a stream writes, all of which may be NULL."""
    return ", ".join(f"{quoted(column.name)} {column.dataType.simpleString()}" for column in schema)


def assignments(properties: Mapping[str, str]) -> str:
    """Return the properties as SQL writes them."""
    return ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The datasets that a run refreshes and rebuilds, as `spark-pipelines run` names them; all, if none is named."""

    refresh: tuple[str, ...] = ()
    full_refresh: tuple[str, ...] = ()
    full_refresh_all: bool = False

    def __post_init__(self) -> None:
        if self.full_refresh_all and (self.refresh or self.full_refresh):
            raise DeclarationError(
                "--full-refresh-all: it cannot be combined with --refresh or --full-refresh. Remove one of them."
            )

    def work(self, graph: Graph, nodes: Sequence[Dataset | StreamingTable]) -> dict[Parts, bool]:
        """Return whether each chosen dataset is rebuilt. Raises DeclarationError for a name that is not declared."""
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


def run_project(opened: OpenProject, selection: Selection, progress: Progress) -> tuple[Outcome, ...]:
    """Refresh the chosen datasets, each after those that it reads.

    Streaming tables come first, except after views that they read, so that all views can be refreshed together.
    """
    run = _Run(opened, progress)
    waiting = dict[Parts, Dataset]()
    work = selection.work(opened.graph, opened.reads.order)
    for node in opened.reads.order:
        key = opened.graph.key(node)
        if key not in work:
            continue
        if isinstance(node, Dataset):
            waiting[key] = node
            continue
        if opened.reads.below(key) & waiting.keys():
            run.refresh(waiting, work)
            waiting.clear()
        run.do(key, node, partial(run.append, full=work[key]))
    run.refresh(waiting, work)
    return tuple(run.outcomes)


@dataclass
class _Run:
    """One run of a project; failed: the names of the datasets that failed, by complete name."""

    opened: OpenProject
    progress: Progress
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    failed: dict[Parts, str] = field(default_factory=dict[Parts, str])

    def refresh(self, views: Mapping[Parts, Dataset], full: Mapping[Parts, bool]) -> None:
        """Refresh views one after the other, each after those that it reads; full: whether each is rebuilt."""
        for key, dataset in views.items():
            self.do(key, dataset, partial(self._refresh_view, full=full[key]))

    def do(self, key: Parts, node: Node, work: Callable[[Parts, Node], Outcome]) -> None:
        """Do the work on one dataset, unless one that it reads failed; an error of it is its outcome."""
        if blocking := [self.failed[below] for below in self.opened.reads.below(key) if below in self.failed]:
            sentence = f"not refreshed: {', '.join(sorted(blocking))} failed"
            self.outcomes.append(Outcome(dataset=node.name, state="skipped", sentence=sentence))
            return
        self.progress(f"{node.name}: refreshing")
        began = time.monotonic()
        try:
            outcome = work(key, node)
        except LostSparkError:
            raise
        except Exception as error:  # for whatever reason: others are refreshed
            if isinstance(error, PySparkException):
                error = SourceError(f"{node.name}: {sentence_of_analysis(error)}")
            self.failed[key] = node.name
            outcome = Outcome(dataset=node.name, state="failed", sentence=str(error), error=error)
        self.outcomes.append(replace(outcome, seconds=time.monotonic() - began))

    def append(self, key: Parts, table: StreamingTable, *, full: bool) -> Outcome:
        """Run the flows of a streaming table."""
        rows = self.opened.append(table, full=full)
        return Outcome(dataset=table.name, state="refreshed", sentence=f"appended from {rows:,} rows", rows=rows)

    def _refresh_view(self, key: Parts, dataset: Dataset, *, full: bool) -> Outcome:
        """Refresh or rebuild one view."""
        view = self.opened.views[key]

        def show_step(step: str) -> None:
            self.progress(f"{dataset.name}: {step}")

        report = view.rebuild(show_step) if full else view.refresh(progress=show_step)
        describe_published(self.opened.spark, view, dataset)
        return Outcome(dataset=dataset.name, state="refreshed", sentence=report.sentence, report=report)


def describe_published(spark: SparkSession, view: View, dataset: Dataset) -> None:
    """Give the SQL view of a dataset its comment and table properties, where it has others."""
    options = dataset.options
    wanted = {**options.properties, **({"comment": options.comment} if options.comment else {})}
    if not wanted or view.publish_as is None:
        return
    name = ".".join(map(quoted, view.publish_as.split(".")))
    cast(Any, spark).sql(f"ALTER VIEW {name} SET TBLPROPERTIES ({assignments(wanted)})")
