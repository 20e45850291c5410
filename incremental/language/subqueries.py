"""Language room: scalar subqueries without correlation. In: a subquery's plan. Out: a plan with exactly one row."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from incremental import catalyst
from incremental.catalyst import J
from incremental.language.normalise import TRANSPARENT, normal_form


def one_row(spark: SparkSession, node: J) -> J:
    """A scalar subquery's plan with exactly one row: NULL for none, an error for several, as Spark has it."""
    below = node
    while catalyst.kind(below) in ("Project", *TRANSPARENT):
        below = below.child()
    if catalyst.kind(below) == "Aggregate" and below.groupingExpressions().isEmpty():
        return node
    if catalyst.kind(node) == "GlobalLimit" and all(e.foldable() for e in constants(node.child().child())):
        node = node.child().child()  # EXISTS, as Spark writes it: the first of equal rows is as good as all
        single = "min({0})"
    else:
        error = "raise_error('a subquery used as an expression gave more than one row')"
        single = f"if(count(1) > 1, {error}, min({{0}}))"
    frame = catalyst.frame(spark, node)
    return normal_form(spark, catalyst.analysed(frame.agg(F.expr(single.format(f"`{frame.columns[0]}`")))))


def constants(node: J) -> list[J]:
    """What a projection computes; of another node its columns."""
    if catalyst.kind(node) != "Project":
        return catalyst.sequence(node.output())
    return [n.child() if catalyst.kind(n) == "Alias" else n for n in catalyst.sequence(node.projectList())]
