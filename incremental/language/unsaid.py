"""Language room: what Spark's SQL of an expression leaves out. In: a Catalyst expression. Out: text that tells it.

An expression's class has arguments that are no expressions: the schema that from_csv reads, IGNORE NULLS of lag, the
values of a PIVOT. They are told after its SQL, unless that says them, the session's settings decide them, or they are
what they usually are. Of a class that is not named here all are told.
"""

from __future__ import annotations

import re

from py4j.java_gateway import JavaObject  # pyright: ignore[reportMissingTypeStubs]
from pyspark.sql import SparkSession

from incremental.spark import catalyst
from incremental.spark.catalyst import J

# Arguments that follow from settings and columns, that only name an expression within one run, or change no value.
FOLLOWING = {
    "allowNullComparisonResult", "chunkBase64", "context", "exprId", "followThreeValuedLogic", "hidden", "hideSeed",
    "hint", "id", "inputAggBufferOffset", "legacyCalculation", "legacyCharsets", "legacyErrorAction", "legacyInterval",
    "legacyNegativeIndex", "mayHaveCountBug", "mutableAggBufferOffset", "needSingleJoin", "nullOnDivideByZero",
    "nullOnOverflow", "nullable", "numCols", "randomSeed", "resultId", "suggestedFuncOnFail", "timeZoneId",
    "useStringTypeWhenEmpty", "variantAllowDuplicateKeys",
}  # fmt: skip
# Classes whose SQL says all; of a Python function its digest does.
SAID = {
    "AggregateExpression", "Alias", "AttributeReference", "Average", "BinaryPad", "BinaryPredicate", "CaseWhen",
    "CheckOverflow", "CheckOverflowInSum", "DecimalAddNoOverflowCheck", "DecimalDivideWithOverflowCheck",
    "GetArrayStructFields", "GetStructField", "ILike", "Invoke", "Like", "Literal", "MakeDecimal", "MaxMinByK",
    "NamedLambdaVariable", "NthValue", "Pmod", "PreciseTimestampConversion", "PythonUDAF", "PythonUDF",
    "PythonUDTF", "RaiseError", "Remainder", "ResolvedCollation", "ScalaAggregator", "ScalaUDAF", "ScalaUDF",
    "SortOrder", "SpecifiedWindowFrame", "StaticInvoke", "Sum", "TimestampAdd", "TimestampDiff",
    "VariableReference",
}  # fmt: skip
# What an argument usually is, by its name or by class and name.
USUAL = {
    "ignoreNulls": {"False"},
    "CollectList.ignoreNulls": {"True"},
    "CollectSet.ignoreNulls": {"True"},
    "options": {"Map()"},
    "reverse": {"False"},
    "Mode.reverseOpt": {"True"},  # which choices.py settles
    "HyperLogLogPlusPlus.relativeSD": {"0.05"},
    "seed": {"42"},
    "GetTimestamp.dataType": {"TIMESTAMP"},
    "MakeTimestamp.dataType": {"TIMESTAMP"},
    "VariantGet.targetType": {"VARIANT"},
    "VariantGet.failOnError": {"True", "False"},  # the function is called try_variant_get
    "evalContext": {
        f"NumericEvalContext({mode},{exact})" for mode in ("ANSI", "LEGACY") for exact in ("true", "false")
    },
    "CallMethodViaReflection.failOnError": {"True"},
    "UnBase64.failOnError": {"False"},
    "Unhex.failOnError": {"False"},
    "UrlDecode.failOnError": {"True"},
    "UnaryMinus.failOnError": {"True", "False"},  # the function decides that uses it
}
TYPES = {"dataType", "schema", "targetType"}
IDENTITY = re.compile(r"@[0-9a-f]+\b")  # of Java's objects without a text of their own
known = dict[str, tuple[tuple[int, str], ...]]()


class Unsaid:
    """Tells what is unsaid of expressions in a session; `known`: which arguments instances of a class are asked for."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        ansi = spark.conf.get("spark.sql.ansi.enabled") == "true"
        strict, mode = {str(ansi)}, {"ANSI" if ansi else "LEGACY", "TRY"}
        by_mode = {"failOnError": strict, "ansiEnabled": strict, "legacySizeOfNull": {str(not ansi)}, "evalMode": mode}
        self._usual = {**by_mode, **USUAL}

    def of(self, node: J, kind: str, number: int, typed: bool) -> str:
        """What is to be told of the expression with a number among its kind; typed: its type is told beside it."""
        told, which = "", "" if number == 1 else f" {number}"
        for position, name in self._asked(node, kind):
            if typed and name in TYPES:
                continue
            text = self._shown(node.productElement(position))
            if text and not self._is_usual(node, kind, name, text):
                told += f" ~ {name}{which} {text}"
        if kind == "JsonToStructs" and catalyst.kind(node.schema()) == "MapType":
            told += f" ~ of {node.child().sql()}"  # the SQL of all such expressions is one word
        return told

    def _asked(self, node: J, kind: str) -> tuple[tuple[int, str], ...]:
        """Position and name of the arguments that may be untold; its children never are."""
        if kind not in known:
            names = [] if kind in SAID else str(node.productElementNames().mkString(" ")).split()
            asked = [(position, name) for position, name in enumerate(names) if name not in FOLLOWING]
            known[kind] = tuple(each for each in asked if not self._is_tree(node.productElement(each[0])))
        return known[kind]

    def _is_usual(self, node: J, kind: str, name: str, text: str) -> bool:
        match kind, name:
            case "Cast", "dataType":
                return "<" not in text or not self._is_written(node)  # no cast to what has parts is in the SQL
            case "ElementAt", "failOnError" if node.defaultValueOutOfBound().isDefined():
                return True  # of split_part, which nothing else reads like
            case _:
                return text in self._usual.get(f"{kind}.{name}", self._usual.get(name, ()))

    def _is_written(self, cast: J) -> bool:
        """Whether a cast stands in the query; where types and functions ask for one, they tell it."""
        tag = catalyst.module(catalyst.catalyst(self._spark).expressions, "Cast").USER_SPECIFIED_CAST()
        return bool(cast.getTagValue(tag).isDefined())

    def _shown(self, value: J) -> str:
        """The text of an argument; none of what is absent, and of expressions and plans in it."""
        if not isinstance(value, JavaObject):
            return "" if value is None else repr(value)
        given: J = value
        name = str(given.getClass().getName())
        if name.startswith("org.apache.spark.sql.types."):
            return str(given.sql())
        if name.startswith("scala.") and self._is(given, "scala.Option"):
            return "" if given.isEmpty() or self._is_tree(given.get()) else self._shown(given.get())
        if name.startswith("scala.") and self._is(given, "scala.collection.Seq"):
            items = [self._shown(each) for each in catalyst.sequence(given) if not self._is_tree(each)]
            return str(items) if items else ""
        return IDENTITY.sub("", str(given.toString()))

    def _is_tree(self, value: J) -> bool:
        """Whether a value is an expression or a plan, which the SQL or the algebra has."""
        return self._is(value, "org.apache.spark.sql.catalyst.trees.TreeNode")

    def _is(self, value: J, name: str) -> bool:
        java_class = catalyst.jvm(self._spark).java.lang.Class
        return isinstance(value, JavaObject) and bool(java_class.forName(name).isInstance(value))
