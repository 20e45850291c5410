"""Break the ties of a query, so that any two runs over the same rows give the same answer (D-013).

| query | ties are broken by |
| --- | --- |
| row_number, lag, lead, ntile, ROWS frames | all columns of the row, after the window's own order |
| first, last, nth or listed values of a RANGE frame | the same, and peers stay in the frame (spark/peers.py) |
| ORDER BY with LIMIT or OFFSET | all columns of the row, after its own order |
| aggregates that take one of several rows | order_sensitive_aggregates.py |

The same applies to subqueries. The view has these answers, and so has the batch query that it is verified against.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from deltafold.algebra.monoids.declared import DeclaredMonoid
from deltafold.language.determinism.order_sensitive_aggregates import OrderSensitiveAggregates
from deltafold.language.determinism.window_ties import break_window_ties, total_order
from deltafold.language.inner_plans import replace_children, replace_inner_plans
from deltafold.language.monoids import push_folds
from deltafold.language.normalise import inline_common_tables
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J
from deltafold.spark.peers import order_rows

DEDUPLICATE = "ReplaceDeduplicateWithAggregate"
ABOVE_AN_ORDER = {"Sort", "GlobalLimit", "LocalLimit", "Offset"}
ORDER_PRESERVING = {"GlobalLimit", "LocalLimit", "Offset", "Project", "SubqueryAlias", "Filter", "PipeOperator"}


def break_ties(spark: SparkSession, frame: DataFrame, monoids: Mapping[str, DeclaredMonoid] | None = None) -> DataFrame:
    """Return the batch query with all its ties broken; the same frame if it has none."""
    plan = push_folds(spark, inline_common_tables(spark, catalyst.analysed_plan(frame)), monoids or {})
    determined = _TieBreaking(spark, runs=True).rewrite(plan)
    return frame if determined is plan else catalyst.frame(spark, determined)


def break_ties_before_translation(
    spark: SparkSession, plan: J, monoids: Mapping[str, DeclaredMonoid] | None = None
) -> J:
    """Return the plan to translate: max_by and min_by stay, since their monoids break ties by themselves.

    What orders the rows of windows and limits by identity is added where they run (`spark/peers.py`).
    """
    return _TieBreaking(spark, runs=False).rewrite(push_folds(spark, inline_common_tables(spark, plan), monoids or {}))


class _TieBreaking:
    """Rewrites plans; runs: that Spark runs; correlated: of subqueries that refer to a query around them."""

    def __init__(self, spark: SparkSession, *, runs: bool, correlated: bool = False) -> None:
        self._spark = spark
        self._runs = runs
        self._aggregates = OrderSensitiveAggregates(spark, by_order=runs)
        self._correlated = correlated

    def rewrite(self, node: J) -> J:
        """Return a plan with its ties broken, inputs and subqueries first."""
        node = replace_children(self._spark, node, self.rewrite)
        node = replace_inner_plans(self._spark, node, self._rewrite_inner)
        match catalyst.kind(node):
            case "Aggregate":
                return self._aggregates.rewrite_group_by(node)
            case "Deduplicate":
                deduplicated = catalyst.module(catalyst.catalyst(self._spark).optimizer, DEDUPLICATE).apply(node)
                return self._aggregates.rewrite_group_by(deduplicated)
            case "Window":
                return self._order_windows(break_window_ties(self._spark, node), node.child())
            case "LocalLimit" | "Offset":
                return self._put_beside_order(self._complete_order(node))
            case "GlobalLimit":
                return self._put_beside_order(node)
            case _:
                return node

    def _rewrite_inner(self, plan: J, subquery: J) -> J:
        correlated = not subquery.children().isEmpty()
        return _TieBreaking(self._spark, runs=self._runs, correlated=correlated).rewrite(plan)

    def _order_windows(self, node: J, child: J) -> J:
        """Order the rows of the windows above a child."""
        if not self._runs or node.equals(child):
            return node
        below = self._order_windows(node.child(), child)
        return order_rows(self._spark, node.withNewChildren(catalyst.vector(self._spark, [below])))

    def _put_beside_order(self, node: J) -> J:
        """Move a correlated limit below the projection that drops the columns of its order.

        Otherwise Spark treats it as a limit without an order, and keeps any rows for each outer row.
        """
        below = node.child()
        if not self._correlated or catalyst.kind(below) != "Project":
            return node
        if catalyst.kind(below.child()) not in ABOVE_AN_ORDER:
            return node
        return below.withNewChildren(catalyst.vector(self._spark, [node.withNewChildren(below.children())]))

    def _complete_order(self, node: J) -> J:
        """Extend the order below a limit by all columns."""
        if catalyst.kind(node) == "Sort":
            order = total_order(self._spark, node.order(), node.child())
            if order.size() > node.order().size():
                all_rows = True
                logical: J = catalyst.catalyst(self._spark).plans.logical
                node = logical.Sort(order, all_rows, node.child(), node.hint())
            return order_rows(self._spark, node) if self._runs else node
        if catalyst.kind(node) not in ORDER_PRESERVING:
            return node
        below = self._complete_order(node.child())
        return node if below is node.child() else node.withNewChildren(catalyst.vector(self._spark, [below]))
