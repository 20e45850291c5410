"""Inspect what a session contains: temporary views, functions, and settings that were set explicitly."""

from __future__ import annotations

from pyspark.sql import SparkSession

from deltafold.spark.catalyst import sequence, session

WRITTEN_IN_SQL = "sql_udf"


def is_temporary_view(spark: SparkSession, name: str) -> bool:
    """Return whether the session has a temporary view of this name."""
    return bool(session(spark).sessionState().catalog().getTempView(name).isDefined())


def temporary_functions(spark: SparkSession, mark: str) -> set[str]:
    """Return of which kinds the session has temporary functions, which may be replaced at any time.

    mark: the comment of functions that are not counted. One of the kind WRITTEN_IN_SQL may read the session's tables.
    """
    known = session(spark).sessionState().catalog()
    found = [known.lookupFunctionInfo(name) for name in sequence(known.listTemporaryFunctions().toSeq())]
    return {str(each.getSource()) for each in found if mark not in str(each.getUsage())}


def explicit_settings(spark: SparkSession) -> dict[str, str]:
    """Return the settings that were set explicitly in the session, in one call instead of one for each entry."""
    lines = str(session(spark).conf().getAll().mkString("\0")).split("\0")
    return {key: value for key, _, value in (line.partition(" -> ") for line in lines)}
