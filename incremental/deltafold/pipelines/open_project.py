"""Open the datasets of a project as views of one warehouse.

Everything that cannot be refreshed at all is found before anything runs. A dataset that is refused, or a source whose
files cannot be landed, stops what reads it, and nothing else (D-232).
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltafold.algebra.errors import (
    DeltafoldError,
    DeltafoldWarning,
    LostSparkError,
    QueryError,
    RefusedError,
    SourceError,
)
from deltafold.algebra.local_path import plain
from deltafold.algebra.sqltext import quoted
from deltafold.api import Delta, Files, Landing, Stream, View, Warehouse
from deltafold.compilation import Policy
from deltafold.language.evaluation import unknown_table
from deltafold.language.mentions import CASE, find_relations, name_parts
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
)
from deltafold.pipelines.project import Dataset, Project, QueryFunction, StreamingTable
from deltafold.pipelines.written_tables import (
    SESSION_CATALOG,
    WrittenTables,
    assignments,
    create_database,
    find_ignored,
    is_delta_property,
    refuse_stream,
    stored_leaves,
)
from deltafold.refresh.sources.upstream import Progress
from deltafold.spark import catalyst
from deltafold.spark.lost import explain_lost_spark

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

        return self.graph.evaluate(self.query, Leaves(table=table, stream=refuse_stream))


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

    @cached_property
    def tables(self) -> WrittenTables:
        """The tables that no view keeps."""
        return WrittenTables(self.spark, self.graph, self.reads, self.root)

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
                if self.tables.is_written(node):
                    if create:
                        self.tables.create(node)
                    elif not self.tables.exists(node):
                        missing.add(key)
            except (DeltafoldError, PySparkException) as error:
                self.refused[key] = Refusal(name=node.name, origin=node.origin, error=explain_analysis(error))
        return tuple(unknown)

    def answer(self, name: str) -> DataFrame:
        """Return the rows of one dataset, or of a table that each run writes. Raises DeclarationError."""
        node = self.find_node(name)
        if not self.tables.is_written(node):
            return self.find_view(name).answer()
        if not self.tables.exists(node):
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
        if self.tables.is_written(node):
            table = self.tables.location(key) or ".".join(key)
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
        policies = POLICIES[dataset.policy]
        for policy in policies:
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
                if policy == policies[-1]:
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
            create_database(self.spark, database)

    def evaluate(self, text: str) -> DataFrame:
        """Return the rows of a query over what the project's datasets and other tables show."""
        return self.graph.evaluate(text, stored_leaves(self.spark))


def describe_published(spark: SparkSession, view: View, dataset: Dataset) -> None:
    """Give the SQL view of a dataset its comment and table properties, where it has others."""
    options = dataset.options
    wanted = {name: value for name, value in options.properties.items() if not is_delta_property(name)}
    wanted |= {"comment": options.comment} if options.comment else {}
    if not wanted or view.publish_as is None:
        return
    name = ".".join(map(quoted, view.publish_as.split(".")))
    cast(Any, spark).sql(f"ALTER VIEW {name} SET TBLPROPERTIES ({assignments(wanted)})")
