"""Window functions and the order of their rows, where their values depend on it (D-013, D-186).

An order by all columns leaves rows that are equal and not identical: 0.0 and -0.0, texts that are equal under a
collation, and rows that differ only in columns that Spark cannot order. A sum of floats depends on the order of all its
rows. Spark takes such rows as they come, so the answer could differ between two refreshes over the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltafold.spark import catalyst
from deltafold.spark.catalyst import J
from deltafold.spark.row_identity import identity_keys

EQUAL_FOR_PEERS = {"Rank", "DenseRank", "PercentRank", "CumeDist"}
PEER_SENSITIVE = {"First", "Last", "AnyValue", "NthValue", "CollectList", "ListAgg"}
WITHOUT_ORDER = {"Median", "PercentileCont", "PercentileDisc"}  # Spark allows no ORDER BY in their windows
FROM_START = {"First", "AnyValue"}
FROM_END = {"Last"}
IGNORE_NULLS = False  # an argument of Spark's First and Last
INEXACT = re.compile("float|double|collate|map<|variant|interval")  # types with values that are equal, not identical


def order_rows(spark: SparkSession, node: J) -> J:
    """Return a Window or a Sort whose answer does not depend on how Spark reads its rows; other nodes as they are.

    Their order must be by all columns that Spark can order, except for functions that give all peers one value. RANGE
    frames that end at a distance keep their order, since Spark allows one column in it.
    """
    match catalyst.kind(node):
        case "Sort":
            if _is_exact(node.child()):
                return node
            more = _further_orders(spark, node.order(), [], catalyst.sequence(node.child().output()))
            order = catalyst.vector(spark, [*catalyst.sequence(node.order()), *more])
            all_rows = True
            return catalyst.catalyst(spark).plans.logical.Sort(order, all_rows, node.child(), node.hint())
        case "Window":
            columns = catalyst.sequence(node.windowExpressions())
            inexact = [column for column in columns if _is_inexact(column)]
            if not inexact and _is_exact(node.child()):
                return node
            sensitive = [column for column in columns if column in inexact or distinguishes_peers(column)]
            used = [part for column in sensitive for part in _columns_of(column)]
            shown = catalyst.sequence(node.child().output()) if any(map(distinguishes_peers, sensitive)) else []
            if not sensitive or not (more := _further_orders(spark, node.orderSpec(), used, shown)):
                return node
            order = catalyst.vector(spark, [*catalyst.sequence(node.orderSpec()), *more])
            return put_in_order(spark, node, columns, sensitive, order)
        case _:
            return node


def put_in_order(spark: SparkSession, node: J, columns: Sequence[J], sensitive: Sequence[J], order: J) -> J:
    """Move the sensitive ones of a Window's functions to windows of their own, in an order that continues its own."""
    logical = catalyst.catalyst(spark).plans.logical
    partition, hint, below = node.partitionSpec(), node.hint(), node.child()
    if len(sensitive) < len(columns):
        rest = catalyst.vector(spark, [column for column in columns if column not in sensitive])
        below = logical.Window(rest, partition, node.orderSpec(), below, hint)
    to_peers = [column for column in sensitive if _ends_at_peers(column)]
    if len(to_peers) < len(sensitive):
        totally = [_reorder(spark, column, partition, order) for column in sensitive if column not in to_peers]
        below = logical.Window(catalyst.vector(spark, totally), partition, order, below, hint)
    return _include_peers(spark, node, to_peers, order, below) if to_peers else below


def ascending(spark: SparkSession, expression: J) -> J:
    """Return the order by an expression, NULLs first."""
    expressions = catalyst.catalyst(spark).expressions
    direction = catalyst.module(expressions, "Ascending")
    return expressions.SortOrder(expression, direction, direction.defaultNullOrdering(), catalyst.vector(spark, []))


