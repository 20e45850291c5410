"""Load an unmodified project of Spark Declarative Pipelines: `spark-pipeline.yml`, Python and SQL files.

Spark's own code reads the specification and registers what the decorators declare; Catalyst parses SQL files.
| declared | here |
| --- | --- |
| materialized view | a dataset |
| temporary view | a dataset that is not kept |
| streaming table with flows | a streaming table |
| streaming table with an AUTO CDC flow (SCD 1) | a dataset: the latest event of each key that deletes nothing |
| sink, format other than Delta, `spark_conf` of one dataset | refused, with what reads it |
| other SQL statements | refused, with the whole project |
"""

from __future__ import annotations

import importlib.util
import os
import re
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast, get_args

from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltafold.algebra.errors import DeltafoldError, MissingPackageError, QueryError
from deltafold.algebra.sqltext import quoted, table_name_of
from deltafold.language.mentions import name_parts
from deltafold.language.names import renumber
from deltafold.pipelines.auto_cdc import check_events, latest_rows
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.project import (
    Dataset,
    Flow,
    Origin,
    Project,
    Reader,
    RefreshPolicy,
    StreamingTable,
    TableOptions,
)
from deltafold.pipelines.project_session import ProjectSession, active, reading
from deltafold.pipelines.queries import UncompiledFile
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J, JavaError
from deltafold.spark.java_errors import sentence_of_analysis

if TYPE_CHECKING:
    from pyspark.pipelines.cli import PipelineSpec
    from pyspark.pipelines.flow import AutoCdcFlow
    from pyspark.pipelines.graph_element_registry import GraphElementRegistry

_BEGINS_QUERY = re.compile(r"\b(?:select|with|from|table|values)\b|\(", re.IGNORECASE)
_POSITION = re.compile(r" ?\(line (\d+), pos \d+\)$")  # in a statement
POLICY_PROPERTY = "deltafold.refresh_policy"
EVENTS = "__events"  # ends the name of the table that keeps the events of an AUTO CDC flow
DELTA = "delta"
_FIXES = {
    "SetCommand": "Write the setting under `configuration` in the specification",
    "SetNamespaceCommand": "Write `database` in the specification, or whole names",
    "SetCatalogCommand": "Write `catalog` in the specification, or whole names",
    "CreateView": "Declare a temporary or a materialized view",
}


def read_spec(path: Path) -> PipelineSpec:
    """Return the specification of a project, as Spark reads it. Raises DeclarationError."""
    with _explaining_extra():
        from pyspark.pipelines.cli import load_pipeline_spec
    if not path.is_file():
        raise DeclarationError(f"{path}: there is no such file. Name a specification, such as spark-pipeline.yml.")
    try:
        return load_pipeline_spec(path)
    except Exception as error:  # Spark's loader lets errors of YAML and of Python through
        raise DeclarationError(f"{path}: {str(error).rstrip('.')}. Correct it.") from error


def load_project(path: Path, spark: SparkSession, spec: PipelineSpec | None = None) -> Project:
    """Return the project of a specification; runs the modules of its Python files. Raises DeclarationError.

    What has no meaning here is in `Project.refusals`.
    """
    spec = spec or read_spec(path)
    folder = path.parent.resolve()
    loader = _Loader(folder, ProjectSession(spark), _Declared())
    with _working_in(folder), loader.registering():
        for library in spec.libraries:
            for file in sorted(folder.glob(library.include)):
                if file.is_file() and "__pycache__" not in file.parts:
                    loader.load(file)
    declared = loader.declared
    return Project(
        name=spec.name,
        folder=folder,
        storage=spec.storage,
        datasets=tuple(declared.datasets()),
        streaming_tables=tuple(declared.streaming_tables()),
        catalog=spec.catalog,
        database=spec.database,
        settings=dict(spec.configuration),
        refusals=tuple(declared.refusals),
    )


