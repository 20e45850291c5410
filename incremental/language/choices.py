"""Language room: aggregates that leave open which rows of a group they take. In: Catalyst Aggregates. Out: one answer.

| aggregate | settled by |
| --- | --- |
| first, last, any_value; dropDuplicates of some columns | the least row, the same one for all of a group's |
| max_by, min_by | the largest (smallest) of the values with an equal order, maps by their sorted entries |
| mode | the least of the most frequent values |
| collect_list, collect_set | the elements are sorted |
| listagg | by its own order, then by the value; distinct values by themselves |
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from incremental.language.ranks import is_orderable, ranked, struct
from incremental.spark import catalyst
from incremental.spark.catalyst import J

CHOOSING = {"MaxBy", "MinBy", "MaxMinByK"}
COLLECTING = {"CollectList", "CollectSet"}
PICKING = {"First", "Last", "AnyValue"}


class Choices:
    """Settles the aggregates of plans; `by_order`: also max_by and min_by, whose monoids settle them themselves."""

    def __init__(self, spark: SparkSession, by_order: bool) -> None:
        self._spark, self._by_order = spark, by_order
        self._expressions: J = catalyst.catalyst(spark).expressions

    def settled(self, node: J) -> J:
        """A group-by whose answer is determined; itself where it was."""
        outputs = catalyst.sequence(node.aggregateExpressions())
        row = [call for output in outputs for call in self._picked_together(output)]

        def call(part: J) -> J | None:
            return self.call(part, row) if catalyst.kind(part) == "AggregateExpression" else None

        new = [catalyst.rewrite(self._spark, output, call) for output in outputs]
        if all(a is b for a, b in zip(outputs, new, strict=True)):
            return node
        logical = catalyst.catalyst(self._spark).plans.logical
        return logical.Aggregate(node.groupingExpressions(), self._vector(new), node.child(), node.hint())

    def orderable(self, value: J) -> bool:
        """Whether the values of an expression can be ordered."""
        return is_orderable(self._spark, value)

    def call(self, node: J, row: Sequence[J] = ()) -> J:
        """An aggregate settled; `row`: the calls that take their values of one row."""
        function = node.aggregateFunction()
        kind = catalyst.kind(function)
        if kind in CHOOSING and (self._by_order or not merges(self._spark, function)):
            return self._with(node, self._by(function))
        if kind in COLLECTING and self.orderable(function.child()):
            return self._expressions.SortArray(node)
        if kind in PICKING and self.orderable(function.child()):
            return self._picked(node, row)
        if kind == "Mode" and not function.reverseOpt().isDefined() and self.orderable(function.child()):
            least = self._expressions.aggregate.Mode(
                function.child(), function.mutableAggBufferOffset(), function.inputAggBufferOffset(),
                catalyst.some(self._spark, True),
            )  # fmt: skip
            return self._with(node, least)
        # the order of distinct values can only be their own
        if kind == "ListAgg" and (not node.isDistinct() or function.orderExpressions().isEmpty()):
            return self._with(node, self._listed(function))
        return node

    def _with(self, node: J, function: J) -> J:
        """The same call of another function."""
        expression = self._expressions.aggregate.AggregateExpression
        return expression(function, node.mode(), node.isDistinct(), node.filter(), node.resultId())

    def _by(self, function: J) -> J:
        """The choice ordered by (order, value); NULL orders stay NULL, which the choice passes over."""
        value, order, *rest = catalyst.sequence(function.children())
        rank = ranked(self._spark, value)
        if rank is None:
            return function
        literal = catalyst.module(self._expressions, "Literal")
        both = struct(self._spark, [order, rank])
        either = self._expressions.If(self._expressions.IsNull(order), literal.create(None, both.dataType()), both)
        return function.withNewChildren(self._vector([value, either, *rest]))

    def _picked_together(self, output: J) -> list[J]:
        """The calls that pick a value of one row of the whole group: whichever row it is, it is the same for all."""
        return [
            node
            for node in catalyst.subexpressions(output)
            if catalyst.kind(node) == "AggregateExpression"
            and catalyst.kind(node.aggregateFunction()) in PICKING
            and not node.aggregateFunction().ignoreNulls()
            and not node.filter().isDefined()
            and self.orderable(node.aggregateFunction().child())
        ]

    def _picked(self, node: J, row: Sequence[J]) -> J:
        least = self._expressions.aggregate.Min
        value = node.aggregateFunction().child()
        if node.aggregateFunction().ignoreNulls():
            return self._with(node, least(value))
        values = [call.aggregateFunction().child() for call in row] if node in row else [value]
        position = next(i for i, each in enumerate(values) if each.semanticEquals(value))
        taken = self._with(node, least(struct(self._spark, values)))
        return self._expressions.GetStructField(taken, position, catalyst.none(self._spark))

    def _listed(self, function: J) -> J:
        """The values in their order, equal ones by themselves."""
        ascending = catalyst.module(self._expressions, "Ascending")
        last = self._expressions.SortOrder(
            function.child(), ascending, ascending.defaultNullOrdering(), self._vector([])
        )
        orders = self._vector([*catalyst.sequence(function.orderExpressions()), last])
        return self._expressions.aggregate.ListAgg(
            function.child(), function.delimiter(), orders,
            function.mutableAggBufferOffset(), function.inputAggBufferOffset(),
        )  # fmt: skip

    def _vector(self, items: list[J]) -> J:
        return catalyst.vector(self._spark, items)


def merges(spark: SparkSession, function: J) -> bool:
    """Whether a max_by or min_by has a monoid, which settles it."""
    return catalyst.kind(function) != "MaxMinByK" and is_orderable(spark, catalyst.sequence(function.children())[0])