def distinguishes_peers(named: J) -> bool:
    """Return whether the value of a window function for a row depends on its place among its peers."""
    function, frame = window_function(named)
    if catalyst.kind(unwrap(function)) in EQUAL_FOR_PEERS | WITHOUT_ORDER or has_own_order(function):
        return False
    return not is_range(frame) or (is_peer_sensitive(function) and not ends_at_distance(frame))


def window_function(named: J) -> tuple[J, J]:
    """Return the function of a window's column, and its frame."""
    call = next(node for node in catalyst.subexpressions(named) if catalyst.kind(node) == "WindowExpression")
    return call.windowFunction(), call.windowSpec().frameSpecification()


def unwrap(function: J) -> J:
    """Return the aggregate function of a call."""
    return function.aggregateFunction() if catalyst.kind(function) == "AggregateExpression" else function


def has_own_order(function: J) -> bool:
    """Return whether a function is a listagg WITHIN GROUP, for which Spark allows no order of the window."""
    return catalyst.kind(unwrap(function)) == "ListAgg" and not unwrap(function).orderExpressions().isEmpty()


def is_peer_sensitive(function: J) -> bool:
    """Return whether a window function may give another value if its peers are reordered."""
    return catalyst.kind(unwrap(function)) in PEER_SENSITIVE


def is_range(frame: J) -> bool:
    """Return whether a frame is bounded by values, not by a number of rows."""
    return catalyst.kind(frame.frameType()).startswith("Range")


def ends_at_distance(frame: J) -> bool:
    """Return whether a frame ends at a distance in values, which Spark allows with a single order column only."""
    edges = [catalyst.kind(edge) for edge in (frame.lower(), frame.upper())]
    return is_range(frame) and not all(edge.startswith(("Unbounded", "CurrentRow")) for edge in edges)


def _is_exact(plan: J) -> bool:
    """Return whether rows of a plan that are equal are identical, found in one call: most windows need no more."""
    return INEXACT.search(str(plan.schema().catalogString())) is None


def _is_inexact(named: J) -> bool:
    """Return whether the value of a function that does not distinguish peers may depend on the order of all rows."""
    function, frame = window_function(named)
    exact = EQUAL_FOR_PEERS | WITHOUT_ORDER | {"Count"}
    if catalyst.kind(unwrap(function)) in exact or has_own_order(function) or ends_at_distance(frame):
        return False
    types = (str(part.dataType().catalogString()) for part in catalyst.subexpressions(function))
    return any(map(INEXACT.search, types))


def _columns_of(named: J) -> list[J]:
    """Return the columns that a window function reads."""
    function, _ = window_function(named)
    return [part for part in catalyst.subexpressions(function) if catalyst.kind(part) == "AttributeReference"]


def _ends_at_peers(named: J) -> bool:
    """Return whether a function needs all peers at the end of its RANGE frame, unlike the first value."""
    function, frame = window_function(named)
    kind = catalyst.kind(unwrap(function))
    lower = _is_unbounded(frame.lower())
    upper = _is_unbounded(frame.upper())
    if not is_range(frame) or (lower and upper):
        return False
    if kind in FROM_START | FROM_END and not unwrap(function).ignoreNulls():
        return not (lower if kind in FROM_START else upper)
    return True


def _is_unbounded(edge: J) -> bool:
    """Return whether a frame reaches the end of its partition at this edge."""
    return catalyst.kind(edge).startswith("Unbounded")


def _reorder(spark: SparkSession, named: J, partition: J, order: J) -> J:
    """Return a window function in another order."""
    specification = catalyst.catalyst(spark).expressions.WindowSpecDefinition

    def respecify(part: J) -> J | None:
        if catalyst.kind(part) != "WindowSpecDefinition":
            return None
        return specification(partition, order, part.frameSpecification())

    return catalyst.rewrite(spark, named, respecify)


