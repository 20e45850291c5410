"""Translate uncorrelated scalar subqueries to plans with exactly one row (D-038).

They are joined where a projection, a condition or a group-by reads them; elsewhere they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from deltafold.algebra.errors import QueryError
from deltafold.algebra.plan import Plan
from deltafold.algebra.traversal import source_names
from deltafold.language.inner_plans import has_subquery, inner_plans
from deltafold.language.normalise import TRANSPARENT, normal_form
from deltafold.language.translation.scalars import without_alias
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J


def one_row(spark: SparkSession, node: J) -> J:
    """Return a scalar subquery's plan with exactly one row: NULL for no row, an error for several, as in Spark."""
    below = node
    while catalyst.kind(below) in ("Project", *TRANSPARENT):
        below = below.child()
    if catalyst.kind(below) == "Aggregate" and below.groupingExpressions().isEmpty():
        return node
    if catalyst.kind(node) == "GlobalLimit" and all(e.foldable() for e in _outputs(node.child().child())):
        node = node.child().child()  # EXISTS, as Spark writes it: all rows are equal, so one suffices
        single = "min({0})"
    else:
        error = "raise_error('a subquery used as an expression gave more than one row')"
        # maps and variants have no minimum; over a single row any aggregate gives its value
        pick = "min({0})" if catalyst.is_orderable(spark, node.output().apply(0)) else "max_by({0}, 1)"
        single = f"if(count(1) > 1, {error}, {pick})"
    frame = catalyst.frame(spark, node)
    return normal_form(spark, catalyst.analysed_plan(frame.agg(F.expr(single.format(f"`{frame.columns[0]}`")))))


def row_dependent_plans(spark: SparkSession, node: J) -> list[J]:
    """Return the plans of a node's subqueries, without those of orders in a Sort that are equal for every row."""
    if catalyst.kind(node) != "Sort":
        return inner_plans(spark, node)
    return inner_plans(spark, node) if any(has_subquery(spark, order) for order in _row_dependent_orders(node)) else []


def sort_by_rows(spark: SparkSession, node: J) -> J:
    """Return a Sort without the orders that are equal for every row; any other node as it is."""
    if catalyst.kind(node) != "Sort" or len(orders := _row_dependent_orders(node)) == node.order().size():
        return node
    sort = catalyst.catalyst(spark).plans.logical.Sort
    all_rows = True
    return sort(catalyst.vector(spark, orders), all_rows, node.child(), node.hint())


def _row_dependent_orders(sort: J) -> list[J]:
    """Return the orders of a Sort that differ between rows: those that are more than a subquery."""
    return [order for order in catalyst.sequence(sort.order()) if catalyst.kind(order.child()) != "ScalarSubquery"]


def leaves_with_subqueries(spark: SparkSession, plan: J) -> Iterator[J]:
    """Yield the leaves of a plan and of the subqueries in its expressions."""
    yield from catalyst.relations_read(plan)
    if has_subquery(spark, plan):
        waiting = [plan]
        while waiting:
            node = waiting.pop()
            waiting += catalyst.sequence(node.children())
            for inner in row_dependent_plans(spark, node):
                yield from leaves_with_subqueries(spark, inner)


def _outputs(node: J) -> list[J]:
    """Return the expressions of a projection; the columns of another node."""
    if catalyst.kind(node) != "Project":
        return catalyst.sequence(node.output())
    return [without_alias(named) for named in catalyst.sequence(node.projectList())]


def check_complete(spark: SparkSession, normal: Sequence[J], relations: Mapping[int, str], algebra: Plan) -> None:
    """Raise QueryError for a source that is read in a part that is not translated: its changes would be missed."""
    leaves = (leaf for plan in normal for leaf in leaves_with_subqueries(spark, plan))
    numbers = {int(leaf.rdd().id()) for leaf in leaves if catalyst.kind(leaf) == "LogicalRDD"}
    unseen = {relations[number] for number in numbers if number in relations} - set(source_names(algebra))
    if unseen:
        raise QueryError(
            f"query: it reads {', '.join(sorted(unseen))} in a place that has no incremental rule. "
            "Write it as a join, or as a view of its own that is declared as a source."
        )
