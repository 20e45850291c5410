"""Check the text of a query before Spark analyses it.

Spark runs a command as soon as it analyses one, and replaces the clock by a literal as soon as it parses it.
"""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from deltafold.algebra.errors import QueryError
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J, JavaError

SQL_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
CLOCK_CALL = re.compile(
    r"\b(?:date|timestamp(?:_ltz|_ntz)?)\s*(['\"])\s*(?:now|today|tomorrow|yesterday)\s*\1", re.IGNORECASE
)


def check_statement(spark: SparkSession, text: str) -> None:
    """Raise QueryError for a statement other than a query. Text that cannot be parsed is left to Spark."""
    if found := CLOCK_CALL.search(SQL_COMMENT.sub(" ", text)):
        raise QueryError(
            f"clock in the query: {found[0]} differs from run to run. Compare with a column or a constant instead."
        )
    try:
        plan = catalyst.parse_plan(spark, text)
    except JavaError:
        return
    for node in all_nodes(plan):
        if catalyst.kind(node) == "UnresolvedExecuteImmediate":
            raise QueryError(
                "EXECUTE IMMEDIATE: it runs another text, which may be a command. Write that query itself."
            )
        if any(catalyst.is_a(spark, node, f"plans.logical.{name}") for name in ("Command", "ParsedStatement")):
            raise QueryError(f"not a query: {catalyst.kind(node)} is a command, and a view only reads. Write a SELECT.")


def all_nodes(plan: J) -> list[J]:
    """Return a plan and all nodes below it."""
    return [plan, *(node for child in catalyst.sequence(plan.children()) for node in all_nodes(child))]
