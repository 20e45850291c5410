"""Make aggregates deterministic that may use any of several rows of a group.

| aggregate | its answer |
| --- | --- |
| collect_list, listagg | the rows of the group in one order, the same for all lists |
| first, any_value; dropDuplicates of some columns | the first row of that order, the same for all of them |
| last | the last row of that order |
| max_by, min_by | of the rows with an equal order the largest (smallest), the same for all calls |
| mode | the least of the most frequent values |
| collect_set, lists of distinct values | sorted |

Spark's lists of one group-by are columns of the same rows in the same order, without their NULLs, so a query may pair
them by position. Sorting each list by itself would pair values of different rows. The order of the rows is by the
values of all lists, then by those that first, last and any_value take. Lists of distinct values, and lists that the
query sorts, counts or folds by a declared monoid, do not share it.

Spark's calls of max_by (min_by) with the same order take the same row; of several rows with an equal order, which one
depends on the order of the rows. If each call chose by its own value, `max_by(a, day), max_by(b, day)` would combine
values of different rows. So one row is chosen for all of them: by their values, from left to right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from deltafold.language.monoids import folds_in_any_order
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

# arguments of Spark's classes
REVERSED = True
CONTAINS_NULL = True
EXTREMES_BY = {"MaxBy", "MinBy", "MaxMinByK"}
COLLECTIONS = {"CollectList", "CollectSet"}
_LIST_AGGREGATES = {"CollectList", "ListAgg"}
_ANY_ROW = {"First", "Last", "AnyValue"}
# functions of an array whose result does not depend on the order of its elements
_ORDER_BLIND = {"SortArray", "Size", "ArrayMin", "ArrayMax", "ArrayContains"}


@dataclass(frozen=True)
class _RowOrder:
    """The order of the rows of a group.

    calls: the aggregates that follow it; of_lists: the values of the lists among them; values: those by which the rows
    are ordered, first those of lists.
    """

    calls: list[J] = field(default_factory=list[J])
    of_lists: list[J] = field(default_factory=list[J])
    values: list[J] = field(default_factory=list[J])

    def list_values(self, call: J) -> list[J]:
        """Return the values that order a list: of all lists, or only its own if it does not share the order."""
        return self.of_lists if call in self.calls else [_aggregated_value(call)]

    def row_values(self, call: J) -> list[J]:
        """Return the values that order the rows of which an aggregate takes one: all, or only its own."""
        return self.values if call in self.calls else [_aggregated_value(call)]


_NO_ORDER = _RowOrder()


def _row_order(spark: SparkSession, outputs: Sequence[J]) -> _RowOrder:
    """Return the order of the rows of a group-by; outputs: its keys and aggregates."""
    calls = [call for output in outputs for call in _order_sensitive_calls(output)]
    calls = [call for call in calls if catalyst.is_orderable(spark, _aggregated_value(call))]
    lists = [call for call in calls if catalyst.kind(call.aggregateFunction()) in _LIST_AGGREGATES]
    rest = [call for call in calls if catalyst.kind(call.aggregateFunction()) in _ANY_ROW]
    return _RowOrder(calls, _different_values(lists), _different_values([*lists, *rest]))


def _aggregated_value(call: J) -> J:
    """Return the value that an aggregate takes of each row."""
    return call.aggregateFunction().children().apply(0)


def _position_of(value: J, values: Sequence[J]) -> int:
    """Return the position of a value among others, one of which is equal."""
    return next(i for i, other in enumerate(values) if other.semanticEquals(value))


def _different_values(calls: Iterable[J]) -> list[J]:
    """Return the arguments of aggregates, equal ones once."""
    values: list[J] = []
    for call in calls:
        value = _aggregated_value(call)
        if not any(value.semanticEquals(other) for other in values):
            values.append(value)
    return values


def _order_sensitive_calls(expression: J, above: str = "") -> Iterator[J]:
    """Yield the aggregates whose value depends on the order of the rows; above: the function of the expression."""
    kind = catalyst.kind(expression)
    if folds_in_any_order(expression):
        return
    if kind != "AggregateExpression":
        for child in catalyst.sequence(expression.children()):
            yield from _order_sensitive_calls(child, kind)
        return
    function = catalyst.kind(expression.aggregateFunction())
    is_blind = function in COLLECTIONS and above in _ORDER_BLIND
    if function in _LIST_AGGREGATES | _ANY_ROW and not is_blind and not expression.isDistinct():
        yield expression


class _TiedExtremes:
    """The calls of max_by and min_by of one group-by; outputs: its keys and aggregates."""

    def __init__(self, spark: SparkSession, outputs: Sequence[J]) -> None:
        self._spark = spark
        parts = [part for output in outputs for part in catalyst.subexpressions(output)]
        calls = [part for part in parts if catalyst.kind(part) == "AggregateExpression"]
        calls = [call for call in calls if catalyst.kind(call.aggregateFunction()) in EXTREMES_BY]
        self._calls = [(call, self._without_value(call)) for call in calls] if len(calls) > 1 else []

    def values(self, call: J) -> list[J]:
        """Return the values that are taken from one row for a call and all others with its order and FILTER."""
        without_value = next((rest for other, rest in self._calls if other.equals(call)), None)
        if without_value is None:
            return []
        return _different_values(other for other, rest in self._calls if rest.semanticEquals(without_value))

    def _without_value(self, call: J) -> J:
        """Return a call with a constant in place of its value."""
        _, *rest = catalyst.sequence(call.aggregateFunction().children())
        constant = catalyst.module(catalyst.catalyst(self._spark).expressions, "Literal").TrueLiteral()
        function = call.aggregateFunction().withNewChildren(catalyst.vector(self._spark, [constant, *rest]))
        expression = catalyst.catalyst(self._spark).expressions.aggregate.AggregateExpression
        return expression(function, call.mode(), call.isDistinct(), call.filter(), call.resultId())


class OrderSensitiveAggregates:
    """Rewrites the aggregates of plans; `by_order`: also max_by and min_by, whose monoids break ties by themselves."""

    def __init__(self, spark: SparkSession, *, by_order: bool) -> None:
        self._spark = spark
        self._by_order = by_order
        self._expressions: J = catalyst.catalyst(spark).expressions

    def rewrite_group_by(self, node: J) -> J:
        """Return a group-by whose answer is determined; the same node if it already is."""
        outputs = catalyst.sequence(node.aggregateExpressions())
        order = _row_order(self._spark, outputs)
        tied = _TiedExtremes(self._spark, outputs)

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

    def rewrite_call(self, node: J, order: _RowOrder = _NO_ORDER) -> J:
        """Return a deterministic aggregate; order: that of the rows of its group."""
        function = node.aggregateFunction()
        kind = catalyst.kind(function)
        if kind in EXTREMES_BY and (self._by_order or not _merges(self._spark, function)):
            value, *_ = catalyst.sequence(function.children())
            return self._replace_function(node, self._by_order_and_values(function, [value]))
        if kind in COLLECTIONS and catalyst.is_orderable(self._spark, function.child()):
            return self._sort_collection(node, order)
        if kind in _ANY_ROW and catalyst.is_orderable(self._spark, function.child()):
            return self._of_one_row(node, order)
        if (
            kind == "Mode"
            and not function.reverseOpt().isDefined()
            and catalyst.is_orderable(self._spark, function.child())
        ):
            least = self._expressions.aggregate.Mode(
                function.child(), function.mutableAggBufferOffset(), function.inputAggBufferOffset(),
                catalyst.some(self._spark, REVERSED),
            )  # fmt: skip
            return self._replace_function(node, least)
        # distinct values can only be ordered by themselves
        if kind == "ListAgg" and (not node.isDistinct() or function.orderExpressions().isEmpty()):
            return self._replace_function(node, self._sorted_list(function, order.list_values(node)))
        return node

    def _replace_function(self, node: J, function: J, *conditions: J) -> J:
        """Return the same call of another function; conditions: further ones of the rows that it takes."""
        condition = node.filter()
        for added in conditions:
            both = self._expressions.And(condition.get(), added) if condition.isDefined() else added
            condition = catalyst.some(self._spark, both)
        expression = self._expressions.aggregate.AggregateExpression
        return expression(function, node.mode(), node.isDistinct(), condition, node.resultId())

    def _by_order_and_values(self, function: J, values: list[J]) -> J:
        """Return a max_by or min_by by (order, values); NULL orders stay NULL, which the function ignores."""
        answer, order, *rest = catalyst.sequence(function.children())
        ranks = [rank for value in values if (rank := orderable_equivalent(self._spark, value)) is not None]
        if len(ranks) < len(values):
            return function
        literal = catalyst.module(self._expressions, "Literal")
        both = make_struct(self._spark, [order, *ranks])
        either = self._expressions.If(self._expressions.IsNull(order), literal.create(None, both.dataType()), both)
        return function.withNewChildren(catalyst.vector(self._spark, [answer, either, *rest]))

    def _of_tied_row(self, node: J, values: list[J]) -> J | None:
        """Return a max_by or min_by as a column of the row that several calls share; None if there are no others."""
        if len(values) < 2:
            return None
        function = node.aggregateFunction()
        value, *rest = catalyst.sequence(function.children())
        if not all(catalyst.is_orderable(self._spark, value) for value in values):
            return self._replace_function(node, self._by_order_and_values(function, values))
        row = make_struct(self._spark, values)
        position = _position_of(value, values)
        shared = self._replace_function(node, function.withNewChildren(catalyst.vector(self._spark, [row, *rest])))
        if catalyst.kind(function) != "MaxMinByK":
            return self._expressions.GetStructField(self.rewrite_call(shared), position, catalyst.none(self._spark))
        field = row.dataType().fields()[position]
        return self._expressions.GetArrayStructFields(
            self.rewrite_call(shared), field, position, len(values), CONTAINS_NULL
        )

    def _sort_collection(self, node: J, order: _RowOrder) -> J:
        """Return a sorted collection; of several lists in a group-by, a column of the group's rows in their order."""
        function = node.aggregateFunction()
        values = order.list_values(node)
        if len(values) == 1 or catalyst.kind(function) not in _LIST_AGGREGATES:
            return self._expressions.SortArray(node)
        rows = make_struct(self._spark, values)
        position = _position_of(function.child(), values)
        field = rows.dataType().fields()[position]
        sorted_rows = self._expressions.SortArray(
            self._replace_function(node, function.withNewChildren(catalyst.vector(self._spark, [rows])))
        )
        column = self._expressions.GetArrayStructFields(sorted_rows, field, position, len(values), field.nullable())
        if not field.nullable() or function.dataType().containsNull():
            return column
        return self._expressions.KnownNotContainsNull(self._expressions.ArrayCompact(column))

    def _of_one_row(self, node: J, order: _RowOrder) -> J:
        """Return the value of the first or last row of a group, or of the first or last one with a value."""
        function = node.aggregateFunction()
        values = order.row_values(node)
        extreme = getattr(self._expressions.aggregate, "Max" if catalyst.kind(function) == "Last" else "Min")
        value = function.child()
        ignore_nulls = bool(function.ignoreNulls())
        if ignore_nulls and len(values) == 1:
            return self._replace_function(node, extreme(value))
        conditions = [self._expressions.IsNotNull(value)] if ignore_nulls else []
        row = self._replace_function(node, extreme(make_struct(self._spark, values)), *conditions)
        return self._expressions.GetStructField(row, _position_of(value, values), catalyst.none(self._spark))

    def _sorted_list(self, function: J, values: list[J]) -> J:
        """Return a listagg in its own order, then by these values."""
        ascending = catalyst.module(self._expressions, "Ascending")
        nulls = ascending.defaultNullOrdering()
        nil = catalyst.vector(self._spark, [])
        by_values = [self._expressions.SortOrder(value, ascending, nulls, nil) for value in values]
        orders = catalyst.vector(self._spark, [*catalyst.sequence(function.orderExpressions()), *by_values])
        return self._expressions.aggregate.ListAgg(
            function.child(), function.delimiter(), orders,
            function.mutableAggBufferOffset(), function.inputAggBufferOffset(),
        )  # fmt: skip