@dataclass
class _Table:
    """A declared table or view, before it is known which flows write to it.

    inlined: a temporary view; refusals: why its declaration has no meaning here, a sentence each; events: as of
    Dataset.
    """

    name: str
    origin: Origin
    options: TableOptions
    streaming: bool = False
    inlined: bool = False
    refusals: tuple[str, ...] = ()
    queries: list[Flow] = field(default_factory=list[Flow])
    cdc: list[Flow] = field(default_factory=list[Flow])
    events: StreamingTable | None = None


@dataclass
class _Declared:
    """What the files of a project declare; flows: with the name of the table that each writes to, and the table that
    keeps the events of an AUTO CDC flow.
    """

    tables: dict[str, _Table] = field(default_factory=dict[str, _Table])
    flows: list[tuple[str, Flow, StreamingTable | None]] = field(
        default_factory=list[tuple[str, Flow, "StreamingTable | None"]]
    )
    refusals: list[str] = field(default_factory=list[str])

    def refuse(self, origin: Origin, what: str) -> None:
        """Add a refusal, `what: cause. fix.`."""
        self.refusals.append(f"{origin}: {what}")

    def add_table(self, table: _Table) -> None:
        """Add a table; a second one of its name is refused."""
        if other := self.tables.get(table.name.lower()):
            self.refuse(table.origin, f"{table.name}: it is declared in {other.origin}, too. Rename one of them.")
            return
        self.tables[table.name.lower()] = table

    def assign_flows(self) -> None:
        """Give each flow to the table that it writes to."""
        for target, flow, events in self.flows:
            table = self.tables.get(target.lower())
            if table is None:
                self.refuse(flow.origin, f"{flow.name}: it writes to {target}, which is not declared. Declare that.")
            elif events is None:
                table.queries.append(flow)
            else:
                table.cdc.append(flow)
                table.events = events
        self.flows.clear()

    def datasets(self) -> Iterator[Dataset]:
        """Yield materialized and temporary views, and the tables of AUTO CDC flows."""
        self.assign_flows()
        for table in self.tables.values():
            flows = table.cdc or table.queries
            if table.streaming and not table.cdc:
                continue
            refusals = [*table.refusals]
            if (number := len(table.cdc + table.queries)) != 1:
                kind = "a table of an AUTO CDC flow" if table.cdc else "a view"
                refusals.append(
                    f"{number} flows write to it, and {kind} has one. Remove the others, or declare a table for each."
                )
            policy = table.options.properties.get(POLICY_PROPERTY, "auto")
            if policy not in get_args(RefreshPolicy):
                refusals.append(f"unknown {POLICY_PROPERTY} {policy!r}. Use {', '.join(get_args(RefreshPolicy))}.")
            yield Dataset(
                name=table.name,
                query=flows[0].query if flows else "",
                origin=table.origin,
                kept=not table.inlined or bool(refusals),  # one that is not kept is not looked at by itself
                policy=cast(RefreshPolicy, policy),
                options=table.options,
                refusal=" ".join(refusals),
                events=table.events,
            )

    def streaming_tables(self) -> Iterator[StreamingTable]:
        """Yield the tables to which flows append."""
        for table in self.tables.values():
            if table.streaming and not table.cdc:
                yield StreamingTable(
                    name=table.name,
                    flows=tuple(table.queries),
                    origin=table.origin,
                    options=table.options,
                    refusal=" ".join(table.refusals),
                )


