"""Language room: Catalyst's own rules as «unnest and normalise». In: an analysed plan. Out: its normal form.

This is the step of that name in MRQL (section 6).
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from incremental.spark.catalyst import J, catalyst, module

PULL_UP = "optimizer:PullupCorrelatedPredicates"
# Subqueries, set operations, DISTINCT and common table expressions become joins, aggregates and unions.
UNNESTING = (
    "analysis:EliminateSubqueryAliases",
    "expressions:EliminatePipeOperators",
    "optimizer:ReplaceExpressions",
    "optimizer:RewriteNonCorrelatedExists",
    "optimizer:PullOutGroupingExpressions",
    PULL_UP,
    "optimizer:ReplaceIntersectWithSemiJoin",
    "optimizer:ReplaceExceptWithFilter",
    "optimizer:ReplaceExceptWithAntiJoin",
    "optimizer:RewriteExceptAll",
    "optimizer:RewriteIntersectAll",
    "optimizer:ReplaceDistinctWithAggregate",
    "optimizer:ReplaceDeduplicateWithAggregate",
    "optimizer:RewriteWithExpression",
    "optimizer:EliminateLimits",  # of what has no more rows than that: any order will do
)
# Each of these may bring a subquery of a subquery to light, whose own correlation is still inside it.
SUBQUERIES = (
    "optimizer:OptimizeOneRowRelationSubquery",
    "optimizer:RewritePredicateSubquery",
    PULL_UP,
    "optimizer:RewriteLateralSubquery",
    PULL_UP,
    "optimizer:RewriteCorrelatedScalarSubquery",
)
MOST_ROUNDS = 8
# What only names, hints or orders rows.
TRANSPARENT = {
    "View", "SubqueryAlias", "ResolvedHint", "Repartition", "RepartitionByExpression", "Sort", "RebalancePartitions",
}  # fmt: skip
# Comma joins come as products under a filter; these bring the keys into the joins and drop unused columns.
SIMPLIFYING = (
    "optimizer:PushDownPredicates",
    "optimizer:ColumnPruning",
    "optimizer:CollapseProject",
    "optimizer:RemoveNoopOperators",
)


def rule(spark: SparkSession, name: str) -> J:
    """Catalyst's rule of a name above: its package and object."""
    room, rule_name = name.split(":")
    return module(getattr(catalyst(spark), room), rule_name)


def inlined(spark: SparkSession, plan: J) -> J:
    """The plan with each common table expression where it is used."""
    return catalyst(spark).optimizer.InlineCTE(True, False).apply(plan)


def normal_form(spark: SparkSession, plan: J) -> J:
    """The plan without common table expressions after Catalyst's rules: unnesting, push-down and pruning, in order."""
    # a subquery within a subquery shows itself when the outer one has become a join
    plan = repeated(plan, [rule(spark, name) for name in UNNESTING + SUBQUERIES])
    plan = repeated(plan, [rule(spark, name) for name in SIMPLIFYING])
    return rule(spark, "analysis:EliminateSubqueryAliases").apply(plan)


def repeated(plan: J, rules: list[J]) -> J:
    """The plan after rules in their order, again and again until nothing changes."""
    for _ in range(MOST_ROUNDS):
        before = plan
        for each in rules:
            plan = each.apply(plan)
        if plan.fastEquals(before):
            break
    return plan
