"""Compare Spark's expressions and operators over columns of different names, by Spark's own canonical forms.

Spark considers two expressions equal if their canonical forms are equal; these have no names, and the operands of
commutative operators in one order. Spark decides in the same way which exchanges it can reuse.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from deltafold.algebra.alignment import Equality
from deltafold.algebra.plan import GroupwiseOp
from deltafold.language.names import renumber
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

# their code is not in the plan (fingerprint/python_functions.py), and generators may have some
UNCOMPARED = "PYTHON_UDF", "SCALA_UDF", "GENERATOR"
ALL_FIELDS = 2**31 - 1


def are_same_plans(spark: SparkSession, one: J, other: J) -> bool:
    """Return whether two analysed plans over the same relations certainly compute the same, under the same names.

    False also for plans with functions in Python, Scala or Java, and for generators.
    """
    patterns = catalyst.catalyst(spark).trees.TreePattern
    if any(one.containsPattern(getattr(patterns, name)()) for name in UNCOMPARED):
        return False
    own_text, text = (renumber(_write_plan(spark, plan)) for plan in (one, other))
    return own_text == text and bool(one.canonicalized().equals(other.canonicalized()))


def _write_plan(spark: SparkSession, plan: J) -> str:
    """Return the whole text of a plan."""
    verbose = True
    add_suffix = print_operator_id = print_output_columns = False
    more = () if spark.version.startswith("4.0.") else (print_output_columns,)
    return str(plan.treeString(verbose, add_suffix, ALL_FIELDS, print_operator_id, *more))


class SparkEquality(Equality):
    """Compares the handles in a query's plan; attributes: Spark's attribute of each of its columns."""

    def __init__(self, spark: SparkSession, attributes: Mapping[str, J]) -> None:
        self._spark = spark
        self._attributes = attributes

    def expressions(self, one: J, other: J, names: Mapping[str, str]) -> bool:
        """Return whether two expressions are equal; names: the other's columns by those of the one."""
        attributes = {name: self._attributes.get(equal) for name, equal in names.items()}
        if None in attributes.values():  # a column that the compiler made, which no expression of the query has
            return False

        def substitute(node: J) -> J | None:
            return attributes.get(str(node.name())) if catalyst.kind(node) == "AttributeReference" else None

        expression = catalyst.rewrite(self._spark, one, substitute)
        # canonical forms forget the order of additions, on which overflows and the last digits of doubles depend
        same_order = str(expression.sql()) == str(other.sql())
        return same_order and bool(expression.canonicalized().equals(other.canonicalized()))

    def operators(self, one: GroupwiseOp, other: GroupwiseOp, names: Mapping[str, str]) -> bool:
        """Return whether two operators give the same columns, in the same order, over inputs with equal columns."""
        inputs = [*names], [*names.values()]
        shown = [column.name for node in (one, other) for column in node.columns]
        if not all(name in self._attributes for columns in (*inputs, shown) for name in columns):
            return False
        plan, other_plan = (self._over(node, columns) for node, columns in zip((one, other), inputs, strict=True))
        if not plan.canonicalized().equals(other_plan.canonicalized()):
            return False
        positions = self._positions(plan, one)
        return None not in positions and positions == self._positions(other_plan, other)

    def constants(self, one: J, other: J) -> bool:
        """Return whether two relations of constants have the same rows."""
        return bool(one.canonicalized().equals(other.canonicalized()))

    def _over(self, node: GroupwiseOp, columns: list[str]) -> J:
        """Return Spark's operators of a node over a relation of these columns."""
        output = catalyst.vector(self._spark, [self._attributes[name] for name in columns])
        nil = catalyst.vector(self._spark, [])
        none = catalyst.none(self._spark)
        streaming = False
        plan = catalyst.catalyst(self._spark).plans.logical.LocalRelation(output, nil, streaming, none)
        for operator in reversed(node.handle):
            rebuilt: J = operator
            plan = rebuilt.withNewChildren(catalyst.vector(self._spark, [plan]))
        return plan

    def _positions(self, plan: J, node: GroupwiseOp) -> list[int | None]:
        """Return the positions of a node's columns in the output of its operators."""
        output = [int(attribute.exprId().id()) for attribute in catalyst.sequence(plan.output())]
        positions = {identifier: position for position, identifier in enumerate(output)}
        return [positions.get(int(self._attributes[column.name].exprId().id())) for column in node.columns]
