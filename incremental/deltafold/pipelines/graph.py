"""Find what each query of a project reads, and evaluate queries over the frames of these tables.

A name denotes a dataset or streaming table of the project, else a table of the catalog. Datasets that are not kept are
evaluated in place, so what remains are relations: kept datasets, streaming tables and tables of the catalog.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from deltafold.algebra.errors import DeltafoldError, QueryError
from deltafold.algebra.sqltext import quoted
from deltafold.language.inner_plans import replace_relations
from deltafold.language.loops.recursion import run_plan
from deltafold.language.mentions import CASE, find_relations, name_parts
from deltafold.language.translation.scalars import find_undetermined
from deltafold.language.unread import Placeholders
from deltafold.pipelines.project import Dataset, Origin, Project, QueryFunction, StreamingTable
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J, JavaError
from deltafold.spark.connect import check_frame
from deltafold.spark.java_errors import position_of_analysis, sentence_of_analysis

Parts = tuple[str, ...]
MOST_PARTS = 3
UNVERSIONED = {"LogicalRelation", "DataSourceV2Relation"}
ROW_BY_ROW = {"Filter", "Generate", "LogicalRDD", "Project", "SubqueryAlias", "Union", "View"}
CHECKS_STREAMS = "spark.sql.streaming.unsupportedOperationCheck"
READS_STREAM = "it reads a stream, and a materialized view reads tables. Declare a streaming table."
_PATH = re.compile(r"[/:]")  # no name of a table has these, and every path that a query may name does
_OTHER = re.compile(r"\W", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A table that a query reads.

    parts: its complete name, in lower case, or `delta` and a path; written: the same as it is written; node: the
    dataset or streaming table of the project; source: the name of it as a source of a warehouse.
    """

    parts: Parts
    written: Parts
    source: str
    node: Dataset | StreamingTable | None = None

    @property
    def is_path(self) -> bool:
        """Whether it is named by its path."""
        return len(self.parts) < MOST_PARTS

    @property
    def sql(self) -> str:
        """Its name in a SQL text."""
        return ".".join(map(quoted, self.written))


@dataclass(frozen=True, kw_only=True)
class Leaves:
    """Return the frames of relations, as rows, and as streams that are read with Spark's options.

    note: called for each name that a query reads, with the dataset that is inlined there, if any, and the whole name.
    """

    table: Callable[[Relation], DataFrame]
    stream: Callable[[Relation, Mapping[str, Any]], DataFrame]
    note: Callable[[str | None, Parts], None] = lambda inlined, read: None


@dataclass(frozen=True)
class GraphReader:
    """Reads tables by name for one evaluation of a query; implements `project.Reader`."""

    graph: Graph
    leaves: Leaves
    inlining: tuple[str, ...] = ()  # the datasets that are not kept, around this query

    def table(self, name: str) -> DataFrame:
        """Return the rows of a dataset or table."""
        return self._read(self.graph.parse(name))

    def stream(self, name: str, options: Mapping[str, Any]) -> DataFrame:
        """Return the rows of a streaming table, or of a table of the catalog, as a stream."""
        return self._read(self.graph.parse(name), options)

    def events(self, name: str, kept: StreamingTable) -> DataFrame:
        """Return all rows of a stream, or of a dataset or table; what it reads as streams is read as tables.

        kept: the table that is read instead where the project has it (`Reads`).
        """
        if self.graph.key(kept) in self.graph.nodes:
            return self.table(kept.name)

        def stream(relation: Relation, options: Mapping[str, Any]) -> DataFrame:
            return self.leaves.table(relation)

        return replace(self, leaves=replace(self.leaves, stream=stream)).table(name)

    def sql(self, text: str) -> DataFrame:
        """Return the frame of a SQL text over datasets and tables."""
        spark = self.graph.spark
        session = catalyst.isolate_session(spark)
        plan = catalyst.parse_plan(spark, text)
        relations = list[Any]()
        for relation in find_relations(plan, case_sensitive=str(spark.conf.get(CASE)) == "true"):
            if relation is None:
                raise QueryError("query: it reads a table whose name is computed. Write the name.")
            if not bool(relation.options().isEmpty()):
                raise QueryError(
                    f"query: it reads {'.'.join(name_parts(relation))} WITH options. Read it in Python, by "
                    "spark.readStream.option."
                )
            relations.append(relation)
        views, found = dict[tuple[Parts, bool], J](), dict[int, J]()
        for relation in relations:
            parts, streaming = name_parts(relation), bool(relation.isStreaming())
            what = self.graph.complete(parts), streaming
            if what not in views:
                view = f"table_{len(views)}_of_deltafold"
                rows = self._read(parts, {} if streaming else None)
                catalyst.frame(session, catalyst.analysed_plan(rows)).createOrReplaceTempView(view)
                stream = "STREAM " if streaming and rows.isStreaming else ""
                views[what] = catalyst.parse_plan(spark, f"SELECT * FROM {stream}{view}").child()
            named = self.graph.name_columns(parts, views[what])
            found[int(relation.origin().startIndex().get())] = named
        return run_plan(session, replace_relations(spark, plan, found), text)

    def _read(self, parts: Parts, options: Mapping[str, Any] | None = None) -> DataFrame:
        """Return the frame of a name; options: of a stream."""
        node = self.graph.find(parts)
        self.leaves.note(self.inlining[-1] if self.inlining else None, self.graph.complete(parts))
        if isinstance(node, Dataset) and not node.kept:
            check_cycle((*self.inlining, node.name))
            return self.graph.evaluate(node.query, self.leaves, (*self.inlining, node.name))
        relation = self.graph.relation(parts, node)
        return self.leaves.table(relation) if options is None else self.leaves.stream(relation, options)


