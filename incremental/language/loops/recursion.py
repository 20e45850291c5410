"""Read SQL's `WITH RECURSIVE … UNION` as a fixpoint, since Spark has the UNION ALL form alone.

Each such relation of the parsed text is replaced by the answer of a fixpoint: init is the union of the branches that do
not name the relation, the step that of those which do. For one reference in a branch this is SQL's meaning; with
several it is the least fixpoint (PostgreSQL refuses those).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

from incremental.algebra.errors import QueryError
from incremental.language.loops.functions import recursive_union
from incremental.language.mentions import CASE, tables
from incremental.spark import catalyst
from incremental.spark.catalyst import J, JavaError


def run_sql(spark: SparkSession, text: str) -> DataFrame:
    """Return the frame of a query text."""
    try:
        plan = catalyst.parse_plan(spark, text)
    except JavaError:
        return cast(Any, spark).sql(text)  # whose message says where
    read = _Unions(spark).rewrite(plan)
    return cast(Any, spark).sql(text) if read is plan else catalyst.frame(spark, read)


@dataclass(frozen=True)
class _Recursion:
    """One relation that is defined by UNION and names itself; columns: its names for them, if it has any."""

    name: str
    columns: tuple[str, ...]
    limit: int | None
    anchors: tuple[J, ...]
    terms: tuple[J, ...]


class _Unions:
    """Rewrites parsed plans in one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._logical: J = catalyst.catalyst(spark).plans.logical
        self._case_sensitive = str(spark.conf.get(CASE)) == "true"

    def rewrite(self, node: J) -> J:
        """Return a parsed plan without recursion by UNION, the same plan if it has none."""
        old = catalyst.sequence(node.children())
        new = [self.rewrite(child) for child in old]
        if any(a is not b for a, b in zip(old, new, strict=True)):
            node = node.withNewChildren(catalyst.vector(self._spark, new))
        if catalyst.kind(node) != "UnresolvedWith" or not node.allowRecursion():
            return node
        if self._spark.version.startswith("4.0."):
            raise QueryError("WITH RECURSIVE: Spark 4.0 lacks it. Write a function with fixpoint(), or use Spark 4.1.")
        relations, found = list[J](), False
        for relation in catalyst.sequence(node.cteRelations()):
            recursion = self._recursion(relation)
            found = found or recursion is not None
            relations.append(relation if recursion is None else self._answer(recursion, relations))
        return self._with(node.child(), relations) if found else node

    def _recursion(self, relation: J) -> _Recursion | None:
        body, columns = relation._2().child(), ()
        if catalyst.kind(body) == "UnresolvedSubqueryColumnAliases":
            columns, body = tuple(map(str, catalyst.sequence(body.outputColumnNames()))), body.child()
        if catalyst.kind(body) != "Distinct":
            return None
        branches, name = self._branches(body), str(relation._1())
        recursive = [self._mentions(branch, name) for branch in branches]
        if not any(recursive) or all(recursive):
            return None
        pairs = [*zip(branches, recursive, strict=True)]
        anchors, terms = (tuple(branch for branch, recurs in pairs if recurs is which) for which in (False, True))
        limit = catalyst.option(relation._3())
        return _Recursion(name, columns, None if limit is None else int(limit), anchors, terms)

    def _branches(self, node: J) -> list[J]:
        """Return the branches of unions below a UNION, which drops duplicates of all of them."""
        if catalyst.kind(node) == "Distinct" and catalyst.kind(node.child()) == "Union":
            node = node.child()
        if catalyst.kind(node) != "Union":
            return [node]
        return [branch for child in catalyst.sequence(node.children()) for branch in self._branches(child)]

    def _mentions(self, plan: J, name: str) -> bool:
        return name.lower() in tables(plan, self._case_sensitive)

    def _answer(self, recursion: _Recursion, before: Sequence[J]) -> J:
        """Return the relation with the fixpoint as its definition; before: the relations that it may read."""
        init = self._frame(recursion.anchors, before)
        if recursion.columns:
            init = init.toDF(*recursion.columns)

        def step(rows: DataFrame) -> DataFrame:
            return self._frame(recursion.terms, [*before, self._relation(recursion.name, rows)])

        return self._relation(recursion.name, recursive_union(recursion.name, init, step, recursion.limit))

    def _frame(self, branches: Sequence[J], relations: Sequence[J]) -> DataFrame:
        plan = branches[0]
        if len(branches) > 1:
            plan = self._logical.Union(catalyst.vector(self._spark, branches), False, False)
        return catalyst.frame(self._spark, self._with(plan, relations) if relations else plan)

    def _relation(self, name: str, rows: DataFrame) -> J:
        """Return a common table expression of this name that gives these rows."""
        alias = catalyst.module(self._logical, "SubqueryAlias").apply(name, catalyst.analysed_plan(rows))
        return catalyst.jvm(self._spark).scala.Tuple3(name, alias, catalyst.none(self._spark))

    def _with(self, child: J, relations: Sequence[J]) -> J:
        return self._logical.UnresolvedWith(child, catalyst.vector(self._spark, relations), True)
