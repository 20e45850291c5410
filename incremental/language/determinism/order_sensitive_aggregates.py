"""Make aggregates deterministic that may use any of several rows of a group.

| aggregate | its answer |
| --- | --- |
| first, last, any_value; dropDuplicates of some columns | the values of the least row, the same row for all of them |
| max_by, min_by | the largest (smallest) of the values with an equal order, maps by their sorted entries |
| mode | the least of the most frequent values |
| collect_list, collect_set | the elements are sorted |
| listagg | sorted by its own order, then by value; distinct values by value alone |
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from incremental.language.determinism.orderability import is_orderable, make_struct, orderable_equivalent
from incremental.spark import catalyst
from incremental.spark.catalyst import J

EXTREMES_BY = {"MaxBy", "MinBy", "MaxMinByK"}
COLLECTIONS = {"CollectList", "CollectSet"}
ANY_ROW = {"First", "Last", "AnyValue"}


class OrderSensitiveAggregates:
    """Rewrites the aggregates of plans; `by_order`: also max_by and min_by, whose monoids break ties by themselves."""

    def __init__(self, spark: SparkSession, by_order: bool) -> None:
        self._spark, self._by_order = spark, by_order
        self._expressions: J = catalyst.catalyst(spark).expressions

    def rewrite_group_by(self, node: J) -> J:
        """Return a group-by whose answer is determined; the same node if it already is."""
        outputs = catalyst.sequence(node.aggregateExpressions())
        of_any_row = [call for output in outputs for call in self._calls_of_any_row(output)]

        def rewrite(part: J) -> J | None:
            return self.rewrite_call(part, of_any_row) if catalyst.kind(part) == "AggregateExpression" else None

        new = [catalyst.rewrite(self._spark, output, rewrite) for output in outputs]
        if all(a is b for a, b in zip(outputs, new, strict=True)):
            return node
        logical = catalyst.catalyst(self._spark).plans.logical
        return logical.Aggregate(node.groupingExpressions(), self._vector(new), node.child(), node.hint())

    def is_orderable(self, value: J) -> bool:
        """Return whether Spark can order the values of an expression."""
        return is_orderable(self._spark, value)

    def rewrite_call(self, node: J, of_any_row: Sequence[J] = ()) -> J:
        """Return a deterministic aggregate; of_any_row: the calls that take their values from one and the same row."""
        function = node.aggregateFunction()
        kind = catalyst.kind(function)
        if kind in EXTREMES_BY and (self._by_order or not merges(self._spark, function)):
            return self._replace_function(node, self._by_order_and_value(function))
        if kind in COLLECTIONS and self.is_orderable(function.child()):
            return self._expressions.SortArray(node)
        if kind in ANY_ROW and self.is_orderable(function.child()):
            return self._from_least_row(node, of_any_row)
        if kind == "Mode" and not function.reverseOpt().isDefined() and self.is_orderable(function.child()):
            least = self._expressions.aggregate.Mode(
                function.child(), function.mutableAggBufferOffset(), function.inputAggBufferOffset(),
                catalyst.some(self._spark, True),
            )  # fmt: skip
            return self._replace_function(node, least)
        # distinct values can only be ordered by themselves
        if kind == "ListAgg" and (not node.isDistinct() or function.orderExpressions().isEmpty()):
            return self._replace_function(node, self._sorted_list(function))
        return node

    def _replace_function(self, node: J, function: J) -> J:
        """Return the same call of another function."""
        expression = self._expressions.aggregate.AggregateExpression
        return expression(function, node.mode(), node.isDistinct(), node.filter(), node.resultId())

    def _by_order_and_value(self, function: J) -> J:
        """Return a max_by or min_by by (order, value); NULL orders stay NULL, which the function ignores."""
        value, order, *rest = catalyst.sequence(function.children())
        rank = orderable_equivalent(self._spark, value)
        if rank is None:
            return function
        literal = catalyst.module(self._expressions, "Literal")
        both = make_struct(self._spark, [order, rank])
        either = self._expressions.If(self._expressions.IsNull(order), literal.create(None, both.dataType()), both)
        return function.withNewChildren(self._vector([value, either, *rest]))

    def _calls_of_any_row(self, output: J) -> list[J]:
        """Return the calls that take a value of any row of the whole group: the same row must serve all of them."""
        return [
            node
            for node in catalyst.subexpressions(output)
            if catalyst.kind(node) == "AggregateExpression"
            and catalyst.kind(node.aggregateFunction()) in ANY_ROW
            and not node.aggregateFunction().ignoreNulls()
            and not node.filter().isDefined()
            and self.is_orderable(node.aggregateFunction().child())
        ]

    def _from_least_row(self, node: J, of_any_row: Sequence[J]) -> J:
        least = self._expressions.aggregate.Min
        value = node.aggregateFunction().child()
        if node.aggregateFunction().ignoreNulls():
            return self._replace_function(node, least(value))
        values = [call.aggregateFunction().child() for call in of_any_row] if node in of_any_row else [value]
        position = next(i for i, each in enumerate(values) if each.semanticEquals(value))
        row = self._replace_function(node, least(make_struct(self._spark, values)))
        return self._expressions.GetStructField(row, position, catalyst.none(self._spark))

    def _sorted_list(self, function: J) -> J:
        """Return a listagg in its own order, then by value."""
        ascending = catalyst.module(self._expressions, "Ascending")
        by_value = self._expressions.SortOrder(
            function.child(), ascending, ascending.defaultNullOrdering(), self._vector([])
        )
        orders = self._vector([*catalyst.sequence(function.orderExpressions()), by_value])
        return self._expressions.aggregate.ListAgg(
            function.child(), function.delimiter(), orders,
            function.mutableAggBufferOffset(), function.inputAggBufferOffset(),
        )  # fmt: skip

    def _vector(self, items: list[J]) -> J:
        return catalyst.vector(self._spark, items)


def merges(spark: SparkSession, function: J) -> bool:
    """Return whether a max_by or min_by has a monoid, which breaks its ties."""
    return catalyst.kind(function) != "MaxMinByK" and is_orderable(spark, catalyst.sequence(function.children())[0])