@dataclass
class Graph:
    """The names of a project, completed by its catalog and database.

    schema_of: returns the schema of a source; raises what the query that reads it is refused with.
    """

    spark: SparkSession
    project: Project
    schema_of: Callable[[Relation], StructType]
    catalog: str = ""
    database: str = ""
    nodes: dict[Parts, Dataset | StreamingTable] = field(default_factory=dict[Parts, Dataset | StreamingTable])

    def __post_init__(self) -> None:
        self.catalog = self.project.catalog or str(self.spark.catalog.currentCatalog())
        self.database = self.project.database or str(self.spark.catalog.currentDatabase())
        for node in (*self.project.datasets, *self.project.streaming_tables):
            key = self.key(node)
            if other := self.nodes.get(key):
                raise QueryError(f"{node.origin}: {node.name} is declared in {other.origin}, too. Rename one of them.")
            self.nodes[key] = node

    def parse(self, name: str) -> Parts:
        """Return the parts of a name as SQL writes it. Raises QueryError."""
        try:
            return catalyst.parse_name(self.spark, name)
        except JavaError as error:
            raise QueryError(f"{name!r} cannot name a table: {sentence_of_analysis(error)}") from error

    def complete(self, parts: Parts) -> Parts:
        """Return a complete name in lower case: catalog, database, name. A path stays as it is."""
        complete = self.write_whole(parts)
        return complete if len(complete) < MOST_PARTS else tuple(part.lower() for part in complete)

    def write_whole(self, parts: Parts) -> Parts:
        """Return a complete name as it is written; `delta` and a path for a table by its path."""
        if len(parts) == 2 and parts[0].lower() == "delta" and _PATH.search(parts[1]):
            return "delta", parts[1]
        return (*(self.catalog, self.database)[: max(0, MOST_PARTS - len(parts))], *parts)

    def key(self, node: Dataset | StreamingTable) -> Parts:
        """Return the complete name of a dataset or streaming table."""
        return self.complete(self.parse(node.name))

    def find(self, parts: Parts) -> Dataset | StreamingTable | None:
        """Return the dataset or streaming table of a name; None for a table of the catalog.

        A dataset that is not kept is in no database, unless its own name has one.
        """
        node = self.nodes.get(self.complete(parts))
        is_inlined = isinstance(node, Dataset) and not node.kept
        return None if node is None or (is_inlined and len(parts) > len(self.parse(node.name))) else node

    def relation(self, parts: Parts, node: Dataset | StreamingTable | None) -> Relation:
        """Return the relation of a name."""
        complete = self.complete(parts)
        shown = complete[1:] if complete[0] == self.catalog.lower() else complete
        shown = shown[1:] if shown is not complete and shown[0] == self.database.lower() else shown
        name = _OTHER.sub("_", "__".join(shown)).strip("_")
        source = name if name.isidentifier() else f"t_{name}"
        written = self.write_whole(parts)
        if node is None and self.project.tables is not None and len(complete) == MOST_PARTS:
            complete = written = ("delta", "/".join((self.project.tables.rstrip("/"), *written[1:])))
        return Relation(parts=complete, written=written, source=source, node=node)

    def name_columns(self, parts: Parts, plan: J) -> J:
        """Return a plan whose columns may be cited by the whole name of a table, or its last parts, as Spark's are."""
        whole = self.write_whole(parts)
        identifier = catalyst.catalyst(self.spark).AliasIdentifier(whole[-1], catalyst.vector(self.spark, whole[:-1]))
        return catalyst.catalyst(self.spark).plans.logical.SubqueryAlias(identifier, plan)

    def evaluate(self, query: str | QueryFunction, leaves: Leaves, inlining: tuple[str, ...] = ()) -> DataFrame:
        """Return the frame of a query over the frames of relations; inlining: the views that are evaluated for it."""
        reader = GraphReader(self, leaves, inlining)
        answer = cast(object, reader.sql(query) if isinstance(query, str) else query(reader))
        check_frame("query", answer)
        if not isinstance(answer, DataFrame):
            raise QueryError(f"query: it returned {type(answer).__name__}, not a DataFrame. Return the answer.")
        return answer


