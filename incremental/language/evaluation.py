"""Evaluate a batch query, SQL text, MRQL or a DataFrame function, as a DataFrame over the frames of its sources."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from incremental.algebra.errors import QueryError
from incremental.language.loops.recursion import run_sql
from incremental.language.mentions import call_query, find_mentions
from incremental.language.monoids.registration import find_named, register_monoids
from incremental.language.mrql.program.query import Mrql
from incremental.language.mrql.program.running import run_program
from incremental.language.query import (
    NO_MONOIDS,
    Monoids,
    QueryText,
)
from incremental.language.unread import is_unread_error
from incremental.spark import catalyst
from incremental.spark.java_errors import sentence_of_analysis


def evaluate(
    spark: SparkSession,
    query: QueryText,
    declared: Collection[str],
    frame: Callable[[str], DataFrame | None],
    monoids: Monoids = NO_MONOIDS,
) -> DataFrame:
    """Return the query as a DataFrame over the frames of the declared sources that it may read.

    spark: for a query text, a session of its own. frame: that of a source, None where it has none. monoids: by their
    names in lower case; their functions are created in the session.
    """
    register_monoids(spark, find_named(query, monoids) if isinstance(query, str) else monoids.values())
    try:
        if callable(query):
            return require_frame(call_query(spark, query, declared, frame))
        schemas = dict[str, StructType]()
        for name in find_mentions(spark, query).among(declared):
            if (found := frame(name)) is not None:
                catalyst.frame(spark, catalyst.analysed_plan(found)).createOrReplaceTempView(name)
                schemas[name] = found.schema
        if isinstance(query, Mrql):
            return run_program(spark, query.program(declared, schemas.get))
        return run_sql(spark, query)
    except PySparkException as error:
        message = sentence_of_analysis(error)
        if is_unread_error(message):
            raise QueryError(
                "query function: it runs an action (count, collect, toPandas, a pivot without its values), and no data "
                "is there when the query is built. Join with an aggregate, or name the values of a pivot."
            ) from error
        raise QueryError(f"Spark cannot analyse the query: {message.rstrip('.')}. Correct the query.") from error
    except TypeError as error:
        raise QueryError(
            f"query function: it does not fit its sources ({', '.join(declared)}): {error}. Correct its parameters."
        ) from error


def require_frame(found: object) -> DataFrame:
    """Return the DataFrame of a query function; raises QueryError if it returned anything else."""
    if not isinstance(found, DataFrame):
        raise QueryError(f"query function: it returned {type(found).__name__}, not a DataFrame. Return the answer.")
    return found
