"""The bridge to Spark's Catalyst, below the rooms that need it. In: a session and JVM objects. Out: Python answers.

Everything here is Py4J over Spark's internals (Spark is pinned); `J` marks a JVM object that only the language room and
the runtime's lowering look into. `JavaError` is what a call into Spark may raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import Any, cast

from py4j.java_gateway import JavaPackage  # pyright: ignore[reportMissingTypeStubs]
from py4j.protocol import Py4JJavaError  # pyright: ignore[reportMissingTypeStubs]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.column import Column
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.types import StructType

J = Any
JavaError = (Py4JJavaError, PySparkException)


OBJECT = "$.MODULE$"


class Package:
    """A Java package whose classes are looked up once: Py4J asks the JVM at every mention."""

    def __init__(self, package: J) -> None:
        self._package = package

    def __getattr__(self, name: str) -> J:
        if name.endswith(OBJECT):
            found = getattr(getattr(self._package, name.removesuffix(".MODULE$")), "MODULE$")
        else:
            found = getattr(self._package, name)
        if isinstance(found, JavaPackage):
            found = Package(found)
        setattr(self, name, found)
        return found


def module(package: Package, name: str) -> J:
    """A Scala object (`object Name`) as Py4J reaches it."""
    return getattr(package, name + OBJECT)


@lru_cache(maxsize=2)
def packages(java: J) -> Package:
    """All packages of one JVM."""
    return Package(java)


def jvm(spark: SparkSession) -> J:
    """Spark's Java, by package names."""
    return packages(cast(Any, spark)._jvm)


def session(spark: SparkSession) -> J:
    """Spark's own SparkSession behind Python's."""
    return cast(Any, spark)._jsparkSession


def activate(spark: SparkSession) -> J:
    """Spark's own SparkSession, made the one that Delta's code finds as the active one of this thread."""
    found = session(spark)
    sql(spark).classic.SparkSession.setActiveSession(found)
    return found


def context(spark: SparkSession) -> J:
    """Spark's own SparkContext."""
    return cast(Any, spark.sparkContext)._jsc.sc()


def default_file_system(spark: SparkSession) -> str:
    """The URI of the file system where Spark looks for a path that names none."""
    return str(session(spark).sessionState().newHadoopConf().get("fs.defaultFS"))


def schema_of(ddl: str) -> StructType:
    """The schema of DDL text (`id int, price decimal(12,2)`)."""
    return cast(StructType, StructType.fromDDL(ddl))


def vector(spark: SparkSession, items: Iterable[J]) -> J:
    """A Scala sequence of the items."""
    immutable = jvm(spark).scala.collection.immutable
    listed = list(items)
    if not listed:
        return module(immutable, "Nil")
    builder = immutable.Vector.newBuilder()
    for item in listed:
        builder.addOne(item)
    return builder.result()


def sequence(items: J) -> list[J]:
    """A Python list of a Scala sequence."""
    return [items.apply(i) for i in range(items.size())]


def option(value: J) -> J | None:
    """The content of a Scala Option."""
    return value.get() if value.isDefined() else None


def kind(node: J) -> str:
    """The class name of a plan node or an expression (`Filter`, `AttributeReference`)."""
    return str(node.getClass().getSimpleName())


def catalyst(spark: SparkSession) -> Package:
    """The package org.apache.spark.sql.catalyst."""
    return sql(spark).catalyst


def sql(spark: SparkSession) -> Package:
    """The package org.apache.spark.sql."""
    return jvm(spark).org.apache.spark.sql


def analysed(frame: DataFrame) -> J:
    """Spark's analysed logical plan of a DataFrame."""
    return cast(Any, frame)._jdf.queryExecution().analyzed()


def optimised(frame: DataFrame) -> J:
    """Spark's optimised logical plan of a DataFrame."""
    return cast(Any, frame)._jdf.queryExecution().optimizedPlan()


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


def subexpressions(expression: J) -> Iterable[J]:
    """Every subexpression, outermost first."""
    yield expression
    for child in sequence(expression.children()):
        yield from subexpressions(child)


