"""Check declared monoids in Spark, create their SQL functions, and move their calls into the group-bys (D-098).

A call is a SQL function over a `collect_list` of its group-by. Spark analyses a SQL function of an aggregate as a
projection, or a filter for HAVING, above the group-by. Within the group-by the call is one aggregate, which a state can
keep.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pyspark.sql import SparkSession

from deltafold.algebra.errors import QueryError
from deltafold.algebra.monoids.declared import MARK, DeclaredMonoid
from deltafold.algebra.sources import is_name
from deltafold.algebra.sqltext import first_unstored_type, is_unordered
from deltafold.language.inner_plans import has_subquery, replace_children, replace_inner_plans
from deltafold.language.names import type_text
from deltafold.language.translation.scalars import find_undetermined
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J, JavaError
from deltafold.spark.java_errors import sentence_of_analysis


def register_monoids(spark: SparkSession, monoids: Iterable[DeclaredMonoid]) -> None:
    """Create the functions of monoids in a session, in place of others of their names.

    Raises QueryError for parts that may not be in a function, such as an aggregate.
    """
    for monoid in monoids:
        try:
            cast(Any, spark).sql(monoid.create_sql)
        except JavaError as error:
            because = f"Spark cannot create its function ({sentence_of_analysis(error)})"
            raise _fault(monoid, because, "Let its parts compute one value from their arguments") from None


def find_named(text: str, monoids: Mapping[str, DeclaredMonoid]) -> tuple[DeclaredMonoid, ...]:
    """Return the monoids whose names occur in a query text."""
    words = {word.lower() for word in re.findall(r"\w+", text)}
    return tuple(monoid for name, monoid in monoids.items() if name in words)


def analyse_monoid(spark: SparkSession, monoid: DeclaredMonoid) -> DeclaredMonoid:
    """Return a monoid with its types in Spark's spelling; runs no job.

    Raises QueryError for a name that is taken, for SQL that Spark cannot analyse or whose value is not fixed, and for
    types that cannot be stored or compared.
    """
    if not is_name(monoid.name):
        raise _fault(monoid, "its name is invalid", "Use letters, digits and underscores")
    if _is_foreign(spark, monoid.name):
        raise _fault(monoid, f"Spark has another function {monoid.name}", "Choose another name")
    typed = replace(
        monoid, type=_spell_type(spark, monoid, monoid.type), of=monoid.of and _spell_type(spark, monoid, monoid.of)
    )
    if is_unordered(typed.type):
        because = f"its laws cannot be checked, since Spark does not compare values of type {typed.type}"
        raise _fault(monoid, because, "Use an array of structs")
    if (unstored := first_unstored_type(typed.type)) is not None:
        raise _fault(monoid, f"Delta does not store values of type {unstored}", "Use another type")
    for part, sql, whole in _definition_parts(typed):
        _check_part(spark, typed, part, sql, whole)
    _check_zero(spark, typed)
    return typed


def _spell_type(spark: SparkSession, monoid: DeclaredMonoid, ddl: str) -> str:
    """Return a type in Spark's spelling; raises QueryError for another text."""
    try:
        return type_text(catalyst.sql(spark).types.DataType.fromDDL(ddl))
    except JavaError:
        raise _fault(monoid, f"{ddl!r} is not a type", "Write a type of Spark's, such as ARRAY<INT>") from None


def _definition_parts(monoid: DeclaredMonoid) -> list[tuple[str, str, str]]:
    """Return the name, the SQL, and the SQL over typed NULLs of each part of a definition."""
    merged = f"CAST(NULL AS {monoid.type})"
    collected = f"CAST(NULL AS {monoid.of_type})"
    parts = [("zero", monoid.zero, monoid.zero_sql), ("plus", monoid.plus, monoid.plus_sql(merged, merged))]
    if monoid.unit is not None:
        parts.append(("unit", monoid.unit, monoid.unit_sql(collected)))
    if monoid.inverse is not None:
        parts.append(("inverse", monoid.inverse, monoid.inverse_sql(merged)))
    if monoid.unit is None:
        parts.append(("unit", "x", f"CAST({collected} AS {monoid.type})"))
    return parts


