"""Refuse a query that reads more than its declared sources (D-064).

A view is refreshed when the version of a declared source changes. Anything else that a query reads has no version to
compare: the view would be computed once and then never change, under any policy. The whole analysed plan is searched,
all subqueries and the parts that Spark would prune included; constant rows are allowed.

| read | fix |
| --- | --- |
| a Delta table, by its name in the catalog or its path | `Delta(table=…)`, `Delta(path)` |
| CSV, JSON, XML, text, Parquet, ORC or Avro files | `Files(path, format, schema)` |
| a stream | `Stream(format, schema)` |
| other tables, files and data sources | a Delta table that they are written to |
| an RDD (createDataFrame, a checkpoint) | VALUES for constant rows, else the source of the rows |
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import get_args

from pyspark.sql import SparkSession

from deltafold.algebra.errors import QueryError
from deltafold.algebra.secrets import mask_secrets
from deltafold.algebra.sources import Format
from deltafold.algebra.sqltext import quoted
from deltafold.language.mentions import NoDataError
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

AllowingJobs = Callable[[], AbstractContextManager[None]]
CONSTANT = {"LocalRelation", "OneRowRelation", "Range", "CTERelationRef", "UnionLoopRef"}
DELTA_PACKAGE = "org.apache.spark.sql.delta."
PLAIN = re.compile(r"\w+", re.ASCII)
MOST_PATHS = 3  # the most paths in a sentence
STREAM = "declare it with Stream(format, schema), which lands it in a Delta table"
COPY_INSTEAD = "write {} to a Delta table and declare that with Delta(path)"


def check_declared(spark: SparkSession, plan: J, relations: Collection[int], missing: Mapping[str, str]) -> None:
    """Refuse an analysed plan that reads anything but declared sources and constant rows.

    relations: the RDD numbers of the relations that stand for the sources; missing: the sources that have no
    schema yet, by their names in lower case. Raises QueryError, for a table of the catalog with the name of such a
    source NoDataError.
    """
    roots = (plan, *catalyst.sequence(plan.subqueriesAll()))
    if not any(_is_undeclared(leaf, relations) for root in roots for leaf in catalyst.relations_read(root)):
        return
    undeclared = [(leaf, view) for leaf, view in _leaves_by_view(roots) if _is_undeclared(leaf, relations)]
    for leaf, _ in undeclared:
        name = _table_name(leaf)
        if name and (source := missing.get(name[-1].lower())) is not None:
            raise NoDataError(source)
    reads = dict.fromkeys(_refuse_read(spark, leaf, view) for leaf, view in undeclared)
    raise QueryError(f"query: {' Also, '.join(reads)}")


def reads_views(plan: J, sources: Collection[str]) -> bool:
    """Return whether a plan reads a view of the session or catalog, which can be replaced at any time."""
    roots = (plan, *catalyst.sequence(plan.subqueriesAll()))
    return any(view not in ("", *sources) for _, view in _leaves_by_view(roots))


@contextmanager
def refusing_jobs(spark: SparkSession) -> Generator[AllowingJobs]:
    """Refuse a query function that runs a Spark job: the rows that it read become constants of its query.

    Yields a context for the lookup of a declared source, whose jobs are allowed: without a checksum beside the newest
    commit, as other writers than Spark leave a table, Delta computes the schema by a job. Raises QueryError at the end
    of the block. A job on a declared source fails by itself.
    """
    tag = f"deltafold-{uuid.uuid4()}"
    context = catalyst.context(spark)

    @contextmanager
    def allowing_jobs() -> Generator[None]:
        spark.sparkContext.removeJobTag(tag)
        try:
            yield
        finally:
            spark.sparkContext.addJobTag(tag)

    spark.sparkContext.addJobTag(tag)
    try:
        yield allowing_jobs
    finally:
        spark.sparkContext.removeJobTag(tag)
    context.listenerBus().waitUntilEmpty()
    if len(context.statusTracker().getJobIdsForTag(tag)):
        raise QueryError(
            "query function: it runs an action (count, collect, first), or infers a schema, on what is not a declared "
            "source, so no refresh would see it change. Declare it as a source and join with an aggregate of it."
        )


def _is_undeclared(leaf: J, relations: Collection[int]) -> bool:
    """Return whether a leaf is neither a declared source nor constant rows."""
    kind = catalyst.kind(leaf)
    return kind not in CONSTANT and not (kind == "LogicalRDD" and int(leaf.rdd().id()) in relations)


def _leaves_by_view(roots: Collection[J], view: str = "") -> Iterator[tuple[J, str]]:
    """Yield the leaves of plans, each with the outermost view that it is read through, if any."""
    for node in roots:
        children = catalyst.sequence(node.children())
        if not children:
            yield node, view
        through = view or (str(node.desc().identifier().unquotedString()) if catalyst.kind(node) == "View" else "")
        yield from _leaves_by_view(children, through)


def _refuse_read(spark: SparkSession, leaf: J, view: str) -> str:
    """Return the error for an undeclared read, with its fix; view: the one that it is read through, if any."""
    what, instead = _describe_read(spark, leaf)
    through = f" (read through the view {view})" if view else ""
    return f"it reads {what}{through}, which is not a declared source. {instead[0].upper()}{instead[1:]}."


def _describe_read(spark: SparkSession, leaf: J) -> tuple[str, str]:
    """Return the description of an undeclared read, and its fix."""
    if name := _table_name(leaf):
        shown = ".".join(name)
        format_ = str(catalyst.option(leaf.catalogTable().get().provider()) or "")
        if format_.lower() == "delta":
            return f"table {shown}", (
                f"declare it with Delta(table={json.dumps(shown, ensure_ascii=False)}) and read it by the source's name"
            )
        return f"table {shown}", COPY_INSTEAD.format(f"what it holds ({format_ or 'not a Delta table'})")
    match catalyst.kind(leaf):
        case "LogicalRelation":
            return _describe_relation(spark, leaf.relation())
        case "LogicalRDD":
            return "an RDD (createDataFrame, a checkpoint)", (
                "write constant rows as VALUES in SQL, and declare the table or the files that others come from"
            )
        case "DataSourceV2Relation":
            return f"{leaf.table().name()}", COPY_INSTEAD.format("its rows")
        case "StreamingRelation" | "StreamingRelationV2":
            return "a stream", STREAM
        case kind:
            return f"what Spark's {kind} gives", COPY_INSTEAD.format("it")


def _describe_relation(spark: SparkSession, relation: J) -> tuple[str, str]:
    """Return the description of a relation that is not a catalog table, and its fix."""
    files = catalyst.jvm(spark).java.lang.Class.forName("org.apache.spark.sql.execution.datasources.HadoopFsRelation")
    if not files.isInstance(relation):
        return f"what {catalyst.kind(relation)} reads", COPY_INSTEAD.format("it")
    location = relation.location()
    format_ = str(relation.fileFormat().toString()).lower()
    paths = [mask_secrets(str(path)).removeprefix("file:") for path in catalyst.sequence(location.rootPaths())]
    named = ", ".join(paths[:MOST_PATHS]) + (", …" if len(paths) > MOST_PATHS else "")
    if str(location.getClass().getName()).startswith(DELTA_PACKAGE):
        return f"the Delta table {named}", f"declare it with Delta({json.dumps(paths[0], ensure_ascii=False)})"
    if format_ in get_args(Format):
        return f"the {format_} data in {named}", f'declare its folder with Files(path, "{format_}", schema)'
    return f"the {format_} data in {named}", COPY_INSTEAD.format("it")


def _table_name(leaf: J) -> tuple[str, ...]:
    """Return the name of the catalog's table that a leaf reads, in parts, quoted where needed; empty for none."""
    table = catalyst.option(leaf.catalogTable()) if catalyst.kind(leaf) == "LogicalRelation" else None
    if table is None:
        return ()
    parts = [str(part) for part in catalyst.sequence(table.identifier().nameParts())]
    named = parts[1:] if parts[0] == "spark_catalog" else parts
    return tuple(part if PLAIN.fullmatch(part) else quoted(part) for part in named)
