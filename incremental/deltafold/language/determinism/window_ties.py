"""Break the ties of window functions by a total order among peers."""

from __future__ import annotations

from pyspark.sql import SparkSession

from deltafold.algebra.plan import GroupwiseKind, Undetermined
from deltafold.language.determinism.order_sensitive_aggregates import (
    EXTREMES_BY,
    OrderSensitiveAggregates,
)
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J
from deltafold.spark.peers import (
    ascending,
    distinguishes_peers,
    ends_at_distance,
    has_own_order,
    is_peer_sensitive,
    is_range,
    put_in_order,
    unwrap,
    window_function,
)


def break_window_ties(spark: SparkSession, node: J) -> J:
    """Return a Window whose functions give one answer: those that distinguish peers in a total order."""
    columns = catalyst.sequence(node.windowExpressions())
    named = [_rewrite_function(spark, column) for column in columns]
    sensitive = [expression for expression in named if distinguishes_peers(expression)]
    if not sensitive and all(a is b for a, b in zip(columns, named, strict=True)):
        return node
    return put_in_order(spark, node, named, sensitive, total_order(spark, node.orderSpec(), node.child()))


def total_order(spark: SparkSession, order: J, child: J) -> J:
    """Return an order followed by all columns that Spark can order."""
    orders = catalyst.sequence(order)
    plain = {int(o.child().exprId().id()) for o in orders if catalyst.kind(o.child()) == "AttributeReference"}
    more = [
        ascending(spark, attribute)
        for attribute in catalyst.sequence(child.output())
        if int(attribute.exprId().id()) not in plain and catalyst.is_orderable(spark, attribute)
    ]
    return catalyst.vector(spark, [*orders, *more])


def _rewrite_function(spark: SparkSession, named: J) -> J:
    """Rewrite a function with an order of its own as in a group."""
    function, frame = window_function(named)
    by_value = is_range(frame) and catalyst.kind(unwrap(function)) in EXTREMES_BY | {"Mode"}
    if not by_value and not has_own_order(function):
        return named
    rewritten = OrderSensitiveAggregates(spark, by_order=True).rewrite_call(function)
    return catalyst.rewrite(spark, named, lambda part: rewritten if part.equals(function) else None)


def remaining_choice(window: J) -> tuple[GroupwiseKind, Undetermined | None]:
    """Return the kind of a window after tie breaking, and the reason if its answer is still not determined."""
    functions = [window_function(column) for column in catalyst.sequence(window.windowExpressions())]
    if window.orderSpec().isEmpty() and any(catalyst.kind(function) == "RowNumber" for function, _ in functions):
        return "limit", "limit without order"  # Spark's form of a limit in a correlated subquery
    is_open = any(ends_at_distance(frame) and is_peer_sensitive(function) for function, frame in functions)
    return "window", "peers at a frame's edge" if is_open else None
