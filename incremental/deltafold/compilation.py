"""Analyse and compile the query of one view, and choose how it is refreshed.

It joins language (text to plan), compiler (plan to program) and refresh (program to refresh strategy), none of which
imports another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Protocol, get_args

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from deltafold.algebra.constraints import Constraint
from deltafold.algebra.errors import QueryError, Refusal, RefusedError, SourceError, UsageError, citing
from deltafold.algebra.lineage import column_lineage
from deltafold.algebra.monoids.declared import DeclaredMonoid
from deltafold.algebra.plain_options import Publish
from deltafold.algebra.plan import Column, SourceRead
from deltafold.algebra.program import Program
from deltafold.algebra.recipe import Current, OtherTypes, Recipe
from deltafold.algebra.results.html import Explanation
from deltafold.algebra.results.report import Description, StateDescription
from deltafold.algebra.sources import is_name
from deltafold.algebra.sqltext import quoted
from deltafold.algebra.traversal import find_group_key, find_partition_key, walk
from deltafold.compiler.compile import check_outputs, compile_query
from deltafold.compiler.cost import estimate_cost
from deltafold.compiler.draft import Draft
from deltafold.compiler.explain import explain_passes, explain_program, explain_refusal
from deltafold.compiler.passes.choose_publication import check_answer_table, refuse_answer_table
from deltafold.compiler.plan_text import outline_plan
from deltafold.compiler.widening import DifferentError, Widening, compare_programs, widened_columns
from deltafold.dataflow.state_schema import Layout
from deltafold.language.analysis import Analysis, analyse
from deltafold.language.determinism.clock import bind_clock
from deltafold.language.determinism.tie_breaking import break_ties
from deltafold.language.evaluation import evaluate
from deltafold.language.fingerprint.earlier_schemas import are_narrower, find_earlier
from deltafold.language.fingerprint.equality import SparkEquality
from deltafold.language.fingerprint.widened_values import WidenedValues
from deltafold.language.mentions import Mentions, NoDataError
from deltafold.language.query import Ordering, Query, QueryText, Settings
from deltafold.language.query_language import LanguageQuery
from deltafold.language.state_names import ColumnTypes, citing_moved_columns, releases, translate_analysis
from deltafold.language.unread import empty
from deltafold.operations.verify import Sample, sample_of
from deltafold.refresh.full_recompute import FullRecompute
from deltafold.refresh.incremental_refresh import Incremental
from deltafold.refresh.mode import Choice, CostBased, Fixed, ModePolicy
from deltafold.refresh.sources.source_catalog import char_length
from deltafold.spark import catalyst
from deltafold.spark.catalyst import isolate_session


class Sources(Protocol):
    """The sources of a query: declared tables and files, and views declared as sources."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all sources."""
        ...

    @property
    def looked_up(self) -> Mapping[str, StructType | None]:
        """The schemas of the sources that were looked up so far."""
        ...

    @property
    def views(self) -> frozenset[str]:
        """The names of sources that are views."""
        ...

    @property
    def invariant(self) -> frozenset[str]:
        """The names of sources that are declared invariant."""
        ...

    @property
    def monoids(self) -> Mapping[str, DeclaredMonoid]:
        """The declared monoids, by their names in lower case."""
        ...

    def schema(self, name: str) -> StructType | None:
        """Return the schema of a source, None if it has none yet or is not declared."""
        ...

    def peek(self, name: str) -> StructType | None:
        """Return the schema of a source that the query need not read, None also if the lookup fails."""
        ...

    def without_data(self, name: str, *, was_read: bool) -> str:
        """Return why a source has no schema, and the fix; was_read: an epoch has read it."""
        ...

    def partitioned_by(self, name: str) -> tuple[str, ...]:
        """Return the partition columns of a source; of a view, the one that its answer contains."""
        ...

    def constraints(self, read: Collection[str]) -> tuple[Constraint, ...]:
        """Return the declared constraints of sources that a query reads; raises SourceError for missing columns."""
        ...


RECURSION_ROWS = "spark.sql.cteRecursionRowLimit"
Policy = Literal["incremental", "auto", "definition"]
Remedy = Literal["refuse", "rebuild"]


