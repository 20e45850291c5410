"""Make aggregates deterministic that may use any of several rows of a group.

| aggregate | its answer |
| --- | --- |
| collect_list, listagg | the rows of the group in one order, the same for all lists (row_order.py) |
| first, any_value; dropDuplicates of some columns | the first row of that order, the same for all of them |
| last | the last row of that order |
| max_by, min_by | of the rows with an equal order the largest (smallest), the same for all calls (tied_extremes.py) |
| mode | the least of the most frequent values |
| collect_set, lists of distinct values | sorted |
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from deltafold.language.determinism.orderability import is_orderable, make_struct, orderable_equivalent
from deltafold.language.determinism.row_order import (
    ANY_ROW,
    COLLECTIONS,
    LIST_AGGREGATES,
    NO_ORDER,
    RowOrder,
    position_of,
    row_order,
)
from deltafold.language.determinism.tied_extremes import EXTREMES_BY, TiedExtremes
from deltafold.language.monoids.calls import folds_in_any_order
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J


class OrderSensitiveAggregates:
    """Rewrites the aggregates of plans; `by_order`: also max_by and min_by, whose monoids break ties by themselves."""

    def __init__(self, spark: SparkSession, by_order: bool) -> None:
        self._spark, self._by_order = spark, by_order
        self._expressions: J = catalyst.catalyst(spark).expressions

    def rewrite_group_by(self, node: J) -> J:
        """Return a group-by whose answer is determined; the same node if it already is."""
        outputs = catalyst.sequence(node.aggregateExpressions())
        order, tied = row_order(self._spark, outputs), TiedExtremes(self._spark, outputs)

        def rewrite(part: J) -> J | None:
            if folds_in_any_order(part):
                return part
            if catalyst.kind(part) != "AggregateExpression":
                return None
            return self._of_tied_row(part, tied.values(part)) or self.rewrite_call(part, order)

        new = [catalyst.rewrite(self._spark, output, rewrite) for output in outputs]
        if all(a is b for a, b in zip(outputs, new, strict=True)):
            return node
        logical = catalyst.catalyst(self._spark).plans.logical
        return logical.Aggregate(
            node.groupingExpressions(), catalyst.vector(self._spark, new), node.child(), node.hint()
        )

    def is_orderable(self, value: J) -> bool:
        """Return whether Spark can order the values of an expression."""
        return is_orderable(self._spark, value)

    def rewrite_call(self, node: J, order: RowOrder = NO_ORDER) -> J:
        """Return a deterministic aggregate; order: that of the rows of its group."""
        function = node.aggregateFunction()
        kind = catalyst.kind(function)
        if kind in EXTREMES_BY and (self._by_order or not merges(self._spark, function)):
            value, *_ = catalyst.sequence(function.children())
            return self._replace_function(node, self._by_order_and_values(function, [value]))
        if kind in COLLECTIONS and self.is_orderable(function.child()):
            return self._sort_collection(node, order)
        if kind in ANY_ROW and self.is_orderable(function.child()):
            return self._of_one_row(node, order)
        if kind == "Mode" and not function.reverseOpt().isDefined() and self.is_orderable(function.child()):
            least = self._expressions.aggregate.Mode(
                function.child(), function.mutableAggBufferOffset(), function.inputAggBufferOffset(),
                catalyst.some(self._spark, True),
            )  # fmt: skip
            return self._replace_function(node, least)
        # distinct values can only be ordered by themselves
        if kind == "ListAgg" and (not node.isDistinct() or function.orderExpressions().isEmpty()):
            return self._replace_function(node, self._sorted_list(function, order.list_values(node)))
        return node

    def _replace_function(self, node: J, function: J, *conditions: J) -> J:
        """Return the same call of another function; conditions: further ones of the rows that it takes."""
        condition = node.filter()
        for each in conditions:
            both = self._expressions.And(condition.get(), each) if condition.isDefined() else each
            condition = catalyst.some(self._spark, both)
        expression = self._expressions.aggregate.AggregateExpression
        return expression(function, node.mode(), node.isDistinct(), condition, node.resultId())

    def _by_order_and_values(self, function: J, values: list[J]) -> J:
        """Return a max_by or min_by by (order, values); NULL orders stay NULL, which the function ignores."""
        value, order, *rest = catalyst.sequence(function.children())
        ranks = [rank for each in values if (rank := orderable_equivalent(self._spark, each)) is not None]
        if len(ranks) < len(values):
            return function
        literal = catalyst.module(self._expressions, "Literal")
        both = make_struct(self._spark, [order, *ranks])
        either = self._expressions.If(self._expressions.IsNull(order), literal.create(None, both.dataType()), both)
        return function.withNewChildren(catalyst.vector(self._spark, [value, either, *rest]))

    def _of_tied_row(self, node: J, values: list[J]) -> J | None:
        """Return a max_by or min_by as a column of the row that several calls share; None if there are no others."""
        if len(values) < 2:
            return None
        function = node.aggregateFunction()
        value, *rest = catalyst.sequence(function.children())
        if not all(map(self.is_orderable, values)):
            return self._replace_function(node, self._by_order_and_values(function, values))
        row, position = make_struct(self._spark, values), position_of(value, values)
        shared = self._replace_function(node, function.withNewChildren(catalyst.vector(self._spark, [row, *rest])))
        if catalyst.kind(function) != "MaxMinByK":
            return self._expressions.GetStructField(self.rewrite_call(shared), position, catalyst.none(self._spark))
        field = row.dataType().fields()[position]
        return self._expressions.GetArrayStructFields(self.rewrite_call(shared), field, position, len(values), True)

    def _sort_collection(self, node: J, order: RowOrder) -> J:
        """Return a sorted collection; of several lists in a group-by, a column of the group's rows in their order."""
        function, values = node.aggregateFunction(), order.list_values(node)
        if len(values) == 1 or catalyst.kind(function) not in LIST_AGGREGATES:
            return self._expressions.SortArray(node)
        rows, position = make_struct(self._spark, values), position_of(function.child(), values)
        field = rows.dataType().fields()[position]
        sorted_rows = self._expressions.SortArray(
            self._replace_function(node, function.withNewChildren(catalyst.vector(self._spark, [rows])))
        )
        column = self._expressions.GetArrayStructFields(sorted_rows, field, position, len(values), field.nullable())
        if not field.nullable() or function.dataType().containsNull():
            return column
        return self._expressions.KnownNotContainsNull(self._expressions.ArrayCompact(column))

    def _of_one_row(self, node: J, order: RowOrder) -> J:
        """Return the value of the first or last row of a group, or of the first or last one with a value."""
        function, values = node.aggregateFunction(), order.row_values(node)
        extreme = getattr(self._expressions.aggregate, "Max" if catalyst.kind(function) == "Last" else "Min")
        value, ignore_nulls = function.child(), bool(function.ignoreNulls())
        if ignore_nulls and len(values) == 1:
            return self._replace_function(node, extreme(value))
        conditions = [self._expressions.IsNotNull(value)] if ignore_nulls else []
        row = self._replace_function(node, extreme(make_struct(self._spark, values)), *conditions)
        return self._expressions.GetStructField(row, position_of(value, values), catalyst.none(self._spark))

    def _sorted_list(self, function: J, values: list[J]) -> J:
        """Return a listagg in its own order, then by these values."""
        ascending = catalyst.module(self._expressions, "Ascending")
        nulls, nil = ascending.defaultNullOrdering(), catalyst.vector(self._spark, [])
        by_values = [self._expressions.SortOrder(value, ascending, nulls, nil) for value in values]
        orders = catalyst.vector(self._spark, [*catalyst.sequence(function.orderExpressions()), *by_values])
        return self._expressions.aggregate.ListAgg(
            function.child(), function.delimiter(), orders,
            function.mutableAggBufferOffset(), function.inputAggBufferOffset(),
        )  # fmt: skip


def merges(spark: SparkSession, function: J) -> bool:
    """Return whether a max_by or min_by has a monoid, which breaks its ties."""
    return catalyst.kind(function) != "MaxMinByK" and is_orderable(spark, catalyst.sequence(function.children())[0])