def check_cycle(chain: tuple[str, ...]) -> None:
    """Raise QueryError if the last name of a chain of readers is in it before."""
    if chain[-1] in chain[:-1]:
        names = " → ".join(chain[chain.index(chain[-1]) :])
        raise QueryError(f"query: the datasets read each other in a cycle ({names}). Remove one.")


def check_schema(dataset: Dataset, schema: StructType) -> None:
    """Raise QueryError if the columns of an answer are not those that its table declares."""
    if not dataset.options.schema:
        return
    declared, answered = (
        ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in columns)
        for columns in (catalyst.schema_of(dataset.options.schema), schema)
    )
    if declared.lower() != answered.lower():
        raise QueryError(f"query: it declares the columns ({declared}) and returns ({answered}). Correct one of them.")


def merge_columns(schema: StructType, other: StructType) -> StructType:
    """Return a schema with the columns of another one that it lacks."""
    names = {column.name.lower() for column in schema}
    return StructType([*schema, *(column for column in other if column.name.lower() not in names)])


def reads_unversioned(answer: DataFrame) -> bool:
    """Return whether a query reads files, or another source of data, besides its relations."""
    plan = catalyst.analysed_plan(answer)
    roots = plan, *catalyst.sequence(plan.subqueriesAll())
    return any(catalyst.kind(leaf) in UNVERSIONED for root in roots for leaf in catalyst.relations_read(root))


def is_row_by_row(answer: DataFrame) -> bool:
    """Return whether each row follows from one row of a relation, whenever that is read."""
    nodes = list(catalyst.nodes(catalyst.analysed_plan(answer)))
    expressions = [each for node in nodes for each in catalyst.sequence(node.expressions())]
    return (
        {catalyst.kind(node) for node in nodes} <= ROW_BY_ROW
        and not any(catalyst.sequence(node.subqueries()) for node in nodes)
        and not any(map(find_undetermined, expressions))
    )


def check_stream(spark: SparkSession, answer: DataFrame) -> None:
    """Raise AnalysisException for a query that Spark cannot run as a stream, as it does when the stream is started."""
    if spark.conf.get(CHECKS_STREAMS, "true") == "true":
        append = catalyst.sql(spark).streaming.OutputMode.Append()
        analysis = catalyst.catalyst(spark).analysis
        checker = catalyst.module(analysis, "UnsupportedOperationChecker")
        checker.checkForStreaming(catalyst.analysed_plan(answer), append)