def _check_part(spark: SparkSession, monoid: DeclaredMonoid, part: str, sql: str, whole: str) -> None:
    """Raise QueryError for a part that is not one expression with a fixed value."""
    try:
        catalyst.parse_expression(spark, sql)
        frame = cast(Any, spark).sql(f"SELECT {whole} AS value")
    except JavaError as error:
        if part == "unit" and monoid.unit is None:
            because = f"without a unit, x of type {monoid.of_type} would be its value, of type {monoid.type}"
            raise _fault(monoid, because, "Give `unit`, SQL of x, such as array(x)") from None
        raise _fault(
            monoid, f"Spark cannot analyse {part} ({sentence_of_analysis(error)})", f"Correct {part}"
        ) from None
    for expression in catalyst.sequence(catalyst.analysed_plan(frame).expressions()):
        if has_subquery(spark, expression):
            raise _fault(monoid, f"{part} contains a subquery", "Use constants and its arguments alone")
        if (undetermined := find_undetermined(expression)) is not None:
            _, because, instead = undetermined
            raise _fault(monoid, f"{part} is not fixed, since {because}", f"{instead[0].upper()}{instead[1:]}")


def _check_zero(spark: SparkSession, monoid: DeclaredMonoid) -> None:
    """Raise QueryError for a zero that is not a value of its type; Spark computes it without a job."""
    try:
        cast(Any, spark).sql(f"SELECT {monoid.zero_sql} AS value").collect()
    except JavaError as error:
        because = f"its zero is not a value of type {monoid.type} ({sentence_of_analysis(error)})"
        raise _fault(monoid, because, "Correct zero or the type") from None


def _is_foreign(spark: SparkSession, name: str) -> bool:
    """Return whether a session has a function of this name that is not a declared monoid's."""
    catalog = catalyst.session(spark).sessionState().catalog()
    identifier = catalyst.catalyst(spark).FunctionIdentifier(name)
    if not catalog.functionExists(identifier):
        return False
    return MARK not in str(catalog.lookupFunctionInfo(identifier).getUsage())


def _fault(monoid: DeclaredMonoid, because: str, instead: str) -> QueryError:
    """Return the error of a declaration."""
    return QueryError(f"monoid {monoid.name}: {because}. {instead}.")


SQL_FUNCTION_NODE = "SQLScalarFunction"  # Spark's node around the body of a SQL function


@dataclass(frozen=True)
class FoldedCall:
    """A call of a monoid's function.

    call: Spark's node of it; collected: the collect_list that it folds.
    """

    monoid: DeclaredMonoid
    call: J
    collected: J

    @property
    def value(self) -> J:
        """The body of the function."""
        return self.call.child()

    def over(self, spark: SparkSession, collected: J) -> J:
        """Return the body over another collect_list."""
        return catalyst.rewrite(spark, self.value, lambda node: collected if node.equals(self.collected) else None)


def find_fold(node: J, monoids: Mapping[str, DeclaredMonoid]) -> FoldedCall | None:
    """Return the call if an expression is one of a monoid over a collect_list; monoids: by their names in lower case.

    Other calls are ordinary functions of a row.
    """
    monoid = _find_monoid(node, monoids)
    if monoid is None:
        return None
    inside = ("Cast", "ArrayAggregate", *(("ArrayTransform",) if monoid.unit is not None else ()), "Cast")
    collected = _first_below(node.child(), inside)
    return FoldedCall(monoid, node, collected) if _is_collected(collected) else None


def folds_in_any_order(node: J) -> bool:
    """Return whether an expression is a call of a monoid's function over a list of the group."""
    if catalyst.kind(node) != SQL_FUNCTION_NODE:
        return False
    comment = catalyst.option(node.function().comment())
    inside = ("Cast", "ArrayAggregate", "ArrayTransform", "Cast")
    return comment is not None and MARK in str(comment) and _is_collected(_first_below(node.child(), inside))


def _find_monoid(node: J, monoids: Mapping[str, DeclaredMonoid]) -> DeclaredMonoid | None:
    """Return the monoid whose function an expression calls, with any argument."""
    if not monoids or catalyst.kind(node) != SQL_FUNCTION_NODE:
        return None
    return monoids.get(str(node.function().name().funcName()).lower())


