"""Evaluate a batch query, SQL text, MRQL or a DataFrame function, as a DataFrame over the frames of its sources."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from threading import RLock
from typing import Any

from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltafold.algebra.errors import DeltafoldError, QueryError, suggest_nearest
from deltafold.language.loops.recursion import run_sql
from deltafold.language.mentions import call_query, find_mentions
from deltafold.language.monoids import find_named, register_monoids
from deltafold.language.query import NO_MONOIDS, Monoids, QueryText
from deltafold.language.query_language import LanguageQuery
from deltafold.language.unread import is_unread_error
from deltafold.spark import catalyst
from deltafold.spark.connect import check_frame
from deltafold.spark.java_errors import position_of_analysis, sentence_of_analysis

UNRESOLVED = "[TABLE_OR_VIEW_NOT_FOUND]", "[UNRESOLVED_ROUTINE]"  # prefixes of Spark's errors
ONE_FUNCTION = RLock()  # of two threads, as both may make a temporary view of one name in the session
OWN_SESSION = (
    "Correct the name. A query function is called in a session of its own: make views and functions by the "
    "sparkSession of a frame that it is given, and use them there"
)


def evaluate(
    spark: SparkSession,
    query: QueryText,
    declared: Collection[str],
    frame: Callable[[str], DataFrame | None],
    monoids: Monoids = NO_MONOIDS,
) -> DataFrame:
    """Return the query as a DataFrame over the frames of the declared sources that it may read.

    spark: for a query text, a session of its own; frame: returns the frame of a source, None if it has no data;
    monoids: by their names in lower case; their functions are created in the session.
    """
    register_monoids(spark, find_named(query, monoids) if isinstance(query, str) else monoids.values())
    try:
        if callable(query):
            return _evaluate_function(spark, query, declared, frame)
        schemas = dict[str, StructType]()
        for name in find_mentions(spark, query).among(declared):
            if (source := frame(name)) is not None:
                catalyst.frame(spark, catalyst.analysed_plan(source)).createOrReplaceTempView(name)
                schemas[name] = source.schema
        if isinstance(query, LanguageQuery):
            return query.evaluate(spark, declared, schemas.get)
        return run_sql(spark, query)
    except catalyst.JavaError as error:
        message = sentence_of_analysis(error)
        if is_unread_error(message):
            raise QueryError(
                f"{_describe_query(query)}: it runs an action (count, collect, toPandas, a pivot without its values), "
                "and no data is there when the query is built. Join with an aggregate, or name the values of a pivot."
            ) from error
        position = position_of_analysis(error) if isinstance(query, str) else ""
        if isinstance(query, str) and (name := unknown_table(error)):
            raise QueryError(
                f"query{position}: it reads {name}, which is not a declared source. {suggest_nearest(name, declared)} "
                "To read another table, declare it, for example with Delta(path)."
            ) from error
        fix = OWN_SESSION if callable(query) and message.startswith(UNRESOLVED) else "Correct the query"
        raise QueryError(f"Spark cannot analyse the query{position}: {message.rstrip('.')}. {fix}.") from error


def unknown_table(error: BaseException | None) -> str:
    """Return the table name that an error of Spark reports as unknown; empty for another error."""
    if isinstance(error, PySparkException) and error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
        return str((error.getMessageParameters() or {}).get("relationName", "")).replace("`", "")
    return ""


def _evaluate_function(
    spark: SparkSession,
    query: Callable[..., DataFrame],
    declared: Collection[str],
    frame: Callable[[str], DataFrame | None],
) -> DataFrame:
    """Return the DataFrame of a query function; raises QueryError if it raises, or returns anything else."""
    what = _describe_query(query)
    try:
        with ONE_FUNCTION:
            answer: object = call_query(spark, query, declared, frame)
    except (DeltafoldError, PySparkException, Py4JError, ConnectionError):
        raise  # they come from a source or from Spark, not from the function
    except Exception as error:
        line = _find_line(query, error)
        if line is None and isinstance(error, TypeError):
            raise QueryError(
                f"{what}: it does not fit its sources ({', '.join(declared)}): {error}. Correct its parameters."
            ) from error
        where = "" if line is None else f" at {line}"
        raise QueryError(
            f"{what}: it raised {type(error).__name__}{where}: {str(error).rstrip('.')}. Correct it."
        ) from error
    check_frame(what, answer)
    if not isinstance(answer, DataFrame):
        raise QueryError(f"{what}: it returned {type(answer).__name__}, not a DataFrame. Return the answer.")
    return answer


def _describe_query(query: object) -> str:
    """Return the name of a query function for a message."""
    return f"query function {getattr(query, '__name__', type(query).__name__)}"


def _find_line(query: object, error: Exception) -> str | None:
    """Return the file and line of an error in the file of a query function, None if it was raised elsewhere."""
    code: Any = getattr(query, "__code__", None) or getattr(type(query).__call__, "__code__", None)
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if code and frame.filename == code.co_filename]
    return f"{Path(own[-1].filename).name}, line {own[-1].lineno}" if own else None
