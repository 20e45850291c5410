"""Language room: Catalyst's Aggregate → projection, group-by, projection (MRQL's factoring of the answer, section 9).

In: an Aggregate node whose input is already translated. Out: `Project(Aggregate(Project(child)))`, where every group
key and every argument is a column, each aggregate a `Call`, and what stands around the aggregates the last projection.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from incremental.algebra.monoids.family import infer_monoid
from incremental.algebra.plan import Aggregate, Call, Column, Item, Plan, Project, Reference, Scalar
from incremental.language.choices import CHOOSING, COLLECTING
from incremental.language.names import Names, type_text
from incremental.language.ranks import is_orderable, ranked
from incremental.language.scalars import Scalars
from incremental.language.subqueries import has_subquery
from incremental.spark import catalyst
from incremental.spark.catalyst import J

INTEGRAL = {"ByteType$", "ShortType$", "IntegerType$", "LongType$"}
ORDERED = {"First", "Last", "NthValue"}
MOMENTS = {"StddevSamp", "StddevPop", "VarianceSamp", "VariancePop", "CovSample", "CovPopulation", "Corr"}


Meet = Callable[[Plan, list[J]], tuple[Plan, list[J]]]
"""A plan joined with the scalar subqueries of expressions, and these with columns of it in their place."""


class Aggregates:
    """Translates Aggregate nodes of one query."""

    def __init__(self, spark: SparkSession, names: Names, scalars: Scalars) -> None:
        self._spark, self._names, self._scalars = spark, names, scalars
        self._mode = "ansi" if spark.conf.get("spark.sql.ansi.enabled") == "true" else "legacy"

    def translate(self, node: J, child: Plan, meet: Meet) -> Plan:
        """The three nodes of one Catalyst Aggregate over `child`; subqueries are met below it or above it."""
        below: list[Item] = []
        child, outputs = self._arguments_met(child, catalyst.sequence(node.aggregateExpressions()), meet)
        child, groupings = meet(child, catalyst.sequence(node.groupingExpressions()))
        keys = tuple(dict.fromkeys(self._key(expression, below) for expression in groupings))
        calls: dict[J, Call] = {}
        columns = [self._names.column(node.toAttribute()) for node in outputs]
        answers = [self._without_calls(node, calls, below) for node in outputs]
        needed = dict.fromkeys([*keys, *(c for call in calls.values() for c in call.arguments)])
        given = {item.column.name: item for item in below}
        inputs = tuple(given.get(column.name, Item(column, Reference(column))) for column in needed)
        grouped = Aggregate(Project(child, inputs) if below else child, keys, tuple(calls.values()))
        met, answers = meet(grouped, answers)
        above = [Item(column, self._scalars.scalar(e)) for column, e in zip(columns, answers, strict=True)]
        if tuple(item.scalar for item in above) == tuple(Reference(column) for column in grouped.columns) and all(
            item.scalar == Reference(item.column) for item in above
        ):
            return grouped
        return Project(met, tuple(above))

    def _arguments_met(self, child: Plan, outputs: list[J], meet: Meet) -> tuple[Plan, list[J]]:
        """The subqueries within aggregates, which are for the rows below."""

        def replace(node: J) -> J | None:
            nonlocal child
            if catalyst.kind(node) != "AggregateExpression" or not has_subquery(self._spark, node):
                return None
            child, (found,) = meet(child, [node])
            return found

        outputs = [catalyst.rewrite(self._spark, each, replace) for each in outputs]
        return child, outputs

    def _key(self, expression: J, below: list[Item]) -> Column:
        if catalyst.kind(expression) == "AttributeReference":
            return self._names.column(expression)
        return self._computed(expression, "key", below)

    def _computed(self, expression: J, wish: str, below: list[Item]) -> Column:
        """A column of the projection below for an expression, made once for equal expressions."""
        scalar = self._scalars.scalar(expression)
        for item in below:
            if item.scalar == scalar:
                return item.column
        if isinstance(scalar, Reference):
            return scalar.column
        column = self._names.expression(expression, wish)
        below.append(Item(column, scalar))
        return column

    def _without_calls(self, named: J, calls: dict[J, Call], below: list[Item]) -> J:
        """The output expression with each aggregate replaced by the column of its answer."""
        expression = named.child() if catalyst.kind(named) == "Alias" else named

        def replace(node: J) -> J | None:
            if catalyst.kind(node) != "AggregateExpression":
                return None
            canonical = node.canonicalized()
            if canonical not in calls:
                # an output that is nothing but the aggregate lends it its name
                column = self._names.column(named.toAttribute()) if node.equals(expression) else None
                calls[canonical] = self._call(node, below, column)
            return self._names.attribute(calls[canonical].column)

        return catalyst.rewrite(self._spark, expression, replace)

    def _call(self, node: J, below: list[Item], column: Column | None) -> Call:
        function = node.aggregateFunction()
        name, condition = catalyst.kind(function), catalyst.option(node.filter())
        buffers, answer = self._answer(function)
        text = self._scalars.text(node)
        mode = "try" if text.startswith("try_") else self._mode
        expressions = [self._argument(name, e) for e in catalyst.sequence(function.children())]
        types = tuple(type_text(e.dataType()) for e in expressions)
        if condition is not None and expressions and infer_monoid(name.lower(), types, mode, len(buffers)) is not None:
            # every aggregate that merges ignores NULL: FILTER is a NULL argument (the last: the one that orders max_by)
            expressions[-1], condition = self._only_if(condition, expressions[-1]), None
        arguments = tuple(self._computed(valued(e), f"{name.lower()}_of", below) for e in expressions)
        if name in ORDERED:
            self._scalars.forbid(text, "its value depends on the order of the rows", "min, max, min_by or max_by")
        if name in CHOOSING and ranked(self._spark, expressions[0]) is None:
            because = f"which of several {types[0]} it takes depends on the order of the rows"
            self._scalars.forbid(text, because, "take to_json of the value, which can be ordered")
        if name in COLLECTING | {"Mode"} and not is_orderable(self._spark, expressions[0]):
            because = f"it depends on the order of the rows, and values of type {types[0]} have none of their own"
            self._scalars.forbid(text, because, "take to_json of the value, which can be ordered")
        column = column or self._names.expression(function, name)
        distinct = bool(node.isDistinct()) and name not in ("Min", "Max")
        test = None if condition is None else self._computed(condition, "filter", below)
        handle = self._handle(node, expressions, arguments, distinct, test)
        read = arguments if test is None else (*arguments, test)
        return Call(column, name.lower(), read, text, buffers, answer, distinct, mode, handle)

    def _handle(
        self, node: J, expressions: list[J], arguments: tuple[Column, ...], distinct: bool, test: Column | None
    ) -> J:
        """Spark's aggregate over the argument columns; what it wants as a constant stays one."""
        children = [
            e if e.foldable() else self._over(e, self._names.attribute(column))
            for e, column in zip(expressions, arguments, strict=True)
        ]
        function = node.aggregateFunction()
        if children:
            function = function.withNewChildren(catalyst.vector(self._spark, children))
        none = catalyst.none(self._spark)
        condition = none if test is None else catalyst.some(self._spark, self._names.attribute(test))
        expression = catalyst.catalyst(self._spark).expressions.aggregate.AggregateExpression
        return expression(function, node.mode(), distinct, condition, node.resultId())

    def _over(self, expression: J, attribute: J) -> J:
        """A column in place of an expression; of one that orders, in place of what it orders by."""
        if catalyst.kind(expression) != "SortOrder":
            return attribute
        return expression.withNewChildren(catalyst.vector(self._spark, [attribute]))

    def _argument(self, name: str, expression: J) -> J:
        """Spark widens integers to double for moments; the integers themselves can be summed exactly."""
        if name in MOMENTS and catalyst.kind(expression) == "Cast":
            child = expression.child()
            if catalyst.kind(child.dataType()) in INTEGRAL:
                return child
        return expression

    def _only_if(self, condition: J, expression: J) -> J:
        none = catalyst.module(catalyst.catalyst(self._spark).expressions, "Literal").create(
            None, expression.dataType()
        )
        return catalyst.catalyst(self._spark).expressions.If(condition, expression, none)

    def _answer(self, function: J) -> tuple[tuple[Column, ...], Scalar | None]:
        """Spark's own buffers and final expression of a declarative aggregate; none for the others."""
        if not catalyst.is_a(self._spark, function, "expressions.aggregate.DeclarativeAggregate"):
            return (), None
        attributes = catalyst.sequence(function.aggBufferAttributes())
        buffers = tuple(self._names.column(a, f"{a.name()}_buffer") for a in attributes)
        return buffers, self._scalars.scalar(function.evaluateExpression())


def valued(expression: J) -> J:
    """The value of an argument: a listagg's order is an expression in a direction."""
    return expression.child() if catalyst.kind(expression) == "SortOrder" else expression
