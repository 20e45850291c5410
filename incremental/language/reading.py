"""Language room: a query beside the state that is kept of it. In: a query, schemas, the state's recipe. Out: the query.

Names within a query are no part of its meaning, but states have columns that are named by them: a query that is the
same under the names that the state was built with keeps these.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from incremental.algebra.errors import QueryError
from incremental.algebra.recipe import Recipe, describe_column_changes
from incremental.language.query import Query, QueryText, read_query


def reading(spark: SparkSession, text: QueryText, schemas: Mapping[str, StructType], kept: Recipe | None) -> Query:
    """The query over sources with these schemas; kept: what the stored state was built from. Raises QueryError."""
    try:
        query = read_query(spark, text, schemas)
    except QueryError as error:
        if kept is None or not (moved := describe_column_changes(kept, column_types(schemas))):
            raise
        raise QueryError(
            f"{error}. Since the state was built, {'; '.join(moved)}: restore it, or change the query and rebuild the "
            "view"
        ) from error
    if kept is None or query.fingerprint == kept.fingerprint:
        return query
    named = read_query(spark, text, schemas, kept.names)
    return named if named.fingerprint == kept.fingerprint else query


def column_types(schemas: Mapping[str, StructType]) -> dict[str, dict[str, str]]:
    """The type of each column by source, as recipes have it."""
    return {name: {field.name: field.dataType.simpleString() for field in schema} for name, schema in schemas.items()}
