"""Find the declared sources that a query may read, before any of them is looked up.

| query | may read |
| --- | --- |
| SQL text | the tables that Spark's parser finds in it, within subqueries and common table expressions too |
| SQL text with a table whose name is computed, or an operator that is not known here | every source |
| SQL text, where the session has SQL functions other than monoids, or a view that it names | every source |
| MRQL | those that its names and paths stand for |
| a function | those that its parameters name; every source where it has `**tables` |

A source too many costs one lookup of its schema. For a source too few, Spark reports an unknown table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.algebra.monoids.declared import MARK
from deltafold.language.mrql.program.query import Mrql
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J, JavaError
from deltafold.spark.deferred_frame import defer
from deltafold.spark.session_state import WRITTEN_IN_SQL, is_temporary_view, temporary_functions

CASE = "spark.sql.caseSensitive"
# leaves of a parsed plan whose tables, if any, are in their expressions
WITHOUT_TABLES = {
    "OneRowRelation", "LocalRelation", "ResolvedInlineTable", "UnresolvedInlineTable", "UnresolvedTableValuedFunction",
}  # fmt: skip
AT_A_VERSION = {"RelationTimeTravel", "RelationChanges"}  # leaves that contain a table
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

    views: those of the names that are views of the session, which may read others where no source has the name.
    """

    names: frozenset[str] = frozenset()
    everything: bool = False
    views: frozenset[str] = frozenset()

    def among(self, declared: Collection[str]) -> tuple[str, ...]:
        """Return the declared sources that the query may read."""
        everything = self.everything or not self.views <= {name.lower() for name in declared}
        return tuple(name for name in declared if everything or name.lower() in self.names)


def find_mentions(spark: SparkSession, query: str | Mrql | Callable[..., DataFrame]) -> Mentions:
    """Return the names in a query; none if Spark cannot parse it, which its analysis reports."""
    if isinstance(query, Mrql):
        return Mentions(query.names)
    if not isinstance(query, str):
        found = parameters(query)
        named = frozenset(name.lower() for name, parameter in found.items() if not is_rest(parameter))
        return Mentions(named, any(map(is_rest, found.values())))
    try:
        plan = catalyst.parse_plan(spark, query)
    except JavaError:
        return Mentions()
    found = frozenset(tables(plan, str(spark.conf.get(CASE)) == "true"))
    names, computed = found - {COMPUTED}, COMPUTED in found
    views = frozenset(name for name in names if is_temporary_view(spark, name))
    return Mentions(names, computed or WRITTEN_IN_SQL in temporary_functions(spark, MARK), views)


def tables(plan: J, case_sensitive: bool) -> Iterator[str]:
    """Yield the names of the tables of a parsed plan in lower case; COMPUTED where one cannot be known."""
    waiting: list[tuple[J, frozenset[str]]] = [(plan, frozenset())]  # with the names of common tables around
    while waiting:
        node, common = waiting.pop()
        kind, children = catalyst.kind(node), catalyst.sequence(node.children())
        match kind:
            case "UnresolvedRelation":
                *schema, name = map(str, catalyst.sequence(node.multipartIdentifier()))
                if schema or fold_case(name, case_sensitive) not in common:
                    yield name.lower()
            case "UnresolvedWith":
                for each in catalyst.sequence(node.cteRelations()):
                    waiting.append((each._2(), common))
                    common = common | {fold_case(str(each._1()), case_sensitive)}
                waiting += [(child, common) for child in children]
            case _ if kind in AT_A_VERSION:
                waiting.append((node.relation(), common))
            case _:
                if kind == NAMELESS or not (children or kind in WITHOUT_TABLES):
                    yield COMPUTED
                inner = catalyst.sequence(node.innerChildren())  # the subqueries of its expressions
                waiting += [(each, common) for each in (*children, *inner)]


def fold_case(name: str, case_sensitive: bool) -> str:
    """Return a name as Spark compares it with that of a common table expression."""
    return name if case_sensitive else name.lower()


def call_query(
    spark: SparkSession,
    query: Callable[..., DataFrame],
    declared: Iterable[str],
    frame: Callable[[str], DataFrame | None],
) -> object:
    """Call a query function with the sources that its parameters name; `**tables` looks sources up when used."""
    explicit = {name: each for name, each in parameters(query).items() if not is_rest(each)}
    named = {name: made for name in declared if name in explicit and (made := frame(name)) is not None}
    for name in declared:
        if name in explicit and name not in named and explicit[name].default is PythonParameter.empty:
            raise NoDataError(name)
    given = list[DataFrame]()
    for name, parameter in explicit.items():
        if parameter.kind != PythonParameter.POSITIONAL_ONLY or name not in named:
            break  # by position, as far as given: Python's error names a missing one
        given.append(named.pop(name))
    if any(map(is_rest, parameters(query).values())):
        named |= {name: defer_source(spark, name, frame) for name in declared if name not in explicit}
    return query(*given, **named)


def defer_source(spark: SparkSession, name: str, frame: Callable[[str], DataFrame | None]) -> DataFrame:
    """Return the frame of a source, created at its first use, which raises NoDataError without a schema."""

    def make() -> DataFrame:
        found = frame(name)
        if found is None:
            raise NoDataError(name)
        return found

    return defer(spark, make)


def parameters(query: Callable[..., Any]) -> dict[str, PythonParameter]:
    """Return the parameters of a function; `**tables` for one that does not show them."""
    try:
        found = inspect.signature(query).parameters
    except (TypeError, ValueError):
        return {"tables": PythonParameter("tables", PythonParameter.VAR_KEYWORD)}
    return {name: each for name, each in found.items() if each.kind != PythonParameter.VAR_POSITIONAL}


def is_rest(parameter: PythonParameter) -> bool:
    """Return whether a parameter takes the sources that no other parameter names."""
    return parameter.kind == PythonParameter.VAR_KEYWORD
