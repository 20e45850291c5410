"""Add to the text of an expression the details that its SQL in Spark omits (D-034).

An expression's class has arguments that are not expressions: the schema that from_csv reads, IGNORE NULLS of lag, the
values of a PIVOT. They are appended to its SQL unless the SQL contains them, the session's settings decide them, or
they have their usual value. Of a class that is not named here all are appended. The text is part of fingerprints.
"""

from __future__ import annotations

import re

from py4j.java_gateway import JavaObject  # pyright: ignore[reportMissingTypeStubs]
from pyspark.sql import SparkSession

from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

# arguments that follow from settings and columns, only identify an expression within one run, or change no value
DERIVED = {
    "allowNullComparisonResult", "chunkBase64", "context", "exprId", "followThreeValuedLogic", "hidden", "hideSeed",
    "hint", "id", "inputAggBufferOffset", "legacyCalculation", "legacyCharsets", "legacyErrorAction", "legacyInterval",
    "legacyNegativeIndex", "mayHaveCountBug", "mutableAggBufferOffset", "needSingleJoin", "nullOnDivideByZero",
    "nullOnOverflow", "nullable", "numCols", "randomSeed", "resultId", "suggestedFuncOnFail", "timeZoneId",
    "useStringTypeWhenEmpty", "variantAllowDuplicateKeys",
}  # fmt: skip
# classes whose SQL is complete; a Python function has its digest
COMPLETE = {
    "AggregateExpression", "Alias", "AttributeReference", "Average", "BinaryPad", "BinaryPredicate", "CaseWhen",
    "CheckOverflow", "CheckOverflowInSum", "DecimalAddNoOverflowCheck", "DecimalDivideWithOverflowCheck",
    "GetArrayStructFields", "GetStructField", "ILike", "Invoke", "Like", "Literal", "MakeDecimal", "MaxMinByK",
    "NamedLambdaVariable", "NthValue", "Pmod", "PreciseTimestampConversion", "PythonUDAF", "PythonUDF",
    "PythonUDTF", "RaiseError", "Remainder", "ResolvedCollation", "ScalaAggregator", "ScalaUDAF", "ScalaUDF",
    "SortOrder", "SpecifiedWindowFrame", "StaticInvoke", "Sum", "TimestampAdd", "TimestampDiff",
    "VariableReference",
}  # fmt: skip
# the usual value of an argument, by its name or by class and name
USUAL = {
    "ignoreNulls": {"False"},
    "CollectList.ignoreNulls": {"True"},
    "CollectSet.ignoreNulls": {"True"},
    "options": {"Map()"},
    "reverse": {"False"},
    "Mode.reverseOpt": {"True"},  # set by determinism/order_sensitive_aggregates.py
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
    "UnaryMinus.failOnError": {"True", "False"},  # decided by the function that uses it
}
TYPES = {"dataType", "schema", "targetType"}
SQL_FUNCTION = "org.apache.spark.sql.catalyst.catalog.SQLFunction"
IDENTITY = re.compile(r"@[0-9a-f]+\b")  # of Java objects without a text of their own
ASKED = dict[str, tuple[tuple[int, str], ...]]()


class FingerprintDetails:
    """Finds the omitted details of expressions in a session; `ASKED`: the arguments to read, by class of expression."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        ansi = spark.conf.get("spark.sql.ansi.enabled") == "true"
        strict = {str(ansi)}
        mode = {"ANSI" if ansi else "LEGACY", "TRY"}
        by_mode = {"failOnError": strict, "ansiEnabled": strict, "legacySizeOfNull": {str(not ansi)}, "evalMode": mode}
        self._usual = {**by_mode, **USUAL}

    def of(self, node: J, kind: str, number: int, *, typed: bool) -> str:
        """Return the details of an expression; number: its number among its kind; typed: without its type."""
        details = ""
        which = "" if number == 1 else f" {number}"
        for position, name in self._find_omitted(node, kind):
            if typed and name in TYPES:
                continue
            text = self._value_text(node.productElement(position))
            if text and not self._is_usual(node, kind, name, text):
                details += f" ~ {name}{which} {text}"
        if kind == "JsonToStructs" and catalyst.kind(node.schema()) == "MapType":
            details += f" ~ of {node.child().sql()}"  # the SQL of all such expressions is one word
        return details

    def _find_omitted(self, node: J, kind: str) -> tuple[tuple[int, str], ...]:
        """Return position and name of the arguments that the SQL may omit; it never omits children."""
        if kind not in ASKED:
            names = [] if kind in COMPLETE else str(node.productElementNames().mkString(" ")).split()
            ASKED[kind] = tuple(
                (position, name)
                for position, name in enumerate(names)
                if name not in DERIVED and not self._is_tree(node.productElement(position))
            )
        return ASKED[kind]

    def _is_usual(self, node: J, kind: str, name: str, text: str) -> bool:
        match kind, name:
            case "Cast", "dataType":
                return "<" not in text or not self._is_written(node)  # the SQL omits casts to nested types
            case "ElementAt", "failOnError" if node.defaultValueOutOfBound().isDefined():
                return True  # of split_part, whose text is unique
            case _:
                return text in self._usual.get(f"{kind}.{name}", self._usual.get(name, ()))

    def _is_written(self, cast: J) -> bool:
        """Return whether a cast is written in the query; others follow from types and functions."""
        tag = catalyst.module(catalyst.catalyst(self._spark).expressions, "Cast").USER_SPECIFIED_CAST()
        return bool(cast.getTagValue(tag).isDefined())

    def _value_text(self, value: J) -> str:
        """Return the text of an argument; empty if it is absent or consists of expressions and plans."""
        if not isinstance(value, JavaObject):
            return "" if value is None else repr(value)
        java: J = value
        name = str(java.getClass().getName())
        if name.startswith("org.apache.spark.sql.types."):
            return str(java.sql())
        if name == SQL_FUNCTION:  # its text has the time at which it was created
            parts = java.name().funcName(), java.inputParam(), java.returnType(), java.exprText()
            return " ".join(str(part if isinstance(part, str) else part.toString()) for part in parts)
        if name.startswith("scala.") and self._is(java, "scala.Option"):
            return "" if java.isEmpty() or self._is_tree(java.get()) else self._value_text(java.get())
        if name.startswith("scala.") and self._is(java, "scala.collection.Seq"):
            items = [self._value_text(item) for item in catalyst.sequence(java) if not self._is_tree(item)]
            return str(items) if items else ""
        return IDENTITY.sub("", str(java.toString()))

    def _is_tree(self, value: J) -> bool:
        """Return whether a value is an expression or a plan, which the SQL or the algebra contains."""
        return self._is(value, "org.apache.spark.sql.catalyst.trees.TreeNode")

    def _is(self, value: J, name: str) -> bool:
        java_class = catalyst.jvm(self._spark).java.lang.Class
        return isinstance(value, JavaObject) and bool(java_class.forName(name).isInstance(value))
