"""Inspect what a session contains: temporary views, functions, and settings that were set explicitly."""

from __future__ import annotations

from pyspark.sql import SparkSession

from deltafold.spark.catalyst import sequence, session

WRITTEN_IN_SQL = "sql_udf"


def is_temporary_view(spark: SparkSession, name: str) -> bool:
    """Return whether the session has a temporary view of this name."""
    return bool(session(spark).sessionState().catalog().getTempView(name).isDefined())


def temporary_functions(spark: SparkSession, mark: str) -> set[str]:
    """Return the kinds of the session's temporary functions, which may be replaced at any time.

    mark: the comment of functions that are not counted. One of the kind WRITTEN_IN_SQL may read the session's tables.
    """
    catalog = session(spark).sessionState().catalog()
    functions = [catalog.lookupFunctionInfo(name) for name in sequence(catalog.listTemporaryFunctions().toSeq())]
    return {str(function.getSource()) for function in functions if mark not in str(function.getUsage())}


def explicit_settings(spark: SparkSession) -> dict[str, str]:
    """Return the settings that were set explicitly in the session, by one call of Java for all."""
    lines = str(session(spark).conf().getAll().mkString("\0")).split("\0")
    return {key: value for key, _, value in (line.partition(" -> ") for line in lines)}