def _is_collected(node: J) -> bool:
    """Return whether an expression is a collect_list."""
    return catalyst.kind(node) == "AggregateExpression" and catalyst.kind(node.aggregateFunction()) == "CollectList"


def _first_below(node: J, kinds: tuple[str, ...]) -> J:
    """Return the expression below functions of these kinds, as far as they are there, in this order."""
    for kind in kinds:
        if catalyst.kind(node) == kind:
            node = catalyst.sequence(node.children())[0]
    return node


def push_folds(spark: SparkSession, plan: J, monoids: Mapping[str, DeclaredMonoid]) -> J:
    """Return an analysed plan with the calls of monoids in its group-bys; the same plan without monoids."""
    return _Pushing(spark, monoids).rewrite(plan) if monoids else plan


class _Pushing:
    """Rewrites plans of one session."""

    def __init__(self, spark: SparkSession, monoids: Mapping[str, DeclaredMonoid]) -> None:
        self._spark = spark
        self._monoids = monoids
        self._logical: J = catalyst.catalyst(spark).plans.logical

    def rewrite(self, node: J) -> J:
        """Return a plan with its calls pushed, inputs and subqueries first."""
        node = replace_children(self._spark, node, self.rewrite)
        node = replace_inner_plans(self._spark, node, lambda plan, _: self.rewrite(plan))
        return self._push(node) if catalyst.kind(node) in ("Project", "Filter") else node

    def _push(self, node: J) -> J:
        """Return a projection or a filter that reads the calls from the group-by below it."""
        child = node.child()
        expressions = catalyst.sequence(node.expressions())
        calls = [part for e in expressions for part in catalyst.subexpressions(e) if _find_monoid(part, self._monoids)]
        for call in calls:
            if (pushed := self._into(child, call)) is not None:
                child, value = pushed
                expressions = [self._replace(e, {call: value}) for e in expressions]
        if child is node.child():
            return node
        if catalyst.kind(node) == "Project":
            return self._logical.Project(catalyst.vector(self._spark, expressions), child)
        return self._logical.Project(node.output(), self._logical.Filter(expressions[0], child))

    def _into(self, node: J, call: J) -> tuple[J, J] | None:
        """Return a node that has the call as a column, and that column; None if no group-by below collects its list."""
        match catalyst.kind(node):
            case "Filter":
                pushed = self._into(node.child(), call)
                return pushed and (node.withNewChildren(catalyst.vector(self._spark, [pushed[0]])), pushed[1])
            case "Project":
                items = catalyst.sequence(node.projectList())
                pushed = self._into(node.child(), self._over(call, items))
                return pushed and (self._logical.Project(self._extend(items, pushed[1]), pushed[0]), pushed[1])
            case "Aggregate":
                items = catalyst.sequence(node.aggregateExpressions())
                fold = find_fold(self._over(call, items), self._monoids)
                if fold is None:
                    return None
                data_type = fold.call.dataType()
                identifier = catalyst.new_id(self._spark)
                target = catalyst.attribute(
                    self._spark, fold.monoid.name, data_type, nullable=True, identifier=identifier
                )
                column = catalyst.alias(self._spark, fold.call, target)
                outputs = self._extend(items, column)
                grouped = self._logical.Aggregate(node.groupingExpressions(), outputs, node.child(), node.hint())
                return grouped, column.toAttribute()
            case _:
                return None

    def _over(self, call: J, items: Sequence[J]) -> J:
        """Return a call over the definitions of the columns that it reads."""
        return self._replace(call, {i.toAttribute(): i.child() for i in items if catalyst.kind(i) == "Alias"})

    def _replace(self, expression: J, values: Mapping[J, J]) -> J:
        def replace(node: J) -> J | None:
            return next((value for old, value in values.items() if node.semanticEquals(old)), None)

        return catalyst.rewrite(self._spark, expression, replace)

    def _extend(self, items: Sequence[J], column: J) -> J:
        return catalyst.vector(self._spark, [*items, column])
