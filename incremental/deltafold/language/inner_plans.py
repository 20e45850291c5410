"""Find and replace the plans of the subqueries within the expressions of a Catalyst plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import SparkSession

from deltafold.algebra.errors import QueryError
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

AT_A_VERSION = {"RelationTimeTravel", "RelationChanges"}  # leaves of a parsed plan that contain a table


def has_subquery(spark: SparkSession, expression: J) -> bool:
    """Return whether an expression or a plan contains a subquery."""
    pattern = catalyst.module(catalyst.catalyst(spark).trees, "TreePattern").PLAN_EXPRESSION()
    return bool(expression.containsPattern(pattern))


def subqueries(spark: SparkSession, node: J) -> list[J]:
    """Return the subqueries within the expressions of one node."""
    if not has_subquery(spark, node):
        return []
    parts = [part for e in catalyst.sequence(node.expressions()) for part in catalyst.subexpressions(e)]
    return [part for part in parts if catalyst.is_a(spark, part, "expressions.SubqueryExpression")]


def inner_plans(spark: SparkSession, node: J) -> list[J]:
    """Return the plans of the subqueries within the expressions of one node."""
    return [subquery.plan() for subquery in subqueries(spark, node)]


def replace_children(spark: SparkSession, node: J, replace: Callable[[J], J]) -> J:
    """Return a node over other inputs; the same node if `replace` returns each input unchanged."""
    old = catalyst.sequence(node.children())
    new = [replace(child) for child in old]
    unchanged = all(a is b for a, b in zip(old, new, strict=True))
    return node if unchanged else node.withNewChildren(catalyst.vector(spark, new))


def replace_inner_plans(spark: SparkSession, node: J, replace: Callable[[J, J], J]) -> J:
    """Return a node with other subquery plans; `replace` gets the plan of each subquery, and the subquery."""
    replaced = catalyst.module(catalyst.jvm(spark).scala.collection.immutable, "Map").empty()
    for subquery in subqueries(spark, node):
        old = subquery.plan()
        new = replace(old, subquery)
        if new is not old:
            replaced = replaced.updated(subquery, subquery.withNewPlan(new))
    # a Map is a partial function, which Spark expects
    return node if replaced.isEmpty() else node.transformExpressions(replaced)


def replace_all_inner_plans(spark: SparkSession, plan: J, replace: Callable[[J], J]) -> J:
    """Return a plan with the plans of its subqueries replaced, but not those of subqueries in subqueries."""
    if not has_subquery(spark, plan):
        return plan
    plan = replace_children(spark, plan, lambda child: replace_all_inner_plans(spark, child, replace))
    return replace_inner_plans(spark, plan, lambda inner, _: replace(inner))


def replace_relations(spark: SparkSession, plan: J, found: Mapping[int, J]) -> J:
    """Return a parsed plan with other plans for some of its relations; found: by where they begin in the text.

    Raises QueryError for one that is read at a version, which no other plan has.
    """
    match catalyst.kind(plan):
        case "UnresolvedRelation":
            return found.get(int(plan.origin().startIndex().get()), plan)
        case "UnresolvedWith":
            relations = [
                make_common_table(spark, each._1(), replace_relations(spark, each._2(), found), each._3())
                for each in catalyst.sequence(plan.cteRelations())
            ]
            plan = make_with(spark, plan.child(), relations, recursive=bool(plan.allowRecursion()))
        case kind if kind in AT_A_VERSION:
            name = ".".join(map(str, catalyst.sequence(plan.relation().multipartIdentifier())))
            raise QueryError(f"query: it reads {name} at a version of its own. Read it without a version.")
        case _:
            pass
    plan = replace_children(spark, plan, lambda child: replace_relations(spark, child, found))
    return replace_inner_plans(spark, plan, lambda inner, _: replace_relations(spark, inner, found))


def make_common_table(spark: SparkSession, name: J | str, plan: J, limit: J) -> J:
    """Return a common table expression of a parsed WITH; limit: an option, of the levels of a recursion."""
    return catalyst.jvm(spark).scala.Tuple3(name, plan, limit)


def make_with(spark: SparkSession, child: J, relations: Sequence[J], *, recursive: bool) -> J:
    """Return a parsed WITH over its common table expressions; recursive: whether they may name themselves."""
    logical = catalyst.catalyst(spark).plans.logical
    return logical.UnresolvedWith(child, catalyst.vector(spark, relations), recursive)
