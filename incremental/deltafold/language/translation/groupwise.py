"""Translate operators that Spark applies to each group or partition of rows as a whole into `GroupwiseOp`.

| Catalyst | groups |
| --- | --- |
| Window with PARTITION BY | the rows of a partition |
| Pandas and Arrow functions of groups; sessions | the rows of a group |
| Limit, Offset, global windows | all rows |
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from deltafold.algebra.plan import Column, GroupwiseOp, Item, Plan, Reference
from deltafold.algebra.traversal import pass_columns, project
from deltafold.language.determinism.limits import is_ordered, limit_text
from deltafold.language.determinism.window_ties import remaining_choice
from deltafold.language.names import Names
from deltafold.language.translation.scalars import Scalars
from deltafold.language.translation.shapes import without_alias
from deltafold.language.translation.subqueries import sort_by_rows
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J


def window_op(node: J, child: Plan, names: Names, scalars: Scalars) -> GroupwiseOp:
    """Return the operator of a Window; an expression that it partitions by becomes a column below it."""
    items = [*pass_columns(child.columns)]
    keys: list[Column] = []
    for expression in catalyst.sequence(node.partitionSpec()):
        scalar = scalars.scalar(expression)
        if not isinstance(scalar, Reference):
            items.append(Item(names.expression(expression, "partition"), scalar))
        keys.append(scalar.column if isinstance(scalar, Reference) else items[-1].column)
    expressions = catalyst.sequence(node.windowExpressions())
    produced = tuple(names.column(e.toAttribute()) for e in expressions)
    text = "; ".join(scalars.operator_text(without_alias(e)) for e in expressions)
    below = project(child, tuple(items))
    kind, undetermined = remaining_choice(node)
    return GroupwiseOp(below, kind, tuple(keys), below.columns + produced, text, undetermined, (node,))


def group_function_op(node: J, child: Plan, keys: list[J], computed: J, names: Names, scalars: Scalars) -> GroupwiseOp:
    """Return an operator of Spark's on each group; keys, computed: its group-by expressions, and its results."""
    key_scalars = [scalars.scalar(key) for key in keys]
    columns = tuple(names.column(a) for a in catalyst.sequence(node.output()))
    text = "; ".join(scalars.opaque(without_alias(e)).text for e in catalyst.sequence(computed))
    known = tuple(scalar.column for scalar in key_scalars if isinstance(scalar, Reference))
    return GroupwiseOp(child, "group function", known, columns, text, None, (node,))


def limit_op(spark: SparkSession, node: J, stack: list[J], child: Plan, names: Names, scalars: Scalars) -> GroupwiseOp:
    """Return the operator of a limit; stack: the node and what belongs to it (`limit_stack`), above the child."""
    text = limit_text(stack, scalars, names)
    columns = tuple(names.column(a) for a in catalyst.sequence(node.output()))
    undetermined = None if is_ordered(stack) else "limit without order"
    # a subquery that is equal for all rows would read its empty source
    handle = tuple(sort_by_rows(spark, each) for each in stack)
    return GroupwiseOp(child, "limit", (), columns, text, undetermined, handle)
