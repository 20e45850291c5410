"""Translate operators that Spark applies to each group or partition of rows as a whole into `GroupwiseOp`.

| Catalyst | groups |
| --- | --- |
| Window with PARTITION BY | the rows of a partition |
| Pandas and Arrow functions of groups; sessions | the rows of a group |
| Limit, Offset, global windows | all rows |

A limit includes the orders and projections between its LIMIT and OFFSET nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from deltafold.algebra.plan import Column, GroupwiseOp, Item, Plan, Reference
from deltafold.algebra.traversal import pass_columns, project
from deltafold.language.determinism.window_ties import remaining_choice
from deltafold.language.names import Names
from deltafold.language.translation.scalars import Scalars, without_alias
from deltafold.language.translation.subqueries import sort_by_rows
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

KEYWORDS = {
    "GlobalLimit": "limit",
    "Offset": "offset",
    "Sort": "order by",
    "Project": "project",
}  # a LocalLimit repeats its GlobalLimit


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
    return GroupwiseOp(
        child=below,
        kind=kind,
        keys=tuple(keys),
        columns=below.columns + produced,
        text=text,
        undetermined=undetermined,
        handle=(node,),
    )


def group_function_op(node: J, child: Plan, keys: list[J], computed: J, names: Names, scalars: Scalars) -> GroupwiseOp:
    """Return an operator of Spark's on each group; keys, computed: its group-by expressions, and its results."""
    key_scalars = [scalars.scalar(key) for key in keys]
    columns = tuple(names.column(a) for a in catalyst.sequence(node.output()))
    text = "; ".join(scalars.opaque(without_alias(e)).text for e in catalyst.sequence(computed))
    key_columns = tuple(scalar.column for scalar in key_scalars if isinstance(scalar, Reference))
    return GroupwiseOp(
        child=child,
        kind="group function",
        keys=key_columns,
        columns=columns,
        text=text,
        undetermined=None,
        handle=(node,),
    )


def limit_op(spark: SparkSession, node: J, stack: list[J], child: Plan, names: Names, scalars: Scalars) -> GroupwiseOp:
    """Return the operator of a limit; stack: its nodes above the child, outermost first (`limit_stack`)."""
    text = _limit_text(stack, scalars, names)
    columns = tuple(names.column(a) for a in catalyst.sequence(node.output()))
    undetermined = None if _is_ordered(stack) else "limit without order"
    # a subquery in the order would read a source that is empty here
    handle = tuple(sort_by_rows(spark, part) for part in stack)
    return GroupwiseOp(
        child=child, kind="limit", keys=(), columns=columns, text=text, undetermined=undetermined, handle=handle
    )


def limit_stack(node: J) -> list[J]:
    """Return a limit and the nodes below it that decide which rows it keeps or shows, outermost first."""
    stack: list[J] = []
    while catalyst.kind(node) in ("LocalLimit", *KEYWORDS):
        if catalyst.kind(node) == "Project" and catalyst.kind(node.child()) != "Sort":
            break
        stack.append(node)
        node = node.child()
    return stack


def _is_ordered(stack: Sequence[J]) -> bool:
    """Return whether each limit has an order of its own, or that of a limit below it, whose rows stay in order."""
    deciding = [kind for node in stack if (kind := catalyst.kind(node)) != "Project"]
    return deciding[-1] == "Sort"


def _limit_text(stack: Sequence[J], scalars: Scalars, names: Names) -> str:
    """Return the text of a limit's nodes, without Spark's expression numbers."""
    return ", ".join(text for node in stack if (text := _node_text(node, scalars, names)))


def _node_text(node: J, scalars: Scalars, names: Names) -> str:
    """Return the text of one node; none of a projection that only drops columns, or repeats another node."""
    kind = catalyst.kind(node)
    if kind == "LocalLimit" or (kind == "Project" and all(map(_is_column, catalyst.sequence(node.projectList())))):
        return ""
    texts = [scalars.operator_text(without_alias(expression)) for expression in catalyst.sequence(node.expressions())]
    if kind == "Project":
        columns = [names.column(attribute) for attribute in catalyst.sequence(node.output())]
        texts = [f"{text} AS {column.name}" for text, column in zip(texts, columns, strict=True)]
    return f"{KEYWORDS[kind]} {', '.join(texts)}"


def _is_column(expression: J) -> bool:
    return catalyst.kind(expression) == "AttributeReference"