@dataclass(frozen=True)
class _Loader:
    """Loads the files of a project into what it declares."""

    folder: Path
    session: ProjectSession
    declared: _Declared

    @contextmanager
    def registering(self) -> Generator[None]:
        """Let Spark's decorators register with this loader."""
        with _explaining_extra():
            from pyspark.pipelines.graph_element_registry import graph_element_registration_context
        with graph_element_registration_context(_registry(self)), active(self.session):
            yield

    def load(self, file: Path) -> None:
        """Load one file. Raises DeclarationError for one that is neither Python nor SQL, or that fails."""
        if file.suffix == ".py":
            self._run(file)
        elif file.suffix == ".sql":
            self.load_sql(file.read_text(encoding="utf-8-sig"), file)
        else:
            raise DeclarationError(f"{file}: it is neither .py nor .sql. Leave it out of the libraries.")

    def _run(self, file: Path) -> None:
        name = file.stem
        spec = importlib.util.spec_from_file_location(name, file, loader=UncompiledFile(name, str(file)))
        assert spec is not None and spec.loader is not None
        module: ModuleType = importlib.util.module_from_spec(spec)
        module.__dict__["spark"] = self.session
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
            where = f", line {lines[-1]}" if lines else ""
            raise DeclarationError(
                f"{file}{where}: loading it fails: {type(error).__name__}: {str(error).rstrip('.')}. Correct it."
            ) from error

    # Python

    def origin(self, location: Any) -> Origin:
        """Return the place that Spark gives a declaration."""
        return self._origin(Path(location.filename), location.line_number or 1)

    def _origin(self, file: Path, line: int) -> Origin:
        return Origin(file=file.relative_to(self.folder) if file.is_relative_to(self.folder) else file, line=line)

    def add_output(self, output: Any) -> None:
        """Add a table, a view or a sink of Python."""
        origin, kind = self.origin(output.source_code_location), type(output).__name__
        if kind == "Sink":
            refusals = ("sinks are not supported. Write to a streaming table.",)
            options = TableOptions()
            self.declared.add_table(
                _Table(name=output.name, origin=origin, options=options, streaming=True, refusals=refusals)
            )
            return
        if kind == "TemporaryView":
            options = TableOptions(comment=output.comment or "")
            self.declared.add_table(_Table(name=output.name, origin=origin, options=options, inlined=True))
            return
        refusals = _refuse_format(output.format)
        schema: Any = output.schema or ""
        options = TableOptions(
            comment=output.comment or "",
            properties=dict(output.table_properties),
            partition_by=tuple(output.partition_cols or ()),
            cluster_by=tuple(output.cluster_by or ()),
            schema=schema.toDDL() if isinstance(schema, StructType) else schema,
        )
        streaming = kind == "StreamingTable"
        self.declared.add_table(
            _Table(name=output.name, origin=origin, options=options, streaming=streaming, refusals=refusals)
        )

    def add_flow(self, flow: Any) -> None:
        """Add a flow of Python."""
        origin = self.origin(flow.source_code_location)
        query = partial(_refuse_settings if flow.spark_conf else _call, self.session, flow.func)
        self.declared.flows.append((flow.target, Flow(name=flow.name, query=query, origin=origin), None))

    def add_cdc_flow(self, flow: AutoCdcFlow) -> None:
        """Add an AUTO CDC flow of Python."""
        origin = self.origin(flow.source_code_location)
        name, source = flow.name or flow.target, flow.source
        *schema, table = catalyst.parse_name(self.session, flow.target)
        check = check_events(flow)
        arriving = Flow(name=name, query=lambda reader: reader.table(source).where(check), origin=origin)
        events = StreamingTable(name=_sql_name([*schema, f"{table}{EVENTS}"]), flows=(arriving,), origin=origin)
        cdc = Flow(name=name, query=latest_rows(flow, events), origin=origin)
        self.declared.flows.append((flow.target, cdc, events))

    # SQL

    def load_sql(self, text: str, file: Path) -> None:
        """Add what the statements of a SQL file declare; one that cannot be parsed is refused."""
        java = catalyst.catalyst(self.session).util
        position = 0
        for statement in map(
            str, catalyst.sequence(catalyst.module(java, "StringUtils").splitSemiColonWithIndex(text, False))
        ):
            position = text.index(statement, position)
            begin = position + len(statement) - len(statement.lstrip())
            position += len(statement)
            try:
                plan = catalyst.parse_plan(self.session, statement)
            except JavaError as error:
                origin = self._origin(file, text.count("\n", 0, begin) + 1)
                sentence = sentence_of_analysis(error)
                if within := _POSITION.search(sentence):
                    origin = replace(origin, line=text.count("\n", 0, position - len(statement)) + int(within[1]))
                    sentence = sentence.removesuffix(within[0])
                self.declared.refuse(origin, f"Spark cannot parse the statement: {sentence}")
                continue
            start = position - len(statement) + int(plan.origin().startIndex().get())
            self._add_statement(plan, statement, self._origin(file, text.count("\n", 0, start) + 1))

    def _add_statement(self, plan: J, statement: str, origin: Origin) -> None:
        match kind := catalyst.kind(plan):
            case "CreateMaterializedViewAsSelect" | "CreateStreamingTableAsSelect" | "CreateStreamingTable":
                name = _sql_name(catalyst.sequence(plan.name().nameParts()))
                options, refusals = self._sql_options(plan)
                streaming = kind != "CreateMaterializedViewAsSelect"
                self.declared.add_table(
                    _Table(name=name, origin=origin, options=options, streaming=streaming, refusals=refusals)
                )
                if kind != "CreateStreamingTable":
                    self._add_sql_flow(name, name, str(plan.originalText()), origin)
            case "CreateViewCommand" if str(plan.viewType().toString()) == "LocalTempView":
                name = _sql_name([plan.name().table()])
                columns = [str(pair._1()) for pair in catalyst.sequence(plan.userSpecifiedColumns())]
                text = str(plan.originalText().get())
                if columns:
                    text = f"SELECT * FROM (\n{text}\n) AS t({', '.join(map(quoted, columns))})"
                options = TableOptions(comment=str(catalyst.option(plan.comment()) or ""))
                self.declared.add_table(_Table(name=name, origin=origin, options=options, inlined=True))
                self._add_sql_flow(name, name, text, origin)
            case "CreateFlowCommand":
                self._add_insert(plan, statement, origin)
            case _:
                fix = _FIXES.get(kind, "Run it outside of the pipeline")
                self.declared.refuse(origin, f"{kind}: this statement declares nothing in a pipeline. {fix}.")

    def _add_insert(self, plan: J, statement: str, origin: Origin) -> None:
        """Add the flow of CREATE FLOW … AS INSERT INTO … BY NAME."""
        name, insert = _sql_name(catalyst.sequence(plan.name().nameParts())), plan.flowOperation()
        if catalyst.kind(insert) != "InsertIntoStatement":
            self.declared.refuse(origin, f"{name}: {catalyst.kind(insert)} is not supported. Write INSERT INTO.")
            return
        query = insert.query()
        text = _text_of(self.session, query, statement)
        if text is None or bool(insert.overwrite()) or not insert.partitionSpec().isEmpty():
            self.declared.refuse(
                origin, f"{name}: it is not a plain INSERT INTO. Write INSERT INTO table BY NAME query."
            )
            return
        self._add_sql_flow(_sql_name(name_parts(insert.table())), name, text, origin)

    def _add_sql_flow(self, target: str, name: str, text: str, origin: Origin) -> None:
        self.declared.flows.append((target, Flow(name=name, query=text, origin=origin), None))

    def _sql_options(self, plan: J) -> tuple[TableOptions, tuple[str, ...]]:
        """Return the options of a CREATE statement, and why some have no meaning here."""
        spec = plan.tableSpec()
        refusals = [*_refuse_format(catalyst.option(spec.provider()))]
        if spec.location().isDefined():
            refusals.append("LOCATION is not supported. Remove it; `storage` has all tables.")
        partition_by, cluster_by = list[str](), list[str]()
        for transform in catalyst.sequence(plan.partitioning()):
            columns = [str(".".join(reference.fieldNames())) for reference in transform.references()]
            match str(transform.name()):
                case "identity":
                    partition_by += columns
                case "cluster_by":
                    cluster_by += columns
                case other:
                    refusals.append(f"it is partitioned by {other}(…). Name a column.")
        properties = {str(pair._1()): str(pair._2()) for pair in catalyst.sequence(spec.properties().toSeq())}
        columns = [
            f"{quoted(str(column.name()))} {column.dataType().sql()}" for column in catalyst.sequence(plan.columns())
        ]
        options = TableOptions(
            comment=str(catalyst.option(spec.comment()) or ""),
            properties=properties,
            partition_by=tuple(partition_by),
            cluster_by=tuple(cluster_by),
            schema=", ".join(columns),
        )
        return options, tuple(refusals)


