"""Wrap the calls into Spark's Catalyst that the other packages need, through Py4J (D-001, D-245).

Spark's internals change between releases, so Spark is pinned and these calls are kept together. `J` marks an opaque JVM
object; only `language/` and `dataflow/lowering.py` use its methods. `JavaError` lists the exceptions of such a call.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, cast

from py4j import protocol  # pyright: ignore[reportMissingTypeStubs]
from py4j.java_gateway import (  # pyright: ignore[reportMissingTypeStubs]
    JavaClass,
    JavaPackage,
    is_instance_of,  # pyright: ignore[reportUnknownVariableType]
)
from py4j.protocol import Py4JJavaError  # pyright: ignore[reportMissingTypeStubs]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.column import Column
from pyspark.sql.types import StructType

J = Any
JavaError = (Py4JJavaError, PySparkException)


OBJECT = "$.MODULE$"
CONS = "$colon$colon"  # Scala's `::`, which puts an item before a list
SQL_PACKAGE = "org.apache.spark.sql"
# classes that PySpark looks up in the JVM for each column, aggregate and DataFrame
PYSPARK_CLASSES = (
    "PythonUtils",
    "PythonSQLUtils",
    "functions",
    f"{SQL_PACKAGE}.functions",
    f"{SQL_PACKAGE}.classic.SparkSession",
    f"{SQL_PACKAGE}.classic.SparkSession$",
)


RELEASE = "m\nd\n{}\ne\n"  # Py4J's message that releases a Java object
RELEASED_AT_ONCE = 200
PLAIN = (str, int, bool, float, type(None))  # types of arguments that Py4J sends as they are


class Converters:
    """The converters of Py4J's arguments as a single one, which leaves texts and numbers alone.

    Py4J asks all of them, ten with PySpark's, about each argument, which takes 0.05 to 0.2 ms for a text.
    """

    def __init__(self, converters: Iterable[J]) -> None:
        self._converters = tuple(converters)

    def can_convert(self, value: object) -> bool:
        """Return whether the value becomes another object of Java than Py4J makes of it."""
        return type(value) not in PLAIN and self._of(value) is not None

    def convert(self, value: object, client: J) -> J:
        """Return the Java object of a value that can be converted."""
        converter = self._of(value)
        assert converter is not None
        return converter.convert(value, client)

    def _of(self, value: object) -> J | None:
        return next((converter for converter in self._converters if converter.can_convert(value)), None)


class Package:
    """A Java package or class whose members are looked up once, since Py4J asks the JVM at every mention."""

    def __init__(self, package: J) -> None:
        self._package = package

    def __call__(self, *arguments: J) -> J:
        """Return a new object of the class."""
        return self._package(*arguments)

    def __getattr__(self, name: str) -> J:
        if name.endswith(OBJECT):
            member = getattr(getattr(self._package, name.removesuffix(".MODULE$")), "MODULE$")
        else:
            member = getattr(self._package, name)
        if isinstance(member, JavaPackage | JavaClass):
            member = Package(member)
        setattr(self, name, member)
        return member


def module(package: Package, name: str) -> J:
    """Return a Scala object (`object Name`) as Py4J reaches it."""
    return getattr(package, name + OBJECT)


@lru_cache(maxsize=2)
def packages(java: J) -> Package:
    """Return the root of all Java packages of a JVM."""
    return Package(java)


def jvm(spark: SparkSession) -> J:
    """Return the Java packages of Spark's JVM."""
    return packages(cast(Any, spark)._jvm)


def remember_classes(java: J) -> None:
    """Make PySpark look up its own classes and their methods once; each look-up takes 0.1 to 0.5 ms."""
    for name in PYSPARK_CLASSES:
        setattr(java, name, Package(getattr(java, name)))


def convert_plain_values_at_once() -> None:
    """Make Py4J send texts and numbers without asking its converters about each, in this whole process (D-206)."""
    converters: list[Any] = cast(Any, protocol).INPUT_CONVERTER
    if not any(isinstance(converter, Converters) for converter in converters):
        converters[:] = [Converters([*converters])]


def release_objects_in_batches(gateway: J) -> None:
    """Make Py4J's thread release Java objects that Python no longer uses many at once (D-218).

    Does nothing to a gateway whose Python threads share connections, which has no such thread.
    """
    client = gateway._gateway_client
    waiting = getattr(client, "finalizer_deque", None)
    if waiting is None:
        return

    def release(target: str, enqueue: bool = True) -> None:  # noqa: FBT001, FBT002  as Py4J calls it
        if enqueue:
            waiting.appendleft((client, target))
            return
        targets = [target]
        while len(targets) < RELEASED_AT_ONCE and waiting:
            task = waiting.pop()
            if not isinstance(task, tuple):
                waiting.append(task)  # the end of the thread
                break
            targets.append(cast(Any, task)[1])
        _release(client, targets)

    client.garbage_collect_object = release


