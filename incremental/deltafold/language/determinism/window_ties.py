"""Break the ties of window functions by a total order among peers."""

from __future__ import annotations

from pyspark.sql import SparkSession

from deltafold.algebra.plan import GroupwiseKind, Undetermined
from deltafold.language.determinism.order_sensitive_aggregates import (
    EXTREMES_BY,
    OrderSensitiveAggregates,
    is_orderable,
)
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

EQUAL_FOR_PEERS = {"Rank", "DenseRank", "PercentRank", "CumeDist"}
PEER_SENSITIVE = {"First", "Last", "AnyValue", "NthValue", "CollectList", "ListAgg"}
WITHOUT_ORDER = {"Median", "PercentileCont", "PercentileDisc"}  # Spark allows no ORDER BY in their windows
FROM_START = {"First", "AnyValue"}
FROM_END = {"Last"}
IGNORE_NULLS = False  # an argument of Spark's First and Last


class WindowTies:
    """Rewrites Window nodes so that their functions give one answer."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._expressions: J = catalyst.catalyst(spark).expressions
        self._logical: J = catalyst.catalyst(spark).plans.logical

    def rewrite(self, node: J) -> J:
        """Move functions that distinguish peers to a window of their own with a total order."""
        columns = catalyst.sequence(node.windowExpressions())
        named = [self._rewrite_function(column) for column in columns]
        sensitive = [expression for expression in named if _distinguishes_peers(expression)]
        if not sensitive and all(a is b for a, b in zip(columns, named, strict=True)):
            return node
        order = self.total_order(node.orderSpec(), node.child())
        below = node.child()
        if len(sensitive) < len(named):
            rest = catalyst.vector(self._spark, [expression for expression in named if expression not in sensitive])
            below = self._logical.Window(rest, node.partitionSpec(), node.orderSpec(), below, node.hint())
        to_peers = [expression for expression in sensitive if _ends_at_peers(expression)]
        if len(to_peers) < len(sensitive):
            totally = [self._reorder(e, node.partitionSpec(), order) for e in sensitive if e not in to_peers]
            below = self._logical.Window(
                catalyst.vector(self._spark, totally), node.partitionSpec(), order, below, node.hint()
            )
        return self._include_peers(node, to_peers, order, below) if to_peers else below

    def total_order(self, order: J, child: J) -> J:
        """Return an order followed by all columns that Spark can order."""
        orders = catalyst.sequence(order)
        plain = {int(o.child().exprId().id()) for o in orders if catalyst.kind(o.child()) == "AttributeReference"}
        ascending = catalyst.module(self._expressions, "Ascending")
        nil = catalyst.vector(self._spark, [])
        more = [
            self._expressions.SortOrder(attribute, ascending, ascending.defaultNullOrdering(), nil)
            for attribute in catalyst.sequence(child.output())
            if int(attribute.exprId().id()) not in plain and is_orderable(self._spark, attribute)
        ]
        return catalyst.vector(self._spark, [*orders, *more])

    def _rewrite_function(self, named: J) -> J:
        """Rewrite a function with an order of its own as in a group."""
        function, frame = _window_function(named)
        by_value = _is_range(frame) and catalyst.kind(_unwrap(function)) in EXTREMES_BY | {"Mode"}
        if not by_value and not _has_own_order(function):
            return named
        rewritten = OrderSensitiveAggregates(self._spark, by_order=True).rewrite_call(function)
        return catalyst.rewrite(self._spark, named, lambda part: rewritten if part.equals(function) else None)

    def _reorder(self, named: J, partition: J, order: J) -> J:
        """Return a window function in another order."""

        def respecify(part: J) -> J | None:
            if catalyst.kind(part) != "WindowSpecDefinition":
                return None
            return self._expressions.WindowSpecDefinition(partition, order, part.frameSpecification())

        return catalyst.rewrite(self._spark, named, respecify)

    def _include_peers(self, node: J, named: list[J], order: J, below: J) -> J:
        """Rewrite functions over RANGE frames that end at peers, so that each peer gets the value of the last one.

        A total order alone would leave no peers, and so remove them from the frame.
        """
        partition = node.partitionSpec()
        keys = [order_key.child() for order_key in catalyst.sequence(node.orderSpec())]
        peers = catalyst.vector(self._spark, [*catalyst.sequence(partition), *keys])
        ends = [catalyst.module(self._expressions, f"Unbounded{side}") for side in ("Preceding", "Following")]
        running: list[J] = []
        shared: list[J] = []
        for column in named:
            function, frame = _window_function(column)
            if _is_unbounded(frame.lower()) or _is_unbounded(frame.upper()):
                over_rows = self._over_rows(function, partition, order, [frame.lower(), frame.upper()])
                running.append(catalyst.new_alias(self._spark, over_rows, column.name()))
                edge = "Last" if _is_unbounded(frame.lower()) else "First"
                take = getattr(self._expressions.aggregate, edge)
                function = take(running[-1].toAttribute(), IGNORE_NULLS).toAggregateExpression()
            whole = self._over_rows(function, peers, order, ends)
            shared.append(catalyst.alias(self._spark, whole, column.toAttribute()))
        if running:
            below = self._logical.Window(catalyst.vector(self._spark, running), partition, order, below, node.hint())
        return self._logical.Window(catalyst.vector(self._spark, shared), peers, order, below, node.hint())

    def _over_rows(self, function: J, partition: J, order: J, edges: list[J]) -> J:
        """Return a function over a frame of ROWS."""
        frame = self._expressions.SpecifiedWindowFrame(catalyst.module(self._expressions, "RowFrame"), *edges)
        spec = self._expressions.WindowSpecDefinition(partition, order, frame)
        return self._expressions.WindowExpression(function, spec)


def remaining_choice(window: J) -> tuple[GroupwiseKind, Undetermined | None]:
    """Return the kind of a window after tie breaking, and the reason if its answer is still not determined."""
    functions = [_window_function(column) for column in catalyst.sequence(window.windowExpressions())]
    if window.orderSpec().isEmpty() and any(catalyst.kind(function) == "RowNumber" for function, _ in functions):
        return "limit", "limit without order"  # Spark's form of a limit in a correlated subquery
    is_open = any(_ends_at_distance(frame) and _is_peer_sensitive(function) for function, frame in functions)
    return "window", "peers at a frame's edge" if is_open else None


def _window_function(named: J) -> tuple[J, J]:
    """Return the function of a window's column, and its frame."""
    call = next(node for node in catalyst.subexpressions(named) if catalyst.kind(node) == "WindowExpression")
    return call.windowFunction(), call.windowSpec().frameSpecification()