def _refuse_format(format_: object) -> tuple[str, ...]:
    """Return why a table cannot have a format, nothing if it can."""
    if str(format_ or DELTA).lower() == DELTA:
        return ()
    return (f"format {format_} is not supported. Use delta, or leave it out.",)


def _registry(loader: _Loader) -> GraphElementRegistry:
    """Return a registry of Spark's that hands everything to a loader."""
    from pyspark.pipelines.graph_element_registry import GraphElementRegistry

    class Registry(GraphElementRegistry):
        """Receives what decorators declare."""

        def register_output(self, output: Any) -> None:
            """Add a table, a view or a sink."""
            loader.add_output(output)

        def register_flow(self, flow: Any) -> None:
            """Add a flow."""
            loader.add_flow(flow)

        def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
            """Add an AUTO CDC flow."""
            loader.add_cdc_flow(flow)

        def register_sql(self, sql_text: str, file_path: Path) -> None:
            """Add the statements of a SQL file."""
            loader.load_sql(sql_text, file_path)

    return Registry()


def _refuse_settings(session: ProjectSession, function: Callable[[], DataFrame], reader: Reader) -> DataFrame:
    """Raise QueryError in place of a query function with settings of its own."""
    raise QueryError(
        "query: `spark_conf` of one flow is not supported. Write the settings under `configuration` in the "
        "specification."
    )


