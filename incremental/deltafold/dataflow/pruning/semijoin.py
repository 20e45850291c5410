"""Restrict a relation by a semi-join to the rows that touched rows or keys can match.

NULL equals NULL. The right side gets attributes of its own, since a touched row may be from the input that is
restricted.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from deltafold.algebra.plan import Join
from deltafold.algebra.product import EqualKeys
from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.dataflow.pruning.costly import CostlyFilters
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J


class Semijoin:
    """Builds semi-joins over the attributes of one lowering."""

    def __init__(self, lowering: Lowering) -> None:
        self._lowering = lowering
        self._expressions = lowering.catalyst.expressions
        self._costly = CostlyFilters(lowering)

    def touched_rows(self, node: Join, change: Relation) -> DataFrame:
        """Return the rows of a join's right side that were added or removed, without their weights."""
        named = [(column, column.name) for column in node.right.columns]
        return self._lowering.frame(Relation(change.plan), named)

    def matched_rows(self, node: Join, left: Relation, touched: DataFrame, few: bool) -> Relation:
        """Return the rows of the left side that some touched row of the right side matches; few: broadcast them."""
        plan, by_name = self._right_side(node, touched, few)
        if node.condition is None:
            return self._semi(left, plan, [])
        condition = self._lowering.substitute(node.condition, by_name)
        return self._semi(left, plan, [condition], few and bool(node.keys))

    def partners(self, node: Join, right: Relation, touched: DataFrame, few: bool) -> Relation:
        """Return the right rows that can match those of `matched_rows`; all of them if the join has no equality."""
        if not node.keys:
            return right
        plan, by_name = self._right_side(node, touched, few)
        pairs = [(self._lowering.expression(k), self._lowering.substitute(k, by_name)) for _, k, _ in node.keys]
        return self._semi(right, plan, [self._expressions.EqualNullSafe(*pair) for pair in pairs], few)

    def of_keys(self, relation: Relation, keys: Sequence[J], touched: DataFrame, few: bool = False) -> Relation:
        """Return the rows whose key is among the touched ones; `touched` has the keys in the same order."""
        if not keys:
            return relation
        plan, renamed = self._rename(touched, few)
        equals = [self._expressions.EqualNullSafe(*pair) for pair in zip(keys, renamed, strict=True)]
        return self._semi(relation, plan, equals, few)

    def before_costly_filters(
        self, relation: Relation, equalities: Sequence[EqualKeys], touched: DataFrame
    ) -> Relation:
        """Return a relation whose costly filters are evaluated for rows that equal few touched ones; others unchanged.

        equalities: (of a column of `touched`, of one of the relation).
        """
        keys = [self._lowering.expression(other) for _, other in equalities]
        if not keys or not self._costly.has_any(relation.plan, keys):
            return relation
        mine = touched.select(*(self._lowering.over(touched, self._lowering.expression(one)) for one, _ in equalities))
        return self.of_keys(relation, keys, mine, few=True)

    def _right_side(self, node: Join, touched: DataFrame, few: bool) -> tuple[J, dict[str, J]]:
        plan, renamed = self._rename(touched, few)
        return plan, {column.name: a for column, a in zip(node.right.columns, renamed, strict=True)}

    def _rename(self, frame: DataFrame, few: bool) -> tuple[J, list[J]]:
        """Return a frame's plan under new attributes, and these."""
        plan = catalyst.analysed_plan(frame)
        given = catalyst.sequence(plan.output())
        fresh = [self._lowering.fresh(f"touched_{i}", a.dataType()) for i, a in enumerate(given)]
        items = [catalyst.alias(self._lowering.spark, *pair) for pair in zip(given, fresh, strict=True)]
        renamed = self._lowering.project(items, plan)
        return self._lowering.hint(renamed, "BROADCAST") if few else renamed, fresh

    def _semi(self, relation: Relation, other: J, conditions: Sequence[J], cheap: bool = False) -> Relation:
        """Return the rows that fulfil the conditions with some row; cheap: before costly filters of the relation."""
        semi = catalyst.module(self._lowering.catalyst.plans, "LeftSemi")

        def restrict(plan: J, conditions: Sequence[J]) -> J:
            return self._lowering.join_on(Relation(plan), Relation(other), semi, conditions).plan

        if not cheap:
            return Relation(restrict(relation.plan, conditions), relation.weighted)
        return Relation(self._costly.restrict_below(relation.plan, conditions, restrict), relation.weighted)