def _merges(spark: SparkSession, function: J) -> bool:
    """Return whether a max_by or min_by has a monoid, which breaks its ties."""
    return catalyst.kind(function) != "MaxMinByK" and catalyst.is_orderable(
        spark, catalyst.sequence(function.children())[0]
    )


def orderable_equivalent(spark: SparkSession, value: J) -> J | None:
    """Return an expression that Spark can order and that differs where the values do, None if there is none.

    It is the value itself, the sorted entries of a map, or text and type of a VARIANT.
    """
    if catalyst.is_orderable(spark, value):
        return value
    expressions = catalyst.catalyst(spark).expressions
    match catalyst.kind(value.dataType()):
        case "MapType":
            entries = expressions.MapEntries(value)
            return expressions.SortArray(entries) if catalyst.is_orderable(spark, entries) else None
        case "VariantType" | "VariantType$":
            zone = catalyst.some(spark, str(spark.conf.get("spark.sql.session.timeZone")))
            text = expressions.Cast(value, catalyst.module(catalyst.sql(spark).types, "StringType"), zone)
            return make_struct(spark, [text, expressions.variant.SchemaOfVariant(value)])
        case _:
            return None


def make_struct(spark: SparkSession, values: list[J]) -> J:
    """Return a struct of values, which Spark compares in their order."""
    named = [part for i, value in enumerate(values) for part in (catalyst.parse_expression(spark, f"'v{i}'"), value)]
    return catalyst.catalyst(spark).expressions.CreateNamedStruct(catalyst.vector(spark, named))
