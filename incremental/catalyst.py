"""The bridge to Spark's Catalyst, below the rooms that need it. In: a session and JVM objects. Out: small Python answers.

Everything here is Py4J over Spark's internals (Spark is pinned); `J` marks a JVM object that only the language room and
the runtime's lowering look into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.column import Column

J = Any


def vector(spark: SparkSession, items: Iterable[J]) -> J:
    """A Scala Vector of the items."""
    builder: J = spark._jvm.scala.collection.immutable.Vector.newBuilder()  # type: ignore[union-attr]
    for item in items:
        builder.addOne(item)
    return builder.result()


def module(package: J, name: str) -> J:
    """A Scala object (`object Name`) as Py4J reaches it."""
    return getattr(getattr(package, name + "$"), "MODULE$")


def sequence(items: J) -> list[J]:
    """A Python list of a Scala sequence."""
    return [items.apply(i) for i in range(items.size())]


def option(value: J) -> J | None:
    """The content of a Scala Option."""
    return value.get() if value.isDefined() else None


def kind(node: J) -> str:
    """The class name of a plan node or an expression (`Filter`, `AttributeReference`)."""
    return str(node.getClass().getSimpleName())


def catalyst(spark: SparkSession) -> J:
    """The package org.apache.spark.sql.catalyst."""
    return spark._jvm.org.apache.spark.sql.catalyst  # type: ignore[union-attr]


def analysed(frame: DataFrame) -> J:
    """Spark's analysed logical plan of a DataFrame."""
    return frame._jdf.queryExecution().analyzed()


def rewrite(spark: SparkSession, expression: J, replace: Callable[[J], J | None]) -> J:
    """The expression with every subtree for which `replace` has an answer replaced, outermost first."""
    replaced = replace(expression)
    if replaced is not None:
        return replaced
    children = expression.children()
    count = children.size()
    if count == 0:
        return expression
    old = [children.apply(i) for i in range(count)]
    new = [rewrite(spark, child, replace) for child in old]
    if all(a is b for a, b in zip(old, new, strict=True)):
        return expression
    return expression.withNewChildren(vector(spark, new))


def nodes(expression: J) -> Iterable[J]:
    """Every subexpression, outermost first."""
    yield expression
    for child in sequence(expression.children()):
        yield from nodes(child)


def attribute(spark: SparkSession, name: str, data_type: J, nullable: bool, identifier: J) -> J:
    """An AttributeReference without qualifier."""
    expressions = catalyst(spark).expressions
    empty = module(spark._jvm.org.apache.spark.sql.types, "Metadata").empty()  # type: ignore[union-attr]
    return expressions.AttributeReference(name, data_type, nullable, empty, identifier, vector(spark, []))


def alias(spark: SparkSession, expression: J, target: J) -> J:
    """`expression AS target`, with the name and the identity of the attribute `target`."""
    nil = vector(spark, [])
    return catalyst(spark).expressions.Alias(expression, target.name(), target.exprId(), nil, none(spark), nil)


def some(spark: SparkSession, value: J) -> J:
    """Scala's Some of a value."""
    return spark._jvm.scala.Some(value)  # type: ignore[union-attr]


def none(spark: SparkSession) -> J:
    """Scala's None."""
    return module(spark._jvm.scala, "None")  # type: ignore[union-attr]


def isolated(spark: SparkSession) -> SparkSession:
    """A session with the same settings and functions, whose temporary views are its own."""
    return SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())  # type: ignore[attr-defined]


def frame(spark: SparkSession, plan: J) -> DataFrame:
    """A DataFrame of a logical plan; Spark analyses what is not resolved yet."""
    dataset = spark._jvm.org.apache.spark.sql.classic.Dataset  # type: ignore[union-attr]
    return DataFrame(dataset.ofRows(spark._jsparkSession, plan), spark)  # type: ignore[attr-defined]


def parsed(spark: SparkSession, text: str) -> J:
    """An unresolved expression of SQL text that the product itself wrote."""
    return spark._jsparkSession.sessionState().sqlParser().parseExpression(text)  # type: ignore[attr-defined]


def column(spark: SparkSession, expression: J) -> Column:
    """A DataFrame column of a Catalyst expression."""
    return Column(spark._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))  # type: ignore[union-attr]


def is_a(spark: SparkSession, target: J, name: str) -> bool:
    """Whether a Catalyst object is of a class below org.apache.spark.sql.catalyst."""
    java_class = spark._jvm.java.lang.Class.forName(f"org.apache.spark.sql.catalyst.{name}")  # type: ignore[union-attr]
    return bool(java_class.isInstance(target))
