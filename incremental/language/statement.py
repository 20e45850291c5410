"""Language room: what a text may be. In: the text of a query. Out: nothing, or a QueryError.

Spark runs a command as soon as it analyses one, and makes the clock a literal as soon as it parses it.
"""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from incremental.algebra.errors import QueryError
from incremental.spark import catalyst
from incremental.spark.catalyst import J, JavaError

COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
CLOCK = re.compile(
    r"\b(?:date|timestamp(?:_ltz|_ntz)?)\s*(['\"])\s*(?:now|today|tomorrow|yesterday)\s*\1", re.IGNORECASE
)


def check_statement(spark: SparkSession, text: str) -> None:
    """Refuse a text that does not only read, before Spark analyses it; one that cannot be parsed is left to Spark."""
    if found := CLOCK.search(COMMENT.sub(" ", text)):
        raise QueryError(
            f"{found[0]} is the clock, so that two runs of the query differ: compare with a column, or with a constant"
        )
    try:
        plan = catalyst.parsed_plan(spark, text)
    except JavaError:
        return
    for node in nodes(plan):
        if catalyst.kind(node) == "UnresolvedExecuteImmediate":
            raise QueryError("EXECUTE IMMEDIATE runs another text, which may be a command: write that query itself")
        if any(catalyst.is_a(spark, node, f"plans.logical.{name}") for name in ("Command", "ParsedStatement")):
            kind = catalyst.kind(node)
            raise QueryError(f"a view is a query that reads, and this one is a command ({kind}): write a SELECT")


def nodes(plan: J) -> list[J]:
    """A plan and all below it."""
    return [plan, *(node for child in catalyst.sequence(plan.children()) for node in nodes(child))]
