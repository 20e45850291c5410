"""Read SQL's `WITH RECURSIVE … UNION` as a fixpoint, since Spark only has the UNION ALL form (D-082).

Each such relation of the parsed text, in any WITH, is replaced by the answer of a fixpoint: init is the union of the
branches that do not name the relation, the step is the union of those that do. For one reference in a branch this is
SQL's meaning; with several references it is the least fixpoint (PostgreSQL refuses those). Init and step are analysed
as queries of their own, below the WITHs around them: they read common table expressions, but no columns, of a query
around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from deltafold.algebra.errors import QueryError
from deltafold.language.inner_plans import make_common_table, make_with, replace_children, replace_inner_plans
from deltafold.language.loops.functions import recursive_union
from deltafold.language.mentions import CASE, find_tables
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J, JavaError

KEYWORD = "recursive"
BY_NAME = ALLOW_MISSING = False  # arguments of Spark's Union
UNKNOWN_COLUMN = "UNRESOLVED_COLUMN"


def run_sql(spark: SparkSession, text: str) -> DataFrame:
    """Return the frame of a query text."""
    if KEYWORD not in text.lower():
        return cast(Any, spark).sql(text)
    try:
        plan = catalyst.parse_plan(spark, text)
    except JavaError:
        return cast(Any, spark).sql(text)  # whose message cites the position
    read = _Unions(spark).rewrite(plan, _Around())
    return cast(Any, spark).sql(text) if read is plan else catalyst.frame(spark, read)


def run_plan(spark: SparkSession, plan: J, text: str) -> DataFrame:
    """Return the frame of a parsed plan; text: the query that it was parsed from."""
    return catalyst.frame(spark, _Unions(spark).rewrite(plan, _Around()) if KEYWORD in text.lower() else plan)


@dataclass(frozen=True)
class _CommonTables:
    """The relations of one WITH; recursive: whether they may name themselves."""

    relations: tuple[J, ...]
    recursive: bool


def _common_tables(node: J) -> _CommonTables:
    """Return the relations of a WITH of the parsed text."""
    return _CommonTables(tuple(catalyst.sequence(node.cteRelations())), bool(node.allowRecursion()))


@dataclass(frozen=True)
class _Around:
    """The context of a part of a query.

    withs: the outermost first; looping: the relations, in lower case, that the part is in a recursive branch of, by
    UNION ALL; in_subquery: whether Spark lets the part refer to the columns of a query around it.
    """

    withs: tuple[_CommonTables, ...] = ()
    looping: frozenset[str] = frozenset()
    in_subquery: bool = False

    def adding(self, relation: J) -> _Around:
        """Return the same with one more relation in the innermost WITH."""
        *outer, inner = self.withs
        return replace(self, withs=(*outer, replace(inner, relations=(*inner.relations, relation))))


@dataclass(frozen=True, kw_only=True)
class _Recursion:
    """One relation that is defined by UNION and names itself.

    columns: its names for them, if it has any; withs: those that its definition begins with.
    """

    name: str
    columns: tuple[str, ...]
    limit: int | None
    withs: tuple[J, ...]
    anchors: tuple[J, ...]
    terms: tuple[J, ...]


class _Unions:
    """Rewrites parsed plans in one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._logical: J = catalyst.catalyst(spark).plans.logical
        self._case_sensitive = str(spark.conf.get(CASE)) == "true"

    def rewrite(self, node: J, around: _Around) -> J:
        """Return a parsed plan without recursion by UNION, the same plan if it has none."""
        below = around
        if catalyst.kind(node) == "UnresolvedWith":
            common = _common_tables(node)
            below = self._enter(common, around)
            if any(a is not b for a, b in zip(common.relations, below.withs[-1].relations, strict=True)):
                node = self._with(node.child(), below.withs[-1])
        node = replace_children(self._spark, node, lambda child: self.rewrite(child, below))
        inner = replace(below, in_subquery=True)
        return replace_inner_plans(self._spark, node, lambda plan, _: self.rewrite(plan, inner))

    def _enter(self, common: _CommonTables, around: _Around) -> _Around:
        """Return the context of the query of a WITH; each of its relations reads those before it."""
        if common.recursive and self._spark.version.startswith("4.0."):
            raise QueryError("WITH RECURSIVE: Spark 4.0 lacks it. Write a function with fixpoint(), or use Spark 4.1.")
        below = replace(around, withs=(*around.withs, _CommonTables((), common.recursive)))
        for relation in common.relations:
            below = below.adding(self._rewrite_relation(relation, below))
        return below

    def _rewrite_relation(self, relation: J, around: _Around) -> J:
        """Return a common table expression without recursion by UNION."""
        name = str(relation._1())
        body = relation._2()
        if around.withs[-1].recursive and self._mentions(body, name):
            if recursion := self._recursion(relation):
                return self._answer(recursion, around)
            around = replace(around, looping=around.looping | {name.lower()})
        new = self.rewrite(body, around)
        return relation if new is body else make_common_table(self._spark, name, new, relation._3())

    def _recursion(self, relation: J) -> _Recursion | None:
        """Return the recursion of a relation that names itself, None for one by UNION ALL, or without an end."""
        body = relation._2().child()
        name = str(relation._1())
        columns: tuple[str, ...] = ()
        withs = list[J]()
        if catalyst.kind(body) == "UnresolvedSubqueryColumnAliases":
            columns = tuple(map(str, catalyst.sequence(body.outputColumnNames())))
            body = body.child()
        while catalyst.kind(body) == "UnresolvedWith":
            withs.append(body)
            body = body.child()
        if catalyst.kind(body) != "Distinct":
            return None
        common_tables = [table for node in withs for table in catalyst.sequence(node.cteRelations())]
        if any(self._mentions(table._2(), name) for table in common_tables):
            raise QueryError(
                f"recursion {name}: the WITH that its definition begins with reads {name}, and so may each branch of "
                f"the UNION below. Move that WITH into the branch that reads {name}."
            )
        branches = self._branches(body)
        recursive = [self._mentions(branch, name) for branch in branches]
        if all(recursive):
            return None
        limit = catalyst.option(relation._3())
        return _Recursion(
            name=name,
            columns=columns,
            limit=None if limit is None else int(limit),
            withs=tuple(withs),
            anchors=tuple(branch for branch, recurs in zip(branches, recursive, strict=True) if not recurs),
            terms=tuple(branch for branch, recurs in zip(branches, recursive, strict=True) if recurs),
        )

    def _branches(self, node: J) -> list[J]:
        """Return the branches of unions below a UNION, which drops duplicates of all of them."""
        if catalyst.kind(node) == "Distinct" and catalyst.kind(node.child()) == "Union":
            node = node.child()
        if catalyst.kind(node) != "Union":
            return [node]
        return [branch for child in catalyst.sequence(node.children()) for branch in self._branches(child)]

    def _mentions(self, plan: J, name: str) -> bool:
        return name.lower() in find_tables(plan, case_sensitive=self._case_sensitive)

    def _answer(self, recursion: _Recursion, around: _Around) -> J:
        """Return the relation with the fixpoint as its definition."""
        init = self._frame(recursion, recursion.anchors, around)
        if recursion.columns:
            init = init.toDF(*recursion.columns)

        def step(rows: DataFrame) -> DataFrame:
            return self._frame(recursion, recursion.terms, around.adding(self._name_rows(recursion.name, rows)))

        return self._name_rows(recursion.name, recursive_union(recursion.name, init, step, recursion.limit))

    def _frame(self, recursion: _Recursion, branches: Sequence[J], around: _Around) -> DataFrame:
        """Return the rows of some branches of a recursion."""
        for node in recursion.withs:
            around = self._enter(_common_tables(node), around)
        plans = [self.rewrite(branch, around) for branch in branches]
        plan = plans[0]
        if len(plans) > 1:
            plan = self._logical.Union(catalyst.vector(self._spark, plans), BY_NAME, ALLOW_MISSING)
        for common in reversed(around.withs):
            plan = self._with(plan, common) if common.relations else plan
        if hidden := around.looping.intersection(find_tables(plan, case_sensitive=self._case_sensitive)):
            outer = min(hidden)
            raise QueryError(
                f"recursion {recursion.name}: it reads {outer} within the UNION ALL of {outer}, which Spark "
                f"evaluates by itself. Move {recursion.name} out of that UNION ALL, or write UNION there, too."
            )
        try:
            return catalyst.frame(self._spark, plan)
        except PySparkException as error:
            if not around.in_subquery or not (error.getCondition() or "").startswith(UNKNOWN_COLUMN):
                raise
            column = (error.getMessageParameters() or {}).get("objectName", "")
            raise QueryError(
                f"recursion {recursion.name}: it has no column {column}, and cannot read one of a query around it, as "
                "in Spark by UNION ALL. Correct the name, or compare that column with the answer of the recursion."
            ) from error

    def _name_rows(self, name: str, rows: DataFrame) -> J:
        """Return a common table expression of this name that gives these rows."""
        alias = catalyst.module(self._logical, "SubqueryAlias").apply(name, catalyst.analysed_plan(rows))
        return make_common_table(self._spark, name, alias, catalyst.none(self._spark))

    def _with(self, child: J, common: _CommonTables) -> J:
        return make_with(self._spark, child, common.relations, recursive=common.recursive)
