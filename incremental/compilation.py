"""The room between: one view's query read, compiled, and made a maintenance. In: a query and its sources' schemas.
Out: what it answers, how it is kept, and its batch form; the only place where language, compiler and runtime meet.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Literal, cast, get_args

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from incremental.algebra.constraints import Constraint
from incremental.algebra.errors import QueryError, Refusal, RefusedError, SourceError
from incremental.algebra.plan import Column, SourceRead
from incremental.algebra.program import Program
from incremental.algebra.recipe import Current, Recipe
from incremental.algebra.report import Description, StateDescription
from incremental.algebra.sources import is_name
from incremental.algebra.sqltext import quoted
from incremental.algebra.traversal import walk
from incremental.compiler.answer_columns import PartitionColumns, find_group_key, find_partition_key
from incremental.compiler.choose_publication import check_answer_table, refuse_answer_table
from incremental.compiler.compile import check_outputs, compile_query
from incremental.compiler.cost import estimate_cost
from incremental.compiler.draft import Draft, Publish
from incremental.compiler.explain import explain_passes, explain_program, explain_refusal
from incremental.compiler.plan_text import outline_plan
from incremental.language.determinism.tie_breaking import break_ties
from incremental.language.query import Ordering, Query, QueryText, evaluate, settings
from incremental.language.reading import column_types, reading
from incremental.operations.sampling import Sample, sample_of
from incremental.refresh.full_recompute import Recomputed
from incremental.refresh.incremental_refresh import Incremental
from incremental.refresh.mode import Cheapest, Choice, Only, Ways
from incremental.spark.catalyst import isolated

Policy = Literal["incremental", "auto", "definition"]
OnChange = Literal["refuse", "rebuild"]


@dataclass(frozen=True)
class Compilation:
    """A view's query over sources of known schemas; compiled when first asked for anything.

    declared: what is declared of the sources that a query reads; partitioned_by: the partition columns of sources;
    kept: what the view's state was built from, if there is one.
    """

    spark: SparkSession
    name: str
    text: QueryText
    policy: Policy
    publish: Publish
    schemas: Mapping[str, StructType]
    invariant: frozenset[str]
    declared: Callable[[Collection[str]], tuple[Constraint, ...]]
    views: frozenset[str] = frozenset()
    partitioned_by: PartitionColumns = field(default_factory=dict[str, Sequence[str]])
    kept: Recipe | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The answer's columns under the user's names."""
        return tuple(Column(name, column.type) for column, name in self.query.outputs)

    @property
    def schema(self) -> StructType:
        """The answer's columns with Spark's types."""
        ddl = ", ".join(f"{quoted(column.name)} {column.type}" for column in self.columns)
        return cast(StructType, StructType.fromDDL(ddl))

    def holds(self, schemas: Mapping[str, StructType]) -> bool:
        """Whether sources with these schemas, under the settings of now, are what was compiled."""
        return schemas == self.schemas and settings(self.spark) == self.query.settings

    def sample(self, share: float, epoch: int) -> Sample | None:
        """A share of the answer by what it is grouped by; None for all of it. Raises QueryError where there is none."""
        return sample_of(self.schema, find_group_key(self.query.plan, self.query.outputs), share, epoch)

    def explain(self, chosen: Choice, trace: bool = False) -> str:
        """Return how the view is maintained, or why it is recomputed; trace: also the plan after each compiler pass."""
        if isinstance(chosen.maintenance, Incremental):
            text = explain_program(self.name, chosen.maintenance.program)
        else:
            text = explain_refusal(self.name, self._refusals, self.policy)
        reason = f"\npolicy auto: {chosen.because}" if chosen.because else ""
        return text + reason + (f"\n\n{explain_passes(self._draft)}" if trace else "")

    def description(self, chosen: Choice) -> Description:
        """The compiled view as plain data, for an orchestrator's graph."""
        states: tuple[StateDescription, ...] = ()
        if isinstance(chosen.maintenance, Incremental):
            program = chosen.maintenance.program
            states = tuple(
                StateDescription(s.name, tuple(k.name for k in s.keys), tuple(c.name for c in s.columns))
                for s in program.states
            )
        columns = tuple((column.name, column.type) for column in self.columns)
        mode, sources, text = chosen.maintenance.mode, chosen.maintenance.sources, self.explain(chosen)
        key = self.partition_key or ""
        return Description(self.name, self.query.fingerprint, mode, states, columns, text, sources, key)

    @cached_property
    def query(self) -> Query:
        """The query as Spark analysed it; raises SourceError where no source has a schema, QueryError from Spark."""
        if not self.schemas:
            reason = "declare its sources and land their data first"
            raise SourceError(f"view {self.name} has no source with a schema: {reason}")
        query = reading(self.spark, self.text, self.schemas, self.kept)
        check_outputs(query.outputs)
        return query

    @property
    def partition_key(self) -> str | None:
        """The answer's column that holds a partition of a source as it is."""
        return find_partition_key(self.query.plan, self.query.outputs, self.partitioned_by)

    @cached_property
    def ways(self) -> Ways:
        """How the view may be kept under its policy; raises RefusedError."""
        program, recomputable = self._program, not refuse_answer_table(self.query.outputs)
        if isinstance(program, RefusedError):
            # where two runs of the batch query differ, recomputing cannot help
            if not self.query.determined or self.policy == "incremental":
                raise program
        elif self.policy == "incremental" or (self.policy == "auto" and not recomputable):
            return Only(self.current, self._incremental(program))
        elif self.policy == "auto":
            return Cheapest(self.current, self._incremental(program), self._recomputed, estimate_cost)
        check_answer_table(self.query.outputs)
        return Only(self.current, self._recomputed)

    @cached_property
    def current(self) -> Current:
        """The query as a person reads it, to be compared with what the view's state was built from."""
        query, known = self.query, column_types(self.schemas)
        fields = [
            (node.relation, name)
            for node in walk(query.plan)
            if isinstance(node, SourceRead)
            for name, _ in node.fields
        ]
        read = {source: {n: known[source][n] for s, n in fields if s == source} for source in query.sources}
        recipe = Recipe(
            query.fingerprint, outline_plan(query.plan), tuple((c.name, c.type) for c in self.columns), read,
            dict(query.settings), query.functions, query.names, releases(self.spark),
        )  # fmt: skip
        return Current(recipe, known)

    def ordered(self, answer: DataFrame) -> DataFrame:
        """The answer in the query's order, if it has one."""
        keys = [order(key) for key in self.query.ordering]
        return answer.orderBy(*keys) if keys else answer

    def batch(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """The user's query as Spark runs it, in a session of its own, with choices among equals settled as we do."""
        spark = self.spark if callable(self.text) else isolated(self.spark)
        return break_ties(spark, evaluate(spark, self.text, frames, self.schemas))

    @cached_property
    def _constraints(self) -> tuple[Constraint, ...]:
        return self.declared(self.query.sources)

    @cached_property
    def _draft(self) -> Draft:
        query = self.query
        options = query.forbidden, self.invariant, self.publish, self._constraints, self.views
        return Draft(query.plan, query.outputs, query.fingerprint, *options)

    @cached_property
    def _program(self) -> Program | RefusedError:
        try:
            return compile_query(self._draft)
        except RefusedError as error:
            return error

    def _incremental(self, program: Program) -> Incremental:
        circumstances = tuple(self.query.settings), tuple(sorted(releases(self.spark).items()))
        return Incremental(program, self.query.attributes, self.partition_key, circumstances)

    @property
    def _recomputed(self) -> Recomputed:
        query, columns = self.query, tuple(name for _, name in self.query.outputs)
        by_definition, facts = self.policy == "definition", self._constraints
        options = columns, self.batch, by_definition, facts, self.partition_key
        return Recomputed(query.fingerprint, query.sources, *options)

    @property
    def _refusals(self) -> tuple[Refusal, ...]:
        return self._program.refusals if isinstance(self._program, RefusedError) else ()


def releases(spark: SparkSession) -> dict[str, str]:
    """What a state is made by."""
    try:
        ours = version("deltafold")
    except PackageNotFoundError:  # a checkout that nobody installed
        ours = "unknown"
    return {"Deltafold": ours, "Spark": spark.version, "Python": platform.python_version()}


def check_options(name: str, policy: str, publish: str, on_change: str) -> None:
    """Refuse what a view cannot be called, and options that there are not; raises QueryError."""
    if not is_name(name):
        raise QueryError(f"{name!r} is no name for a view: use letters, digits and underscores")
    if policy not in get_args(Policy):
        raise QueryError(f"there is no policy {policy!r}: use incremental, auto or definition")
    if publish not in get_args(Publish):
        raise QueryError(f"there is no publication {publish!r}: use auto or table")
    if on_change not in get_args(OnChange):
        raise QueryError(f"on_change cannot be {on_change!r}: use refuse or rebuild")


def order(key: Ordering) -> SparkColumn:
    """One key of ORDER BY."""
    column = F.col(quoted(key.name))
    if key.ascending:
        return column.asc_nulls_first() if key.nulls_first else column.asc_nulls_last()
    return column.desc_nulls_first() if key.nulls_first else column.desc_nulls_last()