def _unwrap(function: J) -> J:
    return function.aggregateFunction() if catalyst.kind(function) == "AggregateExpression" else function


def _has_own_order(function: J) -> bool:
    """Return whether a function is a listagg WITHIN GROUP, for which Spark allows no order of the window."""
    return catalyst.kind(_unwrap(function)) == "ListAgg" and not _unwrap(function).orderExpressions().isEmpty()


def _is_peer_sensitive(function: J) -> bool:
    """Return whether a window function may give another value if its peers are reordered."""
    return catalyst.kind(_unwrap(function)) in PEER_SENSITIVE


def _distinguishes_peers(named: J) -> bool:
    function, frame = _window_function(named)
    if catalyst.kind(_unwrap(function)) in EQUAL_FOR_PEERS | WITHOUT_ORDER or _has_own_order(function):
        return False
    return not _is_range(frame) or (_is_peer_sensitive(function) and not _ends_at_distance(frame))


def _ends_at_peers(named: J) -> bool:
    """Return whether a function needs all peers at the end of its RANGE frame, unlike the first value."""
    function, frame = _window_function(named)
    kind = catalyst.kind(_unwrap(function))
    lower = _is_unbounded(frame.lower())
    upper = _is_unbounded(frame.upper())
    if not _is_range(frame) or (lower and upper):
        return False
    if kind in FROM_START | FROM_END and not _unwrap(function).ignoreNulls():
        return not (lower if kind in FROM_START else upper)
    return True


def _is_unbounded(edge: J) -> bool:
    """Return whether a frame reaches the end of its partition at this edge."""
    return catalyst.kind(edge).startswith("Unbounded")


def _is_range(frame: J) -> bool:
    """Return whether a frame is bounded by values, not by a number of rows."""
    return catalyst.kind(frame.frameType()).startswith("Range")


def _ends_at_distance(frame: J) -> bool:
    """Return whether a frame ends at a distance in values, which Spark allows with a single order column only."""
    edges = [catalyst.kind(edge) for edge in (frame.lower(), frame.upper())]
    return _is_range(frame) and not all(edge.startswith(("Unbounded", "CurrentRow")) for edge in edges)