def _include_peers(spark: SparkSession, node: J, named: Iterable[J], order: J, below: J) -> J:
    """Rewrite functions over RANGE frames that end at peers, so that each peer gets the value of the last one.

    A total order alone would leave no peers, and so remove them from the frame.
    """
    expressions = catalyst.catalyst(spark).expressions
    window = catalyst.catalyst(spark).plans.logical.Window
    partition = node.partitionSpec()
    keys = [order_key.child() for order_key in catalyst.sequence(node.orderSpec())]
    peers = catalyst.vector(spark, [*catalyst.sequence(partition), *keys])
    ends = [catalyst.module(expressions, f"Unbounded{side}") for side in ("Preceding", "Following")]
    running: list[J] = []
    shared: list[J] = []
    for column in named:
        function, frame = window_function(column)
        if _is_unbounded(frame.lower()) or _is_unbounded(frame.upper()):
            over_rows = _over_rows(spark, function, partition, order, [frame.lower(), frame.upper()])
            running.append(catalyst.new_alias(spark, over_rows, column.name()))
            edge = "Last" if _is_unbounded(frame.lower()) else "First"
            take = getattr(expressions.aggregate, edge)
            function = take(running[-1].toAttribute(), IGNORE_NULLS).toAggregateExpression()
        whole = _over_rows(spark, function, peers, order, ends)
        shared.append(catalyst.alias(spark, whole, column.toAttribute()))
    if running:
        below = window(catalyst.vector(spark, running), partition, order, below, node.hint())
    return window(catalyst.vector(spark, shared), peers, order, below, node.hint())


def _over_rows(spark: SparkSession, function: J, partition: J, order: J, edges: Sequence[J]) -> J:
    """Return a function over a frame of ROWS."""
    expressions = catalyst.catalyst(spark).expressions
    frame = expressions.SpecifiedWindowFrame(catalyst.module(expressions, "RowFrame"), *edges)
    return expressions.WindowExpression(function, expressions.WindowSpecDefinition(partition, order, frame))


def _further_orders(spark: SparkSession, order: J, used: Sequence[J], shown: Sequence[J]) -> list[J]:
    """Return further orders, after which rows that are not identical in some columns are not equal.

    used: columns that are ordered first, by value and identity; then those of the order, by identity, and those of
    `shown` that Spark cannot order. The columns of an input may stand in any sequence, so it does not decide.
    """
    parts = [part.child() for part in catalyst.sequence(order)]
    ordered = {int(part.exprId().id()): part for part in parts if catalyst.kind(part) == "AttributeReference"}
    unordered = [column for column in shown if not catalyst.is_orderable(spark, column)]
    columns = {int(column.exprId().id()): column for column in [*used, *ordered.values(), *unordered]}
    named = {f"c{number}": column for number, column in enumerate(columns.values())}
    renamed = catalyst.vector(spark, [column.withName(name) for name, column in named.items()])
    streaming = False
    nil, none = catalyst.vector(spark, []), catalyst.none(spark)
    relation = catalyst.catalyst(spark).plans.logical.LocalRelation(renamed, nil, streaming, none)
    compared = {name for name, identifier in zip(named, columns, strict=True) if identifier in ordered}
    schema = catalyst.python_schema(relation.schema())
    keys = [key for column in schema for key in _orderable_keys(column.name, column.dataType) if key not in compared]
    if not keys:
        return []
    analysed = catalyst.analysed_plan(catalyst.frame(spark, relation).select(*map(F.expr, keys)))

    def restore(part: J) -> J | None:
        return named[str(part.name())] if catalyst.kind(part) == "AttributeReference" else None

    items = catalyst.sequence(analysed.projectList())
    expressions = (item.child() if catalyst.kind(item) == "Alias" else item for item in items)
    return [ascending(spark, catalyst.rewrite(spark, expression, restore)) for expression in expressions]


def _orderable_keys(value: str, data_type: T.DataType) -> tuple[str, ...]:
    """Return SQL expressions that Spark can order and that differ where the values of an expression are not identical.

    Of types that Spark does not compare either, only those that show in their text.
    """
    text = data_type.simpleString()
    if "variant" in text:
        return (f"to_json({value})",)
    return (f"CAST({value} AS STRING)",) if text == "interval" else identity_keys(value, data_type)
