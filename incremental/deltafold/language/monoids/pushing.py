"""Move the calls of declared monoids into the group-by whose collected list they fold.

Spark analyses a SQL function of an aggregate as a projection, or a filter for HAVING, above the group-by. Within the
group-by the call is one aggregate, which a state can keep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from deltafold.algebra.monoids.declared import DeclaredMonoid
from deltafold.language.inner_plans import replace_inner_plans
from deltafold.language.monoids.calls import find_fold, find_monoid
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J


def push_folds(spark: SparkSession, plan: J, monoids: Mapping[str, DeclaredMonoid]) -> J:
    """Return an analysed plan with the calls of monoids in its group-bys; the same plan without monoids."""
    return _Pushing(spark, monoids).rewrite(plan) if monoids else plan


class _Pushing:
    """Rewrites plans of one session."""

    def __init__(self, spark: SparkSession, monoids: Mapping[str, DeclaredMonoid]) -> None:
        self._spark, self._monoids = spark, monoids
        self._logical: J = catalyst.catalyst(spark).plans.logical

    def rewrite(self, node: J) -> J:
        """Return a plan with its calls pushed, inputs and subqueries first."""
        old = catalyst.sequence(node.children())
        new = [self.rewrite(child) for child in old]
        if any(a is not b for a, b in zip(old, new, strict=True)):
            node = node.withNewChildren(catalyst.vector(self._spark, new))
        node = replace_inner_plans(self._spark, node, lambda plan, _: self.rewrite(plan))
        return self._push(node) if catalyst.kind(node) in ("Project", "Filter") else node

    def _push(self, node: J) -> J:
        """Return a projection or a filter that reads the calls from the group-by below it."""
        output, is_filter = node.output(), catalyst.kind(node) == "Filter"
        expressions, child = catalyst.sequence(node.expressions()), node.child()
        calls = [part for e in expressions for part in catalyst.subexpressions(e) if find_monoid(part, self._monoids)]
        for call in calls:
            if (found := self._into(child, call)) is not None:
                child, value = found
                expressions = [self._replace(e, {call: value}) for e in expressions]
        if child is node.child():
            return node
        if not is_filter:
            return self._logical.Project(catalyst.vector(self._spark, expressions), child)
        return self._logical.Project(output, self._logical.Filter(expressions[0], child))

    def _into(self, node: J, call: J) -> tuple[J, J] | None:
        """Return a node that has the call as a column, and that column; None if no group-by below collects its list."""
        match catalyst.kind(node):
            case "Filter":
                found = self._into(node.child(), call)
                return found and (node.withNewChildren(catalyst.vector(self._spark, [found[0]])), found[1])
            case "Project":
                items = catalyst.sequence(node.projectList())
                found = self._into(node.child(), self._over(call, items))
                return found and (self._logical.Project(self._extend(items, found[1]), found[0]), found[1])
            case "Aggregate":
                items = catalyst.sequence(node.aggregateExpressions())
                fold = find_fold(self._over(call, items), self._monoids)
                if fold is None:
                    return None
                column = catalyst.alias(self._spark, fold.call, self._fresh(fold.monoid.name, fold.call))
                outputs = self._extend(items, column)
                grouped = self._logical.Aggregate(node.groupingExpressions(), outputs, node.child(), node.hint())
                return grouped, column.toAttribute()
            case _:
                return None

    def _over(self, call: J, items: Sequence[J]) -> J:
        """Return a call over the definitions of the columns that it reads."""
        return self._replace(call, {i.toAttribute(): i.child() for i in items if catalyst.kind(i) == "Alias"})

    def _replace(self, expression: J, values: Mapping[J, J]) -> J:
        def replace(node: J) -> J | None:
            return next((value for old, value in values.items() if node.semanticEquals(old)), None)

        return catalyst.rewrite(self._spark, expression, replace)

    def _extend(self, items: Sequence[J], column: J) -> J:
        return catalyst.vector(self._spark, [*items, column])

    def _fresh(self, name: str, like: J) -> J:
        identifier = catalyst.new_id(self._spark)
        return catalyst.attribute(self._spark, name, like.dataType(), True, identifier)
