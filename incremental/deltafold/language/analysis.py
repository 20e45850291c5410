"""Analyse a batch query, SQL text, MRQL or a DataFrame function, and translate it into a plan of the algebra.

Spark analyses the query over relations with the sources' schemas and without data, in a clone of the session, so that
the user's temporary views are not touched and no data is read: a query function that runs an action is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltafold.algebra.errors import QueryError
from deltafold.algebra.monoids.declared import DeclaredMonoid
from deltafold.algebra.plan import Column
from deltafold.language.determinism.tie_breaking import break_ties_before_translation
from deltafold.language.evaluation import evaluate, unknown_table
from deltafold.language.fingerprint.equality import are_same_plans
from deltafold.language.loops.options import evaluate_by
from deltafold.language.loops.recording import LoopRecorder, RecordedLoops
from deltafold.language.mentions import NoDataError
from deltafold.language.names import type_text
from deltafold.language.normalise import normal_form
from deltafold.language.query import NO_MONOIDS, Monoids, Ordering, Query, QueryText, Settings, answer_settings
from deltafold.language.query_language import LanguageQuery, NoSchemaError
from deltafold.language.translation.subqueries import check_complete
from deltafold.language.translation.translate import Translation
from deltafold.language.undeclared import AllowingJobs, check_declared, reads_views, refusing_jobs
from deltafold.language.unread import Placeholders
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J, JavaError
from deltafold.spark.java_errors import sentence_of_analysis

SQL_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
CLOCK_CALL = re.compile(
    r"\b(?:date|timestamp(?:_ltz|_ntz)?)\s*(['\"])\s*(?:now|today|tomorrow|yesterday)\s*\1", re.IGNORECASE
)
SchemaOf = Callable[[str], StructType | None]


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """A query as Spark analysed it, in a session of its own; it determines the answer's columns.

    relations: the source of each relation, by its number; settings: those that the answer depends on; loops:
    those that the query recorded; monoids: those that are declared; placeholders: the relations.
    """

    spark: SparkSession
    plan: J
    relations: Mapping[int, str]
    settings: Settings
    loops: RecordedLoops = field(default_factory=RecordedLoops)
    monoids: Monoids = field(default_factory=dict[str, DeclaredMonoid])
    placeholders: Placeholders = field(default_factory=Placeholders)

    def has_plans_of(self, other: Analysis) -> bool:
        """Return whether both are certainly of the same query; compares all plans, over the same relations only."""
        own_facts, facts = (
            (analysis.relations, analysis.settings, analysis.monoids, analysis.loops.facts)
            for analysis in (self, other)
        )
        if own_facts != facts:
            return False
        plans = zip((self.plan, *self.loops.plans), (other.plan, *other.loops.plans), strict=True)
        return all(are_same_plans(self.spark, *pair) for pair in plans)

    @cached_property
    def normal(self) -> J:
        """The plan that is translated; raises QueryError for a correlated subquery that Spark cannot run either."""
        try:
            return normal_form(self.spark, break_ties_before_translation(self.spark, self.plan, self.monoids))
        except PySparkException as error:
            raise QueryError(
                f"Spark cannot run the query: {sentence_of_analysis(error).rstrip('.')}. Correct the query."
            ) from error

    @cached_property
    def replaceable(self) -> bool:
        """Whether it reads a view of the session or the catalog, which may have other constants next time."""
        names = set(self.relations.values())
        return any(reads_views(plan, names) for plan in (self.plan, *self.loops.plans))

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The answer's columns under the user's names."""
        return tuple(Column(str(a.name()), type_text(a.dataType())) for a in catalyst.sequence(self.plan.output()))

    def translate(
        self,
        names: Sequence[str] = (),
        orders: Mapping[str, Sequence[str]] | None = None,
        types: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Query:
        """Return the query in the algebra. Raises QueryError.

        names: for the plan's columns, in their order; orders: of the columns that are read of a source; types: of these
        columns, in place of those in its schema.
        """
        translation = Translation(self.spark, self.relations, names, self.loops, self.monoids, orders, types)
        algebra = translation.translate_query(self.normal)
        check_complete(self.spark, (self.normal, *translation.loops.normal), self.relations, algebra)
        columns = [translation.names.column(a) for a in catalyst.sequence(self.normal.output())]
        outputs = tuple(zip(columns, (column.name for column in self.columns), strict=True))
        return Query(
            plan=algebra,
            outputs=outputs,
            ordering=_answer_ordering(self.normal, {column.name: name for column, name in outputs}, translation),
            forbidden=tuple(translation.scalars.forbidden),
            clocked=tuple(translation.scalars.clocked),
            settings=self.settings,
            attributes=translation.names.attributes,
            names=tuple(translation.names.created),
            loops=translation.loops.called,
        )


def analyse(
    spark: SparkSession,
    query: QueryText,
    declared: Collection[str],
    schema: SchemaOf,
    monoids: Monoids = NO_MONOIDS,
    earlier: Analysis | None = None,
) -> Analysis:
    """Analyse a query over the declared sources; schema: that of a source, None where it has none yet.

    earlier: an analysis to compare this one with. Only the schemas of sources that the query may read are asked for.
    Raises QueryError, also for a query that reads what is not a declared source; NoDataError for one that names a
    source without a schema.
    """
    clone = catalyst.isolate_session(spark)
    _check_query(clone, query)
    placeholders = Placeholders() if earlier is None else Placeholders(earlier.placeholders.made)
    loops = RecordedLoops()
    relations: dict[int, str] = {}
    missing: dict[str, str] = {}

    def frame(name: str) -> DataFrame | None:
        with allowing_jobs():
            columns = schema(name)
        if columns is None:
            missing[name.lower()] = name
            clone.catalog.dropTempView(name)  # a session view of the same name would hide it
            return None
        relation, number = placeholders.make(clone, name, columns)
        relations[number] = name
        return relation

    recorder = LoopRecorder(clone, loops, placeholders)
    refusing = refusing_jobs(clone) if callable(query) else nullcontext[AllowingJobs](nullcontext)
    with refusing as allowing_jobs, evaluate_by(recorder):
        try:
            plan = catalyst.analysed_plan(evaluate(clone, query, declared, frame, monoids))
        except QueryError as error:
            if (source := missing.get(_unknown_name(error).lower())) is None:
                raise
            raise NoDataError(source) from error
        for part in (plan, *loops.plans):
            check_declared(clone, part, {*relations, *loops.numbers}, missing)
    return Analysis(
        spark=clone,
        plan=plan,
        relations=relations,
        settings=answer_settings(clone),
        loops=loops,
        monoids=monoids,
        placeholders=placeholders,
    )


def _check_query(spark: SparkSession, query: QueryText) -> None:
    """Raise QueryError for anything but one query."""
    if isinstance(query, str):
        _check_statement(spark, query)
    elif not isinstance(query, LanguageQuery) and not callable(query):
        raise QueryError(
            f"query: {type(query).__name__} is not one. Pass SQL text, Mrql(text) or a function of its sources."
        )


def _answer_ordering(node: J, names: Mapping[str, str], translation: Translation) -> tuple[Ordering, ...]:
    """Return the ORDER BY on top of the query, as far as its keys are answer columns."""
    while catalyst.kind(node) in ("GlobalLimit", "LocalLimit", "Project"):
        node = node.child()
    keys: list[Ordering] = []
    for order in catalyst.sequence(node.order()) if catalyst.kind(node) == "Sort" else ():
        if catalyst.kind(order.child()) != "AttributeReference":
            break
        column = translation.names.column(order.child())
        if column.name not in names:
            break
        ascending = catalyst.kind(order.direction()).startswith("Ascending")
        nulls_first = catalyst.kind(order.nullOrdering()).startswith("NullsFirst")
        keys.append(Ordering(names[column.name], ascending=ascending, nulls_first=nulls_first))
    return tuple(keys)


def _unknown_name(error: QueryError) -> str:
    """Return the source or table name that Spark's error reports as unknown; empty for another error."""
    if isinstance(error, NoSchemaError):
        return error.source
    return unknown_table(error.__cause__)


def _check_statement(spark: SparkSession, text: str) -> None:
    """Raise QueryError for a statement other than a query. Text that cannot be parsed is left to Spark.

    Spark runs a command as soon as it analyses one, and replaces the clock by a literal as soon as it parses it.
    """
    if clock := CLOCK_CALL.search(SQL_COMMENT.sub(" ", text)):
        raise QueryError(
            f"clock in the query: {clock[0]} differs from run to run. Compare with a column or a constant instead, or "
            "with current_timestamp() or current_date()."
        )
    try:
        plan = catalyst.parse_plan(spark, text)
    except JavaError:
        return
    for node in _all_nodes(plan):
        if catalyst.kind(node) == "UnresolvedExecuteImmediate":
            raise QueryError(
                "EXECUTE IMMEDIATE: it runs another text, which may be a command. Write that query itself."
            )
        if any(catalyst.is_a(spark, node, f"plans.logical.{name}") for name in ("Command", "ParsedStatement")):
            raise QueryError(f"not a query: {catalyst.kind(node)} is a command, and a view only reads. Write a SELECT.")


def _all_nodes(plan: J) -> list[J]:
    """Return a plan and all nodes below it."""
    return [plan, *(node for child in catalyst.sequence(plan.children()) for node in _all_nodes(child))]