@dataclass(frozen=True, kw_only=True)
class WidenedQuery:
    """A query whose sources got wider types, under the names of its state; then: as it was for the state.

    program: that of the state, if it had one; widening: what becomes of its tables; because: why that is not known.
    """

    query: Query
    then: Query
    program: Program | None = None
    widening: Widening | None = None
    because: str = ""

    @property
    def grown(self) -> tuple[str, ...]:
        """The answer's columns that get another type, in words."""
        return widened_columns(self.then.outputs, self.query.outputs)


@dataclass(frozen=True, kw_only=True)
class CompileKey:
    """Everything that a compilation depends on: it is valid as long as its key is the same (D-197).

    named: the declared sources that the query may read; invariant: those of them that are declared so; settings:
    Spark's, as far as the answer depends on them; schemas: of the sources that it looked up, and of no other, so that
    errors in sources that the query does not read do not matter.
    """

    query: QueryText
    policy: Policy
    publish: Publish
    settings: Settings
    named: tuple[str, ...]
    invariant: frozenset[str]
    schemas: Mapping[str, StructType | None]


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """A view's query over its sources; each stage of the compilation runs when it is first needed.

    The analysis alone gives the answer's columns, which suffice to compile a view above.
    sources: looked up when needed; mentions: the names in the query; settings: those that its answer depends on;
    origin: where its text is from, for errors; kept: the recipe of the view's state, if there is one; earlier: an
    analysis that its own is to be compared with.
    """

    spark: SparkSession
    name: str
    text: QueryText
    policy: Policy
    publish: Publish
    sources: Sources
    mentions: Mentions
    settings: Settings
    origin: str = ""
    kept: Recipe | None = None
    earlier: Analysis | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The answer's columns under the user's names."""
        return self.analysis.columns

    @cached_property
    def schema(self) -> StructType:
        """The answer's columns with Spark's types, and the lengths of CHAR columns."""
        ddl = ", ".join(f"{quoted(column.name)} {column.type}" for column in self.columns)
        fields = zip(catalyst.schema_of(ddl), catalyst.python_schema(self.analysis.plan.schema()), strict=True)
        return StructType(
            [
                StructField(field.name, field.dataType, nullable=True, metadata=char_length(analysed))
                for field, analysed in fields
            ]
        )

    @property
    def key(self) -> CompileKey:
        """What it depends on, with the schemas that were looked up for it so far."""
        return CompileKey(
            query=self.text,
            policy=self.policy,
            publish=self.publish,
            settings=self.settings,
            named=self.named,
            invariant=self.invariant,
            schemas=dict(self.sources.looked_up),
        )

    def key_over(self, sources: Sources, settings: Settings) -> CompileKey:
        """Return its key with sources and settings as they are by now."""
        named = self.mentions.among(sources.names)
        schemas = {name: sources.schema(name) for name in self.sources.looked_up}
        invariant = sources.invariant.intersection(named)
        return replace(self.key, settings=settings, named=named, invariant=invariant, schemas=schemas)

    @cached_property
    def named(self) -> tuple[str, ...]:
        """The declared sources that the query may read, as of its analysis."""
        return self.mentions.among(self.sources.names)

    @cached_property
    def invariant(self) -> frozenset[str]:
        """Those of them that are declared invariant."""
        return self.sources.invariant.intersection(self.named)

    def has_query_of(self, other: Compilation) -> bool:
        """Return whether both have the same query; a Python function may return another one at each call."""
        if self.analysis.has_plans_of(other.analysis):
            return True
        mine = self.query
        its = other.query
        named = [name for _, name in mine.outputs] == [name for _, name in its.outputs]
        return named and (mine.fingerprint, mine.ordering) == (its.fingerprint, its.ordering)

    def sample(self, share: float, epoch: int) -> Sample | None:
        """Return a sample of the answer by its group keys; None for a share of 1; raises QueryError (see sample_of)."""
        return sample_of(self.schema, find_group_key(self.query.plan, self.query.outputs), share, epoch)

    def explain(self, chosen: Choice, *, trace: bool = False) -> Explanation:
        """Return how the view is maintained, or why it is recomputed; trace: also the plan after each compiler pass."""
        if isinstance(chosen.strategy, Incremental):
            text, rules = explain_program(self.name, chosen.strategy.program), chosen.strategy.program.node_rules
        else:
            rules = ()
            text = explain_refusal(self.name, self._refusals, self.policy)
        reason = f"\npolicy auto: {chosen.because}" if chosen.because else ""
        program = ""
        if isinstance(self.text, LanguageQuery):
            program = f"\n\n{self.text.language} became:\n{self.text.show(self.sources.names, self.sources.schema)}"
        text += reason + program + (f"\n\n{explain_passes(self._draft)}" if trace else "")
        return Explanation.of(text, rules)

    def description(self, chosen: Choice) -> Description:
        """Return the compiled view as plain data, for an orchestrator's graph."""
        stages = chosen.strategy.program.stages if isinstance(chosen.strategy, Incremental) else ()
        return Description(
            name=self.name,
            fingerprint=self.query.fingerprint,
            mode=chosen.strategy.mode,
            states=tuple(
                StateDescription(
                    stage.name, tuple(key.name for key in stage.keys), tuple(column.name for column in stage.columns)
                )
                for stage in stages
            ),
            columns=tuple((column.name, column.type) for column in self.columns),
            explain=str(self.explain(chosen)),
            sources=chosen.strategy.sources,
            partition_key=self.partition_key or "",
            lineage=self.lineage,
        )

    @property
    def lineage(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """The (source, column) pairs that each column is computed from; columns of unknown lineage are left out."""
        lineage = column_lineage(self.query.plan, self.query.outputs)
        return {name: tuple(sorted(origins)) for name, origins in lineage.items() if origins is not None}

    @cached_property
    def analysis(self) -> Analysis:
        """The query as Spark analysed it; raises SourceError for a source without a schema, QueryError from Spark."""
        sources = self.sources
        with citing(self.origin):
            try:
                with citing_moved_columns(self._types, self.kept):
                    analysis = analyse(
                        self.spark, self.text, sources.names, sources.schema, sources.monoids, self.earlier
                    )
            except NoDataError as error:
                was_read = self.kept is not None and error.source in self.kept.sources
                raise SourceError(sources.without_data(error.source, was_read=was_read)) from error
            check_outputs(tuple((column, column.name) for column in analysis.columns))
        return analysis

    @cached_property
    def query(self) -> Query:
        """The query in the algebra; raises as `analysis`, and QueryError for an operator that a view cannot have.

        Where types of its sources got wider, and the tables of the view stay as they are, it is the query of its state.
        """
        widened = self._widened
        if widened is None or widened.because:
            return self._translated
        if self.kept is not None and self._keeps_tables(widened):
            return replace(widened.query, built_as=self.kept.fingerprint)
        return widened.query

    @cached_property
    def _translated(self) -> Query:
        """The query, whatever types its sources had when the state was built."""
        analysis = self.analysis
        with citing(self.origin), citing_moved_columns(self._types, self.kept):
            return translate_analysis(analysis, self.kept, self.sources.schema, self.sources.views)

    @property
    def partition_key(self) -> str | None:
        """The answer's column that contains a partition column of a source unchanged."""
        partitioned_by = {name: self.sources.partitioned_by(name) for name in self.query.sources}
        return find_partition_key(self.query.plan, self.query.outputs, partitioned_by)

    @cached_property
    def mode_policy(self) -> ModePolicy:
        """The modes in which the view may be maintained under its policy; raises RefusedError."""
        with citing(self.origin):
            return self._find_modes(self._program)

    def _find_modes(self, program: Program | RefusedError) -> ModePolicy:
        recomputable = not refuse_answer_table(self.query.outputs)
        if isinstance(program, RefusedError):
            # if two runs of the batch query differ, recomputing cannot help
            if not self.query.determined or self.policy == "incremental":
                raise program
        elif self.policy == "incremental" or (self.policy == "auto" and not recomputable):
            return Fixed(self.current, self._incremental(program))
        elif self.policy == "auto":
            return CostBased(self.current, self._incremental(program), self._recomputed, estimate_cost)
        check_answer_table(self.query.outputs)
        refused = self._refusals[0].node if self.policy == "auto" and self._refusals else ""
        return Fixed(self.current, self._recomputed, refused)

    @cached_property
    def current(self) -> Current:
        """The recipe of the query, to compare with the one that the view's state was built from."""
        query = self.query
        read: dict[str, dict[str, str]] = {source: {} for source in query.sources}
        types = {
            source: catalyst.types_of(schema) for source in read if (schema := self.sources.schema(source)) is not None
        }
        for node in walk(query.plan):
            if isinstance(node, SourceRead):
                read[node.relation] |= {name: types[node.relation][name] for name, _ in node.fields}
        recipe = Recipe(
            fingerprint=query.fingerprint,
            plan=outline_plan(query.plan),
            columns=tuple((c.name, c.type) for c in self.columns),
            sources=read,
            settings=dict(query.settings),
            functions=query.functions,
            names=query.names,
            made_by=releases(self.spark),
        )
        return Current(
            recipe, self._types, self._other_types, self.text.guard if isinstance(self.text, LanguageQuery) else ""
        )

    def order(self, answer: DataFrame) -> DataFrame:
        """Return the answer in the query's order, if it has one."""
        keys = [_order_by(key) for key in self.query.ordering]
        return answer.orderBy(*keys) if keys else answer

    def batch(self, frames: Mapping[str, DataFrame], time: str = "") -> DataFrame:
        """Return the user's query as a DataFrame in a session of its own, with ties broken as the view does.

        time: at which it reads the clock (ISO 8601); when it is run by default.
        """
        spark = self.spark if callable(self.text) else isolate_session(self.spark)
        if not callable(self.text):
            spark.conf.set(RECURSION_ROWS, "-1")  # Spark's limit protects its own engine; a view need not have it

        def frame(name: str) -> DataFrame | None:
            """Return the frame of a source; an empty one if the query names it but, after pruning, does not read it."""
            schema = None if name in frames else self.sources.schema(name)
            return frames.get(name) if schema is None else empty(spark, schema)

        monoids = self.sources.monoids
        with citing(self.origin):
            answer = evaluate(spark, self.text, self.sources.names, frame, monoids)
            if time:
                answer = bind_clock(spark, answer, time)
            return break_ties(spark, answer, monoids)

    @property
    def _types(self) -> ColumnTypes:
        """Return the columns of all sources, to report which changed since a state was built."""
        return ColumnTypes(self.sources.names, self.sources.peek)

    @cached_property
    def _constraints(self) -> tuple[Constraint, ...]:
        return self.sources.constraints(self._translated.sources)

    @property
    def _draft(self) -> Draft:
        return self._draft_of(self.query)

    def _draft_of(self, query: Query) -> Draft:
        return Draft(
            plan=query.plan,
            outputs=query.outputs,
            fingerprint=query.fingerprint,
            refusals=query.refusals,
            invariant=self.invariant,
            publish=self.publish,
            facts=self._constraints,
            views=self.sources.views,
            equality=SparkEquality(self.spark, query.attributes),
        )

    @cached_property
    def _program(self) -> Program | RefusedError:
        return self._compile(self.query)

    def _compile(self, query: Query) -> Program | RefusedError:
        try:
            return compile_query(self._draft_of(query))
        except RefusedError as error:
            return error

    @cached_property
    def _earlier_schemas(self) -> Mapping[str, StructType]:
        """The schemas of the sources with types that changed since the state was built, as they were."""
        if self.kept is None or self._translated.fingerprint == self.kept.fingerprint:
            return {}
        return find_earlier(self.kept.sources, self.sources.schema)

    @cached_property
    def _query_of_state(self) -> Query | None:
        """The query over the earlier types of its sources, if some changed and it is the query of its state."""
        kept, schema, earlier = self.kept, self.sources.schema, self._earlier_schemas
        if kept is None or not earlier:
            return None
        try:
            analysis = analyse(
                self.spark, self.text, self.sources.names, lambda n: earlier.get(n) or schema(n), self.sources.monoids
            )
            then = analysis.translate(kept.names, kept.orders)
        except QueryError:  # it is another query, or the function that returns it is
            return None
        return then if then.fingerprint == kept.fingerprint else None

    @cached_property
    def _widened(self) -> WidenedQuery | None:
        """The query under the names of its state, if that is of the same query before types of sources got wider."""
        kept, then = self.kept, self._query_of_state
        if kept is None or then is None or not are_narrower(self._earlier_schemas, self.sources.schema):
            return None
        widened = WidenedQuery(query=self.analysis.translate(kept.names, kept.orders), then=then)
        old, new = self._compile(then), self._compile(widened.query)
        if isinstance(old, RefusedError) or isinstance(new, RefusedError):
            return widened
        try:
            values = WidenedValues(self.spark, then.attributes, widened.query.attributes)
            return replace(widened, program=old, widening=compare_programs(old, new, values))
        except DifferentError as error:
            return replace(widened, because=str(error))

    def _keeps_tables(self, widened: WidenedQuery) -> bool:
        """Return whether the tables of the view stay as they are: a view that is recomputed has its answer alone."""
        if widened.widening is None or self.policy == "definition":
            return not widened.grown
        return widened.widening.keeps_tables

    @property
    def _other_types(self) -> OtherTypes | None:
        """What other types of sources change since the state was built, if nothing else did."""
        if self._query_of_state is None:
            return None
        since, widened = self._query_of_state.fingerprint, self._widened
        if widened is None:
            return OtherTypes(since)
        if widened.because:
            return OtherTypes(since, f"a wider type changes more than the width: {widened.because}")
        if widened.grown:
            return OtherTypes(since, f"a wider type changes the answer: {', '.join(widened.grown)}")
        return OtherTypes(since, "the answer is the same, and the states get wider types", same_answer=True)

    def _incremental(self, program: Program) -> Incremental:
        return Incremental(
            program, self.query.attributes, lambda: self.partition_key, self._circumstances, self._convertible
        )

    @property
    def _circumstances(self) -> tuple[object, ...]:
        return tuple(self.query.settings), tuple(sorted(releases(self.spark).items()))

    @property
    def _convertible(self) -> dict[str, tuple[str, ...]]:
        """By state, the digest that it had before types of sources got wider, and its columns as SQL over those."""
        widened = self._widened
        if widened is None or widened.program is None or widened.widening is None:
            return {}
        convertible: dict[str, tuple[str, ...]] = {}
        digests = widened.program.digests(self._circumstances)
        for state in widened.program.states:
            to = widened.widening.states[state.name]
            keys = map(quoted, Layout.of(widened.program, state, 1).keys)
            casts = (cast.format(key) for cast, key in zip(to.keys, keys, strict=True))
            convertible[state.name] = (digests[state.name], *casts, *to.parts)
        return convertible

    @property
    def _recomputed(self) -> FullRecompute:
        return FullRecompute(
            fingerprint=self.query.fingerprint,
            sources=self.query.sources,
            columns=tuple(name for _, name in self.query.outputs),
            batch=self.batch,
            by_definition=self.policy == "definition",
            reads_clock=bool(self.query.clocked),
            constraints=self._constraints,
            partition_key=lambda: self.partition_key,
        )

    @property
    def _refusals(self) -> tuple[Refusal, ...]:
        return self._program.refusals if isinstance(self._program, RefusedError) else ()


def check_options(name: str, query: object, policy: str, publish: str, on_change: str, on_lost: str) -> None:
    """Raise UsageError for an invalid view name, for what cannot be a query, or for unknown options."""
    if not is_name(name):
        raise UsageError(f"view {name!r}: invalid name. Use at most 128 letters, digits and underscores.")
    if not (callable(query) or isinstance(query, str | LanguageQuery)):
        raise UsageError(
            f"view {name}: {type(query).__name__} is not a query. Give SQL text, Mrql(text), or a function that takes "
            "DataFrames and returns one."
        )
    if policy not in get_args(Policy):
        raise UsageError(f"view {name}: unknown policy {policy!r}. Use incremental, auto or definition.")
    if publish not in get_args(Publish):
        raise UsageError(f"view {name}: unknown publication {publish!r}. Use auto, plain, fast or table.")
    for option, value in (("on_change", on_change), ("on_lost", on_lost)):
        if value not in get_args(Remedy):
            raise UsageError(f"view {name}: unknown {option} {value!r}. Use refuse or rebuild.")


def _order_by(key: Ordering) -> SparkColumn:
    """Return one key of ORDER BY."""
    column = F.col(quoted(key.name))
    if key.ascending:
        return column.asc_nulls_first() if key.nulls_first else column.asc_nulls_last()
    return column.desc_nulls_first() if key.nulls_first else column.desc_nulls_last()