def _call(session: ProjectSession, function: Callable[[], DataFrame], reader: Reader) -> DataFrame:
    """Call a query function, which reads by the reader. Raises QueryError with the line where it fails."""
    with reading(session, reader):
        try:
            return function()
        except (DeltafoldError, PySparkException, Py4JError):
            raise
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1]
            raise QueryError(
                f"query: it raised {type(error).__name__} at {Path(line.filename).name}, line {line.lineno}: "
                f"{str(error).rstrip('.')}. Correct it."
            ) from error


def _text_of(spark: SparkSession, query: J, statement: str) -> str | None:
    """Return the text of the query at the end of a statement, None if it is not found.

    Spark does not keep it: it is the end of the statement that is parsed into the same plan.
    """
    wanted = _describe_plan(query)
    for match in _BEGINS_QUERY.finditer(statement):
        text = statement[match.start() :]
        try:
            if _describe_plan(catalyst.parse_plan(spark, text)) == wanted:
                return text
        except JavaError:
            continue
    return None


def _describe_plan(plan: J) -> str:
    """Return a parsed plan as text, without the numbers of its columns that each parsing chooses."""
    return renumber(str(plan.toString()))


def _sql_name(parts: Iterable[object]) -> str:
    """Return a name as SQL writes it."""
    return table_name_of(tuple(map(str, parts)))


@contextmanager
def _explaining_extra() -> Generator[None]:
    """Raise MissingPackageError if Spark's own code for pipelines cannot be imported."""
    try:
        yield
    except ImportError as error:
        cause = str(error).splitlines()[0].rstrip(".")
        raise MissingPackageError(
            f"pyspark.pipelines: it cannot be imported ({cause}). Use Spark 4.1 or later, and run pip install "
            "'deltafold[pipelines]'."
        ) from error


@contextmanager
def _working_in(folder: Path) -> Generator[None]:
    """Work in a folder, as Spark does while it loads a project."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
