"""Language room: what Spark leaves open is settled. In: an analysed batch query. Out: the same with one answer.

`max_by` and `min_by` may take any of several rows with equal orders. The state takes the largest (smallest) value among
them (`algebra/monoids.py`), and so does the batch query that the view is verified against.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from incremental import catalyst
from incremental.catalyst import J

CHOOSING = {"MaxBy", "MinBy"}


def settled(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """The frame with every choice settled; itself where it makes none."""
    plan = catalyst.analysed(frame)
    found = settled_plan(spark, plan)
    return frame if found is plan else catalyst.frame(spark, found)


def settled_plan(spark: SparkSession, plan: J) -> J:
    """The same for a plan: inputs first."""
    old = catalyst.sequence(plan.children())
    new = [settled_plan(spark, child) for child in old]
    if any(a is not b for a, b in zip(old, new, strict=True)):
        plan = plan.withNewChildren(catalyst.vector(spark, new))
    if catalyst.kind(plan) != "Aggregate":
        return plan
    outputs = catalyst.sequence(plan.aggregateExpressions())
    settled_outputs = [catalyst.rewrite(spark, e, lambda node: settled_choice(spark, node)) for e in outputs]
    if all(a is b for a, b in zip(outputs, settled_outputs, strict=True)):
        return plan
    logical = catalyst.catalyst(spark).plans.logical
    vector = catalyst.vector(spark, settled_outputs)
    return logical.Aggregate(plan.groupingExpressions(), vector, plan.child(), plan.hint())


def settled_choice(spark: SparkSession, node: J) -> J | None:
    """The choice ordered by (order, value); NULL orders stay NULL, which the choice passes over."""
    if catalyst.kind(node) not in CHOOSING:
        return None
    expressions = catalyst.catalyst(spark).expressions
    value, order = catalyst.sequence(node.children())[:2]
    literal = catalyst.module(expressions, "Literal")
    fields = [catalyst.parsed(spark, "'o'"), order, catalyst.parsed(spark, "'v'"), value]
    both = expressions.CreateNamedStruct(catalyst.vector(spark, fields))
    either = expressions.If(expressions.IsNull(order), literal.create(None, both.dataType()), both)
    return node.withNewChildren(catalyst.vector(spark, [value, either, *catalyst.sequence(node.children())[2:]]))