def _release(client: J, targets: list[str]) -> None:
    """Send the messages that release objects at once, then read their answers."""
    if not client.is_connected:
        return
    connection = None
    try:
        connection = client._get_connection()
        connection.socket.sendall("".join(map(RELEASE.format, targets)).encode())
        for _ in targets:
            connection.stream.readline()
        client._give_back_connection(connection)
    except Exception as error:  # the JVM has ended, which the next call reports, or refuses: the thread goes on
        if connection is not None:
            connection.close()
        logging.getLogger(__name__).debug("Java objects were not released: %s", error)


def is_java_instance(java: J, name: str) -> bool:
    """Return whether a Java object is of a class or interface."""
    return bool(is_instance_of(cast(Any, SparkContext)._gateway, java, name))


def session(spark: SparkSession) -> J:
    """Return the Scala SparkSession behind Python's."""
    return cast(Any, spark)._jsparkSession


def activate(spark: SparkSession) -> J:
    """Make the Scala SparkSession the active one of this thread, where Delta's code looks for it, and return it."""
    active = session(spark)
    sql(spark).classic.SparkSession.setActiveSession(active)
    return active


def context(spark: SparkSession) -> J:
    """Return the Scala SparkContext."""
    return cast(Any, spark.sparkContext)._jsc.sc()


def default_file_system(spark: SparkSession) -> str:
    """Return the URI of the file system where Spark looks for a path that names none."""
    return str(session(spark).sessionState().newHadoopConf().get("fs.defaultFS"))


def schema_of(ddl: str) -> StructType:
    """Parse the schema of DDL text (`id int, price decimal(12,2)`)."""
    return cast(StructType, StructType.fromDDL(ddl))


def types_of(schema: StructType) -> dict[str, str]:
    """Return the name and the type of each column, without nullability."""
    return {field.name: field.dataType.simpleString() for field in schema}


def python_schema(schema: J) -> StructType:
    """Convert Scala's StructType to Python's, with the metadata of the columns."""
    return StructType.fromJson(json.loads(str(schema.json())))


def vector(spark: SparkSession, items: Iterable[J]) -> J:
    """Convert items to a Scala sequence; a few take two calls, since Java has a method for each number up to ten."""
    java = jvm(spark)
    listed = list(items)
    if len(listed) <= 1:
        nil = module(java.scala.collection.immutable, "Nil")
        return getattr(nil, CONS)(listed[0]) if listed else nil
    if len(listed) <= 10 and not any(item is None for item in listed):
        return java.org.apache.spark.api.python.PythonUtils.toSeq(java.java.util.List.of(*listed))
    builder = java.scala.collection.immutable.Vector.newBuilder()
    for item in listed:
        builder.addOne(item)
    return builder.result()


def sequence(items: J) -> list[J]:
    """Convert a Scala sequence to a Python list."""
    return [items.apply(i) for i in range(items.size())]


def option(value: J) -> J | None:
    """Return the content of a Scala Option, None for Scala's None."""
    return value.get() if value.isDefined() else None


def kind(node: J) -> str:
    """Return the class name of a plan node or an expression (`Filter`, `AttributeReference`)."""
    return str(_simple_name(node._gateway_client)(node, ""))


@lru_cache(maxsize=2)
def _simple_name(client: J) -> J:
    """Return the method that names an object's class in one call; `getClass` makes another object to release."""
    return Package(JavaClass("org.apache.commons.lang3.ClassUtils", client)).getSimpleName


def catalyst(spark: SparkSession) -> Package:
    """Return the package org.apache.spark.sql.catalyst."""
    return sql(spark).catalyst


def sql(spark: SparkSession) -> Package:
    """Return the package org.apache.spark.sql."""
    return jvm(spark).org.apache.spark.sql


def dataset(frame: DataFrame) -> J:
    """Return the Scala Dataset behind Python's DataFrame."""
    return cast(Any, frame)._jdf


def execution(frame: DataFrame) -> J:
    """Return Spark's QueryExecution of a DataFrame: its plans and, after it ran, its metrics."""
    return dataset(frame).queryExecution()


def analysed_plan(frame: DataFrame) -> J:
    """Return Spark's analysed logical plan of a DataFrame."""
    return execution(frame).analyzed()


def optimised_plan(frame: DataFrame) -> J:
    """Return Spark's optimised logical plan of a DataFrame."""
    return execution(frame).optimizedPlan()


