"""Language room: scalar subqueries without correlation. In: a subquery's plan. Out: a plan with exactly one row.

They are met where a projection, a condition or a group-by reads them; elsewhere they are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from incremental.language.normalise import TRANSPARENT, normal_form
from incremental.language.ranks import is_orderable
from incremental.language.shapes import unaliased
from incremental.spark import catalyst
from incremental.spark.catalyst import J


def one_row(spark: SparkSession, node: J) -> J:
    """A scalar subquery's plan with exactly one row: NULL for none, an error for several, as Spark has it."""
    below = node
    while catalyst.kind(below) in ("Project", *TRANSPARENT):
        below = below.child()
    if catalyst.kind(below) == "Aggregate" and below.groupingExpressions().isEmpty():
        return node
    if catalyst.kind(node) == "GlobalLimit" and all(e.foldable() for e in constants(node.child().child())):
        node = node.child().child()  # EXISTS, as Spark writes it: the first of equal rows is as good as all
        single = "min({0})"
    else:
        error = "raise_error('a subquery used as an expression gave more than one row')"
        # what has no order, a map or a variant, has no least value: of one row any order will do
        pick = "min({0})" if is_orderable(spark, node.output().apply(0)) else "max_by({0}, 1)"
        single = f"if(count(1) > 1, {error}, {pick})"
    frame = catalyst.frame(spark, node)
    return normal_form(spark, catalyst.analysed(frame.agg(F.expr(single.format(f"`{frame.columns[0]}`")))))


def has_subquery(spark: SparkSession, expression: J) -> bool:
    """Whether a query stands within an expression, or a plan."""
    pattern = catalyst.module(catalyst.catalyst(spark).trees, "TreePattern").PLAN_EXPRESSION()
    return bool(expression.containsPattern(pattern))


def subqueries(spark: SparkSession, node: J) -> list[J]:
    """The subqueries within the expressions of one node."""
    if not has_subquery(spark, node):
        return []
    parts = [part for e in catalyst.sequence(node.expressions()) for part in catalyst.subexpressions(e)]
    return [part for part in parts if catalyst.is_a(spark, part, "expressions.SubqueryExpression")]


def inner_plans(spark: SparkSession, node: J) -> list[J]:
    """Their plans."""
    return [subquery.plan() for subquery in subqueries(spark, node)]


def with_inner_plans(spark: SparkSession, node: J, replace: Callable[[J, bool], J]) -> J:
    """A node whose subqueries have other plans, each told with whether it refers to the query around it."""
    replaced = catalyst.module(catalyst.jvm(spark).scala.collection.immutable, "Map").empty()
    for subquery in subqueries(spark, node):
        old = subquery.plan()
        new = replace(old, not subquery.children().isEmpty())
        if new is not old:
            replaced = replaced.updated(subquery, subquery.withNewPlan(new))
    # a Map is a partial function, as Spark wants one
    return node if replaced.isEmpty() else node.transformExpressions(replaced)


def told_by_rows(spark: SparkSession, node: J) -> list[J]:
    """The same, but for an order by the subquery alone: its value is that of every row, whatever it is."""
    if catalyst.kind(node) != "Sort":
        return inner_plans(spark, node)
    return inner_plans(spark, node) if any(has_subquery(spark, order) for order in telling(node)) else []


def telling(sort: J) -> list[J]:
    """What of an order differs between rows: not a subquery alone."""
    return [order for order in catalyst.sequence(sort.order()) if catalyst.kind(order.child()) != "ScalarSubquery"]


def sorted_by_rows(spark: SparkSession, node: J) -> J:
    """A Sort by what differs between rows; any other node as it is."""
    if catalyst.kind(node) != "Sort" or len(orders := telling(node)) == node.order().size():
        return node
    sort = catalyst.catalyst(spark).plans.logical.Sort
    return sort(catalyst.vector(spark, orders), True, node.child(), node.hint())


def leaves(spark: SparkSession, plan: J) -> Iterator[J]:
    """The leaves of a plan, and of all subqueries within its expressions."""
    yield from catalyst.relations_read(plan)
    if has_subquery(spark, plan):
        waiting = [plan]
        while waiting:
            node = waiting.pop()
            waiting += catalyst.sequence(node.children())
            for inner in told_by_rows(spark, node):
                yield from leaves(spark, inner)


def constants(node: J) -> list[J]:
    """What a projection computes; of another node its columns."""
    if catalyst.kind(node) != "Project":
        return catalyst.sequence(node.output())
    return [unaliased(named) for named in catalyst.sequence(node.projectList())]
