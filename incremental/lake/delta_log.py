"""Open Delta's log of a table."""

from __future__ import annotations

from pyspark.sql import SparkSession

from incremental.algebra.errors import SourceError
from incremental.spark import catalyst
from incremental.spark.catalyst import J, JavaError
from incremental.spark.java_errors import causes, first_line


def open_log(spark: SparkSession, path: str, label: str) -> J:
    """Return Delta's log of the table at a path, cached by Delta; label: how errors name the table.

    Raises SourceError if its file system cannot be reached.
    """
    session = catalyst.activate(spark)
    try:
        return catalyst.sql(spark).delta.DeltaLog.forTable(session, path)
    except JavaError as error:
        reason = first_line(causes(error)[-1])
        raise SourceError(
            f"the Delta table {label} cannot be opened: {reason}. Correct the address, or give Spark the jars and "
            "settings of its file system."
        ) from error
