"""Find the declared sources that a query may read, before any of them is looked up.

| query | may read |
| --- | --- |
| SQL text | the tables that Spark's parser finds in it, within subqueries and common table expressions too |
| SQL text with a table whose name is computed, or an operator that is not known here | every source |
| SQL text, where the session has SQL functions other than monoids, or a view that it names | every source |
| MRQL | the sources that its names and paths denote |
| a function | the sources that its parameters name; every source where it has `**tables` |

A source that is named needlessly costs one lookup of its schema. For one that is missed, Spark reports an unknown
table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.algebra.monoids.declared import MARK
from deltafold.language.inner_plans import AT_A_VERSION
from deltafold.language.query_language import LanguageQuery
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J, JavaError
from deltafold.spark.deferred_frame import defer
from deltafold.spark.session_state import WRITTEN_IN_SQL, is_temporary_view, temporary_functions

CASE = "spark.sql.caseSensitive"
# leaves of a parsed plan whose tables, if any, are in their expressions
WITHOUT_TABLES = {
    "OneRowRelation", "LocalRelation", "ResolvedInlineTable", "UnresolvedInlineTable", "UnresolvedTableValuedFunction",
}  # fmt: skip
NAMELESS = "PlanWithUnresolvedIdentifier"
COMPUTED = ""  # a placeholder for the name of such a table
PythonParameter = inspect.Parameter


class NoDataError(SourceError):
    """A query reads a declared source that has no schema yet; source: its name."""

    def __init__(self, source: str) -> None:
        super().__init__(f"source {source} has no data yet. Land its files or create the Delta table first.")
        self.source = source


@dataclass(frozen=True)
class Mentions:
    """The tables that a query names, in lower case; `everything`: it may read others too.

    views: the names that are views of the session; such a view may read other sources, unless a source has its name.
    """

    names: frozenset[str] = frozenset()
    everything: bool = False
    views: frozenset[str] = frozenset()

    def among(self, declared: Collection[str]) -> tuple[str, ...]:
        """Return the declared sources that the query may read."""
        everything = self.everything or not self.views <= {name.lower() for name in declared}
        return tuple(name for name in declared if everything or name.lower() in self.names)


def find_mentions(spark: SparkSession, query: str | LanguageQuery | Callable[..., DataFrame]) -> Mentions:
    """Return the names in a query; none if Spark cannot parse it, as the analysis reports that error."""
    if isinstance(query, LanguageQuery):
        try:
            return Mentions(query.names)
        except Exception:  # another package's: the evaluation reports it, for this query alone
            return Mentions()
    if not isinstance(query, str):
        parameters = _parameters(query)
        named = frozenset(name.lower() for name, parameter in parameters.items() if not _is_rest(parameter))
        return Mentions(named, any(map(_is_rest, parameters.values())))
    try:
        plan = catalyst.parse_plan(spark, query)
    except JavaError:
        return Mentions()
    tables = frozenset(find_tables(plan, case_sensitive=str(spark.conf.get(CASE)) == "true"))
    names = tables - {COMPUTED}
    views = frozenset(name for name in names if is_temporary_view(spark, name))
    return Mentions(names, COMPUTED in tables or WRITTEN_IN_SQL in temporary_functions(spark, MARK), views)


def find_tables(plan: J, *, case_sensitive: bool) -> Iterator[str]:
    """Yield the names of the tables of a parsed plan in lower case; COMPUTED where one cannot be known."""
    for relation in find_relations(plan, case_sensitive=case_sensitive):
        yield COMPUTED if relation is None else name_parts(relation)[-1].lower()


def name_parts(relation: J) -> tuple[str, ...]:
    """Return the parts of the name of an unresolved relation."""
    return tuple(map(str, catalyst.sequence(relation.multipartIdentifier())))


def find_relations(plan: J, *, case_sensitive: bool) -> Iterator[J | None]:
    """Yield the unresolved relations of a parsed plan that denote tables; None where the name cannot be known."""
    waiting: list[tuple[J, frozenset[str]]] = [(plan, frozenset())]  # with the names of common tables around
    while waiting:
        node, common = waiting.pop()
        kind = catalyst.kind(node)
        children = catalyst.sequence(node.children())
        match kind:
            case "UnresolvedRelation":
                *schema, name = name_parts(node)
                if schema or (name if case_sensitive else name.lower()) not in common:
                    yield node
            case "UnresolvedWith":
                recursive = bool(node.allowRecursion())
                for relation in catalyst.sequence(node.cteRelations()):
                    name = str(relation._1())
                    further = common | {name if case_sensitive else name.lower()}
                    waiting.append((relation._2(), further if recursive else common))
                    common = further
                waiting += [(child, common) for child in children]
            case _ if kind in AT_A_VERSION:
                waiting.append((node.relation(), common))
            case _:
                if kind == NAMELESS or not (children or kind in WITHOUT_TABLES):
                    yield None
                inner = catalyst.sequence(node.innerChildren())  # the subqueries of its expressions
                waiting += [(child, common) for child in (*children, *inner)]


def call_query(
    spark: SparkSession,
    query: Callable[..., DataFrame],
    declared: Iterable[str],
    frame: Callable[[str], DataFrame | None],
) -> object:
    """Call a query function with the sources that its parameters name; `**tables` looks sources up when used."""
    parameters = _parameters(query)
    explicit = {name: parameter for name, parameter in parameters.items() if not _is_rest(parameter)}
    named = {name: source for name in declared if name in explicit and (source := frame(name)) is not None}
    for name in declared:
        if name in explicit and name not in named and explicit[name].default is PythonParameter.empty:
            raise NoDataError(name)
    by_position = list[DataFrame]()
    for name, parameter in explicit.items():
        if parameter.kind != PythonParameter.POSITIONAL_ONLY or name not in named:
            break  # Python's error names a missing one
        by_position.append(named.pop(name))
    if any(map(_is_rest, parameters.values())):
        named |= {name: _defer_source(spark, name, frame) for name in declared if name not in explicit}
    return query(*by_position, **named)


def _defer_source(spark: SparkSession, name: str, frame: Callable[[str], DataFrame | None]) -> DataFrame:
    """Return the frame of a source, created at its first use, which raises NoDataError without a schema."""

    def make() -> DataFrame:
        source = frame(name)
        if source is None:
            raise NoDataError(name)
        return source

    return defer(spark, make)


def _parameters(query: Callable[..., Any]) -> dict[str, PythonParameter]:
    """Return the parameters of a function; `**tables` for one that does not show them."""
    try:
        parameters = inspect.signature(query).parameters
    except (TypeError, ValueError):
        return {"tables": PythonParameter("tables", PythonParameter.VAR_KEYWORD)}
    return {name: one for name, one in parameters.items() if one.kind != PythonParameter.VAR_POSITIONAL}


def _is_rest(parameter: PythonParameter) -> bool:
    """Return whether a parameter takes the sources that no other parameter names."""
    return parameter.kind == PythonParameter.VAR_KEYWORD