def rewrite(spark: SparkSession, expression: J, replace: Callable[[J], J | None]) -> J:
    """Replace every subtree of an expression for which `replace` returns another one, outermost first."""
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
    """Yield an expression and all its subexpressions, outermost first."""
    yield expression
    for child in sequence(expression.children()):
        yield from subexpressions(child)


def nodes(plan: J) -> Iterable[J]:
    """Yield a plan and all plans below it, those of subqueries too."""
    yield plan
    for below in (*sequence(plan.children()), *sequence(plan.subqueries())):
        yield from nodes(below)


def split_conjuncts(condition: J) -> list[J]:
    """Return the conditions that a condition is the conjunction of."""
    if kind(condition) != "And":
        return [condition]
    return [part for side in sequence(condition.children()) for part in split_conjuncts(side)]


def keeps_left(join: J) -> bool:
    """Return whether each row of a join is one of its left side, matched or not."""
    return str(join.joinType()).startswith(("LeftSemi", "LeftAnti", "LeftOuter", "LeftSingle", "ExistenceJoin"))


def relations_read(plan: J) -> list[J]:
    """Return the leaves of a plan: the relations that it reads."""
    return sequence(plan.collectLeaves())


def attribute(spark: SparkSession, name: str, data_type: J, identifier: J, *, nullable: bool) -> J:
    """Return an AttributeReference without qualifier."""
    expressions = catalyst(spark).expressions
    empty = module(sql(spark).types, "Metadata").empty()
    return expressions.AttributeReference(name, data_type, nullable, empty, identifier, vector(spark, []))


def alias(spark: SparkSession, expression: J, target: J) -> J:
    """Return `expression AS target`, with the name and the id of the attribute `target`."""
    nil = vector(spark, [])
    return catalyst(spark).expressions.Alias(expression, target.name(), target.exprId(), nil, none(spark), nil)


def new_alias(spark: SparkSession, expression: J, name: str) -> J:
    """Return `expression AS name`, with a new id."""
    nil = vector(spark, [])
    return catalyst(spark).expressions.Alias(expression, name, new_id(spark), nil, none(spark), nil)


def new_id(spark: SparkSession) -> J:
    """Return an ExprId that no other expression has."""
    return module(catalyst(spark).expressions, "NamedExpression").newExprId()


def some(spark: SparkSession, value: J) -> J:
    """Return Scala's Some of a value."""
    return jvm(spark).scala.Some(value)


def none(spark: SparkSession) -> J:
    """Return Scala's None."""
    return module(jvm(spark).scala, "None")


def isolate_session(spark: SparkSession) -> SparkSession:
    """Return a new session with the same settings and functions, and temporary views of its own."""
    return SparkSession(spark.sparkContext, session(spark).cloneSession())


def frame(spark: SparkSession, plan: J) -> DataFrame:
    """Return a DataFrame of a logical plan, which Spark analyses if it is unresolved."""
    dataset = sql(spark).classic.Dataset
    return DataFrame(dataset.ofRows(session(spark), plan), spark)


def again(rows: DataFrame) -> DataFrame | None:
    """Return the scan of a table under new attribute ids; None if the plan is not a scan alone."""
    plan = analysed_plan(rows)
    return frame(rows.sparkSession, plan.newInstance()) if kind(plan) == "LogicalRelation" else None


def parse_expression(spark: SparkSession, text: str) -> J:
    """Parse SQL text that Deltafold generated into an unresolved expression."""
    return session(spark).sessionState().sqlParser().parseExpression(text)


def parse_name(spark: SparkSession, name: str) -> tuple[str, ...]:
    """Return the parts of a table's name as SQL writes it. Raises JavaError."""
    return tuple(map(str, sequence(session(spark).sessionState().sqlParser().parseMultipartIdentifier(name))))


def parse_plan(spark: SparkSession, text: str) -> J:
    """Parse a user's SQL text into an unresolved plan."""
    return session(spark).sessionState().sqlParser().parsePlan(text)


def column(spark: SparkSession, expression: J) -> Column:
    """Return a DataFrame column of a Catalyst expression."""
    return Column(sql(spark).classic.ExpressionUtils.column(expression))


def is_orderable(spark: SparkSession, value: J) -> bool:
    """Return whether Spark can order the values of an expression."""
    ordering = module(catalyst(spark).expressions, "RowOrdering")
    return bool(ordering.isOrderable(vector(spark, [value])))


def is_a(spark: SparkSession, target: J, name: str) -> bool:
    """Return whether a Catalyst object is an instance of a class, named relative to org.apache.spark.sql.catalyst."""
    java_class = jvm(spark).java.lang.Class.forName(f"org.apache.spark.sql.catalyst.{name}")
    return bool(java_class.isInstance(target))
