"""Give the rows of a group one order, which all its lists, first and last values share.

Spark's lists of one group-by are columns of the same rows in the same order, without their NULLs, so a query may pair
them by position. Sorting each list by itself would pair values of different rows. The order of the rows is by the
values of all lists, then by those that first, last and any_value take. Lists of distinct values, and lists that the
query sorts, counts or folds by a declared monoid, do not share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from deltafold.language.determinism.orderability import is_orderable
from deltafold.language.monoids.calls import folds_in_any_order
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

COLLECTIONS = {"CollectList", "CollectSet"}
LIST_AGGREGATES = {"CollectList", "ListAgg"}
ANY_ROW = {"First", "Last", "AnyValue"}
# functions of an array whose result does not depend on the order of its elements
ORDER_BLIND = {"SortArray", "Size", "ArrayMin", "ArrayMax", "ArrayContains"}


@dataclass(frozen=True)
class RowOrder:
    """The order of the rows of a group.

    calls: the aggregates that follow it; of_lists: the values of the lists among them; values: those by which the rows
    are ordered, first those of lists.
    """

    calls: list[J] = field(default_factory=list[J])
    of_lists: list[J] = field(default_factory=list[J])
    values: list[J] = field(default_factory=list[J])

    def list_values(self, call: J) -> list[J]:
        """Return the values that order a list: of all lists, or only its own if it does not share the order."""
        return self.of_lists if call in self.calls else [aggregated_value(call)]

    def row_values(self, call: J) -> list[J]:
        """Return the values that order the rows of which an aggregate takes one: all, or only its own."""
        return self.values if call in self.calls else [aggregated_value(call)]


NO_ORDER = RowOrder()


def row_order(spark: SparkSession, outputs: Sequence[J]) -> RowOrder:
    """Return the order of the rows of a group-by; outputs: its keys and aggregates."""
    calls = [call for output in outputs for call in _order_sensitive_calls(output)]
    calls = [call for call in calls if is_orderable(spark, aggregated_value(call))]
    lists = [call for call in calls if catalyst.kind(call.aggregateFunction()) in LIST_AGGREGATES]
    rest = [call for call in calls if catalyst.kind(call.aggregateFunction()) in ANY_ROW]
    return RowOrder(calls, different_values(lists), different_values([*lists, *rest]))


def aggregated_value(call: J) -> J:
    """Return the value that an aggregate takes of each row."""
    return call.aggregateFunction().children().apply(0)


def position_of(value: J, values: Sequence[J]) -> int:
    """Return the position of a value among others, one of which is equal."""
    return next(i for i, each in enumerate(values) if each.semanticEquals(value))


def different_values(calls: Iterable[J]) -> list[J]:
    """Return the arguments of aggregates, equal ones once."""
    found: list[J] = []
    for call in calls:
        value = aggregated_value(call)
        if not any(value.semanticEquals(each) for each in found):
            found.append(value)
    return found


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
    is_blind = function in COLLECTIONS and above in ORDER_BLIND
    if function in LIST_AGGREGATES | ANY_ROW and not is_blind and not expression.isDistinct():
        yield expression
