"""Inspect what a session contains: temporary views, functions, and settings that were set explicitly."""

from __future__ import annotations

from pyspark.sql import SparkSession

from incremental.spark.catalyst import sequence, session


def is_temporary_view(spark: SparkSession, name: str) -> bool:
    """Return whether the session has a temporary view of this name."""
    return bool(session(spark).sessionState().catalog().getTempView(name).isDefined())


def has_sql_functions(spark: SparkSession, mark: str) -> bool:
    """Return whether the session has temporary functions written in SQL, which may read its tables.

    mark: the comment of functions that read none.
    """
    known = session(spark).sessionState().catalog()
    found = [known.lookupFunctionInfo(name) for name in sequence(known.listTemporaryFunctions().toSeq())]
    return any(str(each.getSource()) == "sql_udf" and mark not in str(each.getUsage()) for each in found)


def explicit_settings(spark: SparkSession) -> dict[str, str]:
    """Return the settings that were set explicitly in the session, in one call instead of one for each entry."""
    lines = str(session(spark).conf().getAll().mkString("\0")).split("\0")
    return {key: value for key, _, value in (line.partition(" -> ") for line in lines)}
