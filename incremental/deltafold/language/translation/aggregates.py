"""Translate Catalyst's Aggregate into projection, group-by and projection (MRQL's factoring, section 9).

In `Project(Aggregate(Project(child)))`, the inner projection computes the group keys and the arguments, every aggregate
is a `Call`, and the outer projection computes the expressions around the aggregates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession

from deltafold.algebra.monoids.declared import DeclaredMonoid
from deltafold.algebra.monoids.family import infer_monoid
from deltafold.algebra.plan import Aggregate, Call, Column, Item, Plan, Project, Reference, Scalar
from deltafold.algebra.traversal import pass_columns
from deltafold.language.determinism.order_sensitive_aggregates import (
    COLLECTIONS,
    EXTREMES_BY,
    orderable_equivalent,
)
from deltafold.language.inner_plans import has_subquery
from deltafold.language.monoids import FoldedCall, find_fold
from deltafold.language.names import Names, type_text
from deltafold.language.translation.scalars import Scalars
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

INTEGER_CLASSES = {"ByteType$", "ShortType$", "IntegerType$", "LongType$"}
FIRST_SEEN = {"First", "Last", "NthValue"}  # they take the first row that they see
MOMENTS = {"StddevSamp", "StddevPop", "VarianceSamp", "VariancePop", "CovSample", "CovPopulation", "Corr"}


JoinSubqueries = Callable[[Plan, list[J]], tuple[Plan, list[J]]]
"""Joins a plan with the scalar subqueries of expressions, and replaces these by columns of the join."""


class Aggregates:
    """Translates the Aggregate nodes of one query."""

    def __init__(
        self, spark: SparkSession, names: Names, scalars: Scalars, monoids: Mapping[str, DeclaredMonoid]
    ) -> None:
        self._spark = spark
        self._names = names
        self._scalars = scalars
        self._monoids = monoids
        self._mode = "ansi" if spark.conf.get("spark.sql.ansi.enabled") == "true" else "legacy"

    def translate(self, node: J, child: Plan, join_subqueries: JoinSubqueries) -> Plan:
        """Return the three nodes of one Catalyst Aggregate over `child`; subqueries are joined below or above it."""
        below: list[Item] = []
        child, outputs = self._join_arguments(child, catalyst.sequence(node.aggregateExpressions()), join_subqueries)
        child, groupings = join_subqueries(child, catalyst.sequence(node.groupingExpressions()))
        keys = tuple(dict.fromkeys(self._key(expression, below) for expression in groupings))
        calls: dict[J, Call] = {}
        columns = [self._names.column(node.toAttribute()) for node in outputs]
        answers = [self._without_calls(node, calls, below) for node in outputs]
        needed = dict.fromkeys([*keys, *(c for call in calls.values() for c in call.arguments)])
        computed = {item.column.name: item for item in below}
        inputs = tuple(computed.get(item.column.name, item) for item in pass_columns(needed))
        grouped = Aggregate(Project(child, inputs) if below else child, keys, tuple(calls.values()))
        joined, answers = join_subqueries(grouped, answers)
        above = [Item(column, self._scalars.scalar(e)) for column, e in zip(columns, answers, strict=True)]
        return grouped if tuple(above) == pass_columns(grouped.columns) else Project(joined, tuple(above))

    def _join_arguments(self, child: Plan, outputs: list[J], join_subqueries: JoinSubqueries) -> tuple[Plan, list[J]]:
        """Join the subqueries within aggregates, whose values the rows below need."""

        def replace(node: J) -> J | None:
            nonlocal child
            if catalyst.kind(node) != "AggregateExpression" or not has_subquery(self._spark, node):
                return None
            child, (aggregate,) = join_subqueries(child, [node])
            return aggregate

        outputs = [catalyst.rewrite(self._spark, output, replace) for output in outputs]
        return child, outputs

    def _key(self, expression: J, below: list[Item]) -> Column:
        if catalyst.kind(expression) == "AttributeReference":
            return self._names.column(expression)
        return self._compute_column(expression, "key", below)

    def _compute_column(self, expression: J, wish: str, below: list[Item]) -> Column:
        """Return the column of the inner projection for an expression, one for equal expressions."""
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
        """Return the output expression with each aggregate replaced by the column of its answer."""
        expression = named.child() if catalyst.kind(named) == "Alias" else named

        def replace(node: J) -> J | None:
            fold = find_fold(node, self._monoids)
            if fold is None and catalyst.kind(node) != "AggregateExpression":
                return None
            canonical = node.canonicalized()
            if canonical not in calls:
                # an output that consists of the aggregate alone gives it its name
                column = self._names.column(named.toAttribute()) if node.equals(expression) else None
                calls[canonical] = self._fold(fold, below, column) if fold else self._call(node, below, column)
            return self._names.attribute(calls[canonical].column)

        return catalyst.rewrite(self._spark, expression, replace)

    def _call(self, node: J, below: list[Item], column: Column | None) -> Call:
        function = node.aggregateFunction()
        name = catalyst.kind(function)
        condition = catalyst.option(node.filter())
        buffers, answer = self._answer(function)
        text = self._scalars.text(node)
        mode = self._overflow_mode(function)
        expressions = [self._argument(name, e) for e in catalyst.sequence(function.children())]
        types = tuple(type_text(e.dataType()) for e in expressions)
        if condition is not None and expressions and infer_monoid(name.lower(), types, mode, len(buffers)) is not None:
            # an aggregate that merges ignores NULL, so FILTER becomes a NULL argument (the last, which orders max_by)
            expressions[-1] = self._null_unless(condition, expressions[-1])
            condition = None
        arguments = tuple(self._compute_column(_without_direction(e), f"{name.lower()}_of", below) for e in expressions)
        self._forbid_order_sensitive(name, text, expressions, types)
        column = column or self._names.expression(function, name)
        distinct = bool(node.isDistinct()) and name not in ("Min", "Max")
        test = None if condition is None else self._compute_column(condition, "filter", below)
        handle = self._handle(node, expressions, arguments, test, distinct=distinct)
        read = arguments if test is None else (*arguments, test)
        return Call(
            column=column,
            function=name.lower(),
            arguments=read,
            text=text,
            buffers=buffers,
            answer=answer,
            distinct=distinct,
            mode=mode,
            handle=handle,
        )

    def _fold(self, fold: FoldedCall, below: list[Item], column: Column | None) -> Call:
        """Return the call of a declared monoid, whose one buffer is the merged value."""
        monoid = fold.monoid
        condition = catalyst.option(fold.collected.filter())
        value = fold.collected.aggregateFunction().child()
        if condition is not None:
            value = self._null_unless(condition, value)
        argument = self._compute_column(value, f"{monoid.name}_of", below)
        distinct = bool(fold.collected.isDistinct())
        collected = self._handle(fold.collected, [value], (argument,), None, distinct=distinct)
        column = column or self._names.expression(fold.value, monoid.name)
        buffer = self._names.expression(fold.value, f"{monoid.name}_buffer")
        return Call(
            column=column,
            function=f"monoid {monoid.digest}",
            arguments=(argument,),
            text=f"{monoid.name}({self._scalars.text(fold.collected)})",
            buffers=(buffer,),
            answer=Reference(buffer),
            distinct=distinct,
            mode=self._mode,
            handle=fold.over(self._spark, collected),
            declared=monoid,
        )

    def _forbid_order_sensitive(self, name: str, text: str, expressions: list[J], types: tuple[str, ...]) -> None:
        """Record the reason against an aggregate whose answer no rule makes deterministic."""
        if name in FIRST_SEEN:
            self._scalars.forbid(text, "its value depends on the order of the rows", "use min, max, min_by or max_by")
        if name in EXTREMES_BY and orderable_equivalent(self._spark, expressions[0]) is None:
            because = f"which of several {types[0]} it returns depends on the order of the rows"
            self._scalars.forbid(text, because, "take to_json of the value, which can be ordered")
        if name in COLLECTIONS | {"Mode"} and not catalyst.is_orderable(self._spark, expressions[0]):
            because = f"it depends on the order of the rows, and values of type {types[0]} cannot be ordered"
            self._scalars.forbid(text, because, "take to_json of the value, which can be ordered")

    def _handle(
        self, node: J, expressions: list[J], arguments: tuple[Column, ...], test: Column | None, *, distinct: bool
    ) -> J:
        """Return Spark's aggregate over the argument columns; constant arguments stay constants."""
        children = [
            e if e.foldable() else self._substitute(e, self._names.attribute(column))
            for e, column in zip(expressions, arguments, strict=True)
        ]
        function = node.aggregateFunction()
        if children:
            function = function.withNewChildren(catalyst.vector(self._spark, children))
        none = catalyst.none(self._spark)
        condition = none if test is None else catalyst.some(self._spark, self._names.attribute(test))
        expression = catalyst.catalyst(self._spark).expressions.aggregate.AggregateExpression
        return expression(function, node.mode(), distinct, condition, node.resultId())

    def _substitute(self, expression: J, attribute: J) -> J:
        """Return a column in place of an expression; in an order, in place of the ordered expression."""
        if catalyst.kind(expression) != "SortOrder":
            return attribute
        return expression.withNewChildren(catalyst.vector(self._spark, [attribute]))

    def _overflow_mode(self, function: J) -> str:
        """Return Spark's overflow mode of an aggregate: ansi, legacy or try."""
        match catalyst.kind(function):
            case "Sum" | "Average":  # an EvalMode, or since Spark 4.1 a NumericEvalContext of one
                mode = function.productElement(1)
                mode = mode.evalMode() if catalyst.kind(mode) == "NumericEvalContext" else mode
                return str(mode.toString()).lower()
            case _:
                return self._mode

    def _argument(self, name: str, expression: J) -> J:
        """Undo the widening of integers to double for moments: the integers can be summed exactly."""
        if name in MOMENTS and catalyst.kind(expression) == "Cast":
            child = expression.child()
            if catalyst.kind(child.dataType()) in INTEGER_CLASSES:
                return child
        return expression

    def _null_unless(self, condition: J, expression: J) -> J:
        none = catalyst.module(catalyst.catalyst(self._spark).expressions, "Literal").create(
            None, expression.dataType()
        )
        return catalyst.catalyst(self._spark).expressions.If(condition, expression, none)

    def _answer(self, function: J) -> tuple[tuple[Column, ...], Scalar | None]:
        """Return Spark's own buffers and final expression of a declarative aggregate; none for the others."""
        if not catalyst.is_a(self._spark, function, "expressions.aggregate.DeclarativeAggregate"):
            return (), None
        attributes = catalyst.sequence(function.aggBufferAttributes())
        buffers = tuple(self._names.column(a, f"{a.name()}_buffer") for a in attributes)
        return buffers, self._scalars.scalar(function.evaluateExpression())


def _without_direction(expression: J) -> J:
    """Return the value of an argument: the order of a listagg is an expression with a direction."""
    return expression.child() if catalyst.kind(expression) == "SortOrder" else expression