def relations_read(plan: J) -> list[J]:
    """The relations that a plan reads."""
    return sequence(plan.collectLeaves())


def attribute(spark: SparkSession, name: str, data_type: J, nullable: bool, identifier: J) -> J:
    """An AttributeReference without qualifier."""
    expressions = catalyst(spark).expressions
    empty = module(sql(spark).types, "Metadata").empty()
    return expressions.AttributeReference(name, data_type, nullable, empty, identifier, vector(spark, []))


def alias(spark: SparkSession, expression: J, target: J) -> J:
    """`expression AS target`, with the name and the identity of the attribute `target`."""
    nil = vector(spark, [])
    return catalyst(spark).expressions.Alias(expression, target.name(), target.exprId(), nil, none(spark), nil)


def some(spark: SparkSession, value: J) -> J:
    """Scala's Some of a value."""
    return jvm(spark).scala.Some(value)


def none(spark: SparkSession) -> J:
    """Scala's None."""
    return module(jvm(spark).scala, "None")


def isolated(spark: SparkSession) -> SparkSession:
    """A session with the same settings and functions, whose temporary views are its own."""
    return SparkSession(spark.sparkContext, session(spark).cloneSession())


def frame(spark: SparkSession, plan: J) -> DataFrame:
    """A DataFrame of a logical plan; Spark analyses what is not resolved yet."""
    dataset = sql(spark).classic.Dataset
    return DataFrame(dataset.ofRows(session(spark), plan), spark)


def again(rows: DataFrame) -> DataFrame | None:
    """The same rows under identities of their own, where they are a table as it is read; else None."""
    plan = analysed(rows)
    return frame(rows.sparkSession, plan.newInstance()) if kind(plan) == "LogicalRelation" else None


def parsed(spark: SparkSession, text: str) -> J:
    """An unresolved expression of SQL text that the product itself wrote."""
    return session(spark).sessionState().sqlParser().parseExpression(text)


def parsed_plan(spark: SparkSession, text: str) -> J:
    """An unresolved plan of a user's SQL text."""
    return session(spark).sessionState().sqlParser().parsePlan(text)


def column(spark: SparkSession, expression: J) -> Column:
    """A DataFrame column of a Catalyst expression."""
    return Column(sql(spark).classic.ExpressionUtils.column(expression))


def is_a(spark: SparkSession, target: J, name: str) -> bool:
    """Whether a Catalyst object is of a class below org.apache.spark.sql.catalyst."""
    java_class = jvm(spark).java.lang.Class.forName(f"org.apache.spark.sql.catalyst.{name}")
    return bool(java_class.isInstance(target))


def is_temporary_view(spark: SparkSession, name: str) -> bool:
    """Whether the session has a temporary view of this name."""
    return bool(session(spark).sessionState().catalog().getTempView(name).isDefined())


def has_sql_functions(spark: SparkSession) -> bool:
    """Whether the session has temporary functions that are written in SQL, which may read its tables."""
    known = session(spark).sessionState().catalog()
    names = sequence(known.listTemporaryFunctions().toSeq())
    return any(str(known.lookupFunctionInfo(name).getSource()) == "sql_udf" for name in names)


def explicit_settings(spark: SparkSession) -> dict[str, str]:
    """What somebody has set of the session, in one call: Py4J takes one for each entry of a map."""
    lines = str(session(spark).conf().getAll().mkString("\0")).split("\0")
    return {key: value for key, _, value in (line.partition(" -> ") for line in lines)}


def deferred(spark: SparkSession, make: Callable[[], DataFrame]) -> DataFrame:
    """A frame that is made when it is first used."""
    return Deferred(spark, make)


class Deferred(ClassicDataFrame):
    """A frame whose Java object, which all its methods go through, is made when it is first asked for."""

    def __init__(self, spark: SparkSession, make: Callable[[], DataFrame]) -> None:
        super().__init__(cast(Any, None), spark)
        del self._jdf  # so that the property below is asked
        self._make = make

    @cached_property
    def _jdf(self) -> J:  # pyright: ignore[reportIncompatibleVariableOverride]
        return cast(Any, self._make())._jdf