def stream_of(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return a stream with a schema, of which only the analysis is used."""
    columns = (F.lit(None).cast(column.dataType).alias(column.name) for column in schema)
    return spark.readStream.format("rate").load().select(*columns)


def explain_analysis(error: Exception, query: object = "") -> DeltafoldError:
    """Return an error of the analysis of a query as an error of that query, with its position in a text."""
    if isinstance(error, DeltafoldError):
        return error
    position = position_of_analysis(error) if isinstance(query, str) else ""
    message = sentence_of_analysis(error).rstrip(".")
    return QueryError(f"Spark cannot analyse the query{position}: {message}. Correct it.")


class UnavailableError(DeltafoldError):
    """A query reads what was refused, which has an error of its own."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a dataset or streaming table cannot be refreshed; origin: of the part of it that is refused."""

    name: str
    origin: Origin
    error: Exception

    @property
    def sentence(self) -> str:
        """One sentence with file and line."""
        return f"{self.origin}: {self.name}: {self.error}"


@dataclass
class Reads:
    """What the queries of a project read, found by analysing each over relations without data.

    order: the nodes, each after those that it reads; reads: the relations of each node, by source; names: the complete
    names in each query, of what is inlined, too; schemas: of each node's answer; unversioned: the datasets that read
    files or other data without versions; streams: the tables that a streaming table reads as streams; refused: the
    nodes that cannot be analysed, and what reads them, which is unavailable.
    """

    graph: Graph
    order: list[Dataset | StreamingTable] = field(default_factory=list[Dataset | StreamingTable])
    reads: dict[Parts, dict[str, Relation]] = field(default_factory=dict[Parts, dict[str, Relation]])
    names: dict[Parts, set[Parts]] = field(default_factory=dict[Parts, set[Parts]])
    schemas: dict[Parts, StructType] = field(default_factory=dict[Parts, StructType])
    unversioned: set[Parts] = field(default_factory=set[Parts])
    streams: dict[Parts, set[Parts]] = field(default_factory=dict[Parts, set[Parts]])
    refused: dict[Parts, Refusal] = field(default_factory=dict[Parts, Refusal])
    _above: list[Parts] = field(default_factory=list[Parts])

    @classmethod
    def of(cls, graph: Graph) -> Reads:
        """Return what all queries of a project read."""
        reads = cls(graph)
        for key, node in (*graph.nodes.items(),):  # to which tables of events are added
            if isinstance(node, StreamingTable) or node.kept:
                reads._visit(key)
        return reads

    def read_nodes(self, key: Parts) -> set[Parts]:
        """Return the nodes that a node reads itself."""
        return {relation.parts for relation in self.reads[key].values() if relation.node is not None}

    def below(self, key: Parts) -> set[Parts]:
        """Return the nodes that a node reads, at any depth."""
        return self._reach(self.read_nodes(key))

    def find_needed(self, chosen: Collection[Parts] | None) -> list[Dataset | StreamingTable]:
        """Return the chosen nodes, and all that they read, each after those that it reads; all nodes if None."""
        needed = None if chosen is None else self._reach(set(chosen))
        return [node for node in self.order if needed is None or self.graph.key(node) in needed]

    def _reach(self, keys: set[Parts]) -> set[Parts]:
        """Return nodes with all that they read; those of a cycle once."""
        reached, last = set(keys), keys
        while last:
            last = set[Parts]().union(*map(self.read_nodes, last)) - reached
            reached |= last
        return reached

    def _visit(self, key: Parts) -> None:
        """Analyse a node after those that it reads; refuses it if it cannot be analysed."""
        if key in self.schemas or key in self.refused:
            return
        node = self.graph.nodes[key]
        self.reads[key] = {}
        self._above.append(key)
        try:
            if node.refusal:
                raise QueryError(node.refusal)
            if isinstance(node, StreamingTable):
                self._analyse_flows(key, node)
            else:
                if node.events is not None:
                    self._keep_events(node.events)
                self._analyse(key, node.query, streaming=False)
                check_schema(node, self.schemas[key])
        except (DeltafoldError, PySparkException, Py4JError) as error:
            self._refuse(key, node, node.origin, error, getattr(node, "query", None))
        finally:
            self._above.pop()
            self.order.append(node)

    def _refuse(
        self, key: Parts, node: Dataset | StreamingTable, origin: Origin, error: Exception, query: object
    ) -> None:
        self.schemas.pop(key, None)
        self.refused[key] = Refusal(name=node.name, origin=origin, error=explain_analysis(error, query))

    def _keep_events(self, events: StreamingTable) -> None:
        """Add the table that keeps the events of an AUTO CDC flow, unless tables that it streams have the same ones.

        They do if each row is taken by itself. A stream meets it once, at a time, and with the rows of other tables at
        that time (D-236).
        """
        [arriving] = events.flows
        streamed = list[Relation]()

        def stream(relation: Relation, options: Mapping[str, Any]) -> DataFrame:
            streamed.append(relation)
            return self._placeholder(relation)

        answer = self.graph.evaluate(arriving.query, Leaves(table=self._placeholder, stream=stream))
        if not answer.isStreaming and (not streamed or is_row_by_row(answer)):
            return
        if other := self.graph.nodes.get(self.graph.key(events)):
            raise QueryError(
                f"query: the events that it streams are kept in the table {events.name}, and a dataset of that name is "
                f"declared in {other.origin}. Rename that."
            )
        self.graph.nodes[self.graph.key(events)] = events

    def _placeholder(self, relation: Relation) -> DataFrame:
        return Placeholders().make(self.graph.spark, relation.parts, self._schema(relation))[0]

    def _analyse_flows(self, key: Parts, table: StreamingTable) -> None:
        """Analyse the flows of a streaming table; its schema has the columns of all, or is the declared one."""
        if not table.flows:
            raise QueryError("flows: none writes to it. Declare one with append_flow or CREATE FLOW, or remove it.")
        for flow in table.flows:
            try:
                self._analyse(key, flow.query, streaming=True)
            except (DeltafoldError, PySparkException, Py4JError) as error:
                self._refuse(key, table, flow.origin, error, flow.query)
                return
        if declared := table.options.schema:
            self.schemas[key] = catalyst.schema_of(declared)

    def _analyse(self, key: Parts, query: str | QueryFunction, *, streaming: bool) -> None:
        """Analyse a query over relations without data, and record what it reads."""
        placeholders = Placeholders()
        read = self.reads[key]

        def table(relation: Relation) -> DataFrame:
            read[relation.source] = relation
            return placeholders.make(self.graph.spark, relation.parts, self._schema(relation))[0]

        def stream(relation: Relation, options: Mapping[str, Any]) -> DataFrame:
            if not streaming:
                raise QueryError(f"query: {READS_STREAM}")
            if isinstance(relation.node, Dataset):
                raise QueryError(
                    f"query: it reads the materialized view {relation.node.name} as a stream, and its rows are changed "
                    "and removed, too. Read it as a table."
                )
            read[relation.source] = relation
            self.streams.setdefault(key, set()).add(relation.parts)
            return stream_of(self.graph.spark, self._schema(relation))

        def note(inlined: str | None, name: Parts) -> None:
            reader = key if inlined is None else self.graph.complete(self.graph.parse(inlined))
            self.names.setdefault(reader, set()).add(name)

        answer = self.graph.evaluate(query, Leaves(table=table, stream=stream, note=note))
        if streaming and not answer.isStreaming:
            raise QueryError(
                "query: it reads no stream. Read one (`spark.readStream`, `STREAM table`), or declare a materialized "
                "view."
            )
        if streaming:
            check_stream(self.graph.spark, answer)
        if not streaming and answer.isStreaming:
            raise QueryError(f"query: {READS_STREAM}")
        if not streaming and reads_unversioned(answer):
            self.unversioned.add(key)
        self.schemas[key] = merge_columns(self.schemas.get(key, StructType()), answer.schema)

    def _schema(self, relation: Relation) -> StructType:
        """Return the schema of a relation; a node of the project is analysed first."""
        if relation.node is None:
            return self.graph.schema_of(relation)
        if relation.parts in self._above:
            chain = [*self._above[self._above.index(relation.parts) :], relation.parts]
            check_cycle(tuple(self.graph.nodes[key].name for key in chain))
        self._visit(relation.parts)
        if relation.parts not in self.schemas:
            raise UnavailableError(f"query: it reads {relation.node.name}, which is refused. Correct that.")
        return self.schemas[relation.parts]
