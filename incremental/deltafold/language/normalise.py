"""Normalise an analysed plan by Catalyst's own rules: the step «unnest and normalise» of MRQL (section 6)."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from deltafold.language.inner_plans import replace_all_inner_plans
from deltafold.spark.catalyst import J, catalyst, module

PULL_UP = "optimizer:PullupCorrelatedPredicates"
# LATERAL explode(m) becomes a generator over the rows, not a join, for which a map or VARIANT has no equality
ONE_ROW = "optimizer:OptimizeOneRowRelationSubquery"
# Subqueries, set operations, DISTINCT and common table expressions become joins, aggregates and unions.
UNNESTING = (
    "analysis:EliminateSubqueryAliases",
    "expressions:EliminatePipeOperators",
    "optimizer:ReplaceExpressions",
    "optimizer:RewriteNonCorrelatedExists",
    "optimizer:PullOutGroupingExpressions",
    ONE_ROW,
    PULL_UP,
    "optimizer:ReplaceIntersectWithSemiJoin",
    "optimizer:ReplaceExceptWithFilter",
    "optimizer:ReplaceExceptWithAntiJoin",
    "optimizer:RewriteExceptAll",
    "optimizer:RewriteIntersectAll",
    "optimizer:ReplaceDistinctWithAggregate",
    "optimizer:ReplaceDeduplicateWithAggregate",
    "optimizer:RewriteWithExpression",
    "optimizer:EliminateLimits",  # an order of a one-row input has no effect
)
# Each of these may expose a subquery of a subquery, which still contains its own correlation.
SUBQUERIES = (
    ONE_ROW,
    "optimizer:RewritePredicateSubquery",
    PULL_UP,
    "optimizer:RewriteLateralSubquery",
    PULL_UP,
    "optimizer:RewriteCorrelatedScalarSubquery",
)
MOST_ROUNDS = 8
ALWAYS_INLINE = True  # arguments of Spark's InlineCTE
KEEP_DANGLING = False
# nodes that only name, hint or order rows
TRANSPARENT = {
    "View", "SubqueryAlias", "ResolvedHint", "Repartition", "RepartitionByExpression", "Sort", "RebalancePartitions",
}  # fmt: skip
# Comma joins arrive as products under a filter; these rules move the keys into the joins and drop unused columns.
# An outer join becomes an inner one where a filter drops its unmatched rows (a comparison with a scalar subquery, say).
SIMPLIFYING = (
    "optimizer:EliminateOuterJoin",
    "optimizer:PushDownPredicates",
    "optimizer:ColumnPruning",
    "optimizer:CollapseProject",
    "optimizer:RemoveNoopOperators",
)


def inline_common_tables(spark: SparkSession, plan: J) -> J:
    """Return the plan with each common table expression inlined where it is used."""
    return catalyst(spark).optimizer.InlineCTE(ALWAYS_INLINE, KEEP_DANGLING).apply(plan)


def normal_form(spark: SparkSession, plan: J) -> J:
    """Return the plan after Catalyst's rules: unnesting, push-down and pruning, in order."""
    # a subquery within a subquery appears once the outer one has become a join
    plan = _apply_repeatedly(plan, [_rule(spark, name) for name in UNNESTING + SUBQUERIES])
    plan = _apply_repeatedly(plan, [_rule(spark, name) for name in SIMPLIFYING])
    return _rule(spark, "analysis:EliminateSubqueryAliases").apply(plan)


@dataclass(frozen=True)
class _PullUp:
    """Catalyst's rule that pulls the correlation of subqueries up to them, also of those within subqueries.

    Spark optimises each subquery separately, by this rule too; for a subquery that has become a join it is too late.
    """

    spark: SparkSession
    rule: J

    def apply(self, plan: J) -> J:
        """Return the plan after the rule, the outer subqueries first."""
        return replace_all_inner_plans(self.spark, self.rule.apply(plan), self.apply)


def _rule(spark: SparkSession, name: str) -> J | _PullUp:
    """Return Catalyst's rule by its package and object."""
    package, rule_name = name.split(":")
    rule = module(getattr(catalyst(spark), package), rule_name)
    return _PullUp(spark, rule) if name == PULL_UP else rule


def _apply_repeatedly(plan: J, rules: list[J | _PullUp]) -> J:
    """Apply rules in their order until nothing changes."""
    for _ in range(MOST_ROUNDS):
        before = plan
        for rule in rules:
            plan = rule.apply(plan)
        if plan.fastEquals(before):
            break
    return plan
