"""Find the calls of declared monoids: SQL functions over a `collect_list` of their group-by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from deltafold.algebra.monoids.declared import MARK, DeclaredMonoid
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

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
    monoid = find_monoid(node, monoids)
    if monoid is None:
        return None
    inside = ("Cast", "ArrayAggregate", *(("ArrayTransform",) if monoid.unit is not None else ()), "Cast")
    found = first_below(node.child(), inside)
    return FoldedCall(monoid, node, found) if is_collected(found) else None


def folds_in_any_order(node: J) -> bool:
    """Return whether an expression is a call of a monoid's function over a list of the group."""
    if catalyst.kind(node) != SQL_FUNCTION_NODE:
        return False
    comment = catalyst.option(node.function().comment())
    inside = ("Cast", "ArrayAggregate", "ArrayTransform", "Cast")
    return comment is not None and MARK in str(comment) and is_collected(first_below(node.child(), inside))


def find_monoid(node: J, monoids: Mapping[str, DeclaredMonoid]) -> DeclaredMonoid | None:
    """Return the monoid whose function an expression calls, with whatever values."""
    if not monoids or catalyst.kind(node) != SQL_FUNCTION_NODE:
        return None
    return monoids.get(str(node.function().name().funcName()).lower())


def is_collected(node: J) -> bool:
    """Return whether an expression is a collect_list."""
    return catalyst.kind(node) == "AggregateExpression" and catalyst.kind(node.aggregateFunction()) == "CollectList"


def first_below(node: J, kinds: tuple[str, ...]) -> J:
    """Return the expression below functions of these kinds, as far as they are there, in this order."""
    for kind in kinds:
        if catalyst.kind(node) == kind:
            node = catalyst.sequence(node.children())[0]
    return node
