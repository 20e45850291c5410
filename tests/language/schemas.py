"""The sources of the golden queries, as schemas."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from incremental.algebra.errors import RefusedError
from incremental.api import nullable
from incremental.compiler.compile import check_outputs, compiled
from incremental.compiler.explain import explain, explain_refusal
from incremental.language.query import QueryText, read_query

SOURCES = {
    "flights": "carrier string, origin string, day date, seats int, delay double, cancelled boolean, "
    "stops array<string>",
    "airlines": "carrier string, name string",
}
INVARIANT = frozenset({"airlines"})


def explained(spark: SparkSession, name: str, query: QueryText) -> str:
    """What explain says of a query; raises QueryError where Spark cannot analyse it."""
    schemas = {source: nullable(StructType.fromDDL(ddl)) for source, ddl in SOURCES.items()}
    read = read_query(spark, query, schemas)
    check_outputs(read.outputs)
    forbidden = [(f.text, f.because, f.instead) for f in read.forbidden]
    try:
        return explain(name, compiled(read.plan, read.outputs, read.fingerprint, forbidden, INVARIANT))
    except RefusedError as error:
        return explain_refusal(name, error.refusals, recomputes=False)


def refused(spark: SparkSession, query: QueryText) -> RefusedError:
    """The refusal of a query that must be refused."""
    schemas = {source: nullable(StructType.fromDDL(ddl)) for source, ddl in SOURCES.items()}
    read = read_query(spark, query, schemas)
    forbidden = [(f.text, f.because, f.instead) for f in read.forbidden]
    try:
        compiled(read.plan, read.outputs, read.fingerprint, forbidden, INVARIANT)
    except RefusedError as error:
        return error
    raise AssertionError("the query was not refused")
