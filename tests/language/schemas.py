"""The sources of the golden queries, as schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from deltafold.algebra.constraints import collect_facts
from deltafold.algebra.errors import RefusedError
from deltafold.algebra.sources import Delta, ForeignKey, SourceDeclaration
from deltafold.compiler.compile import check_outputs, compile_query, run_passes
from deltafold.compiler.draft import Draft
from deltafold.compiler.explain import explain_program, explain_refusal
from deltafold.language.analysis import analyse
from deltafold.language.fingerprint.equality import SparkEquality
from deltafold.language.query import Query, QueryText
from deltafold.refresh.sources.source_catalog import nullable

SOURCES = {
    "flights": "carrier string, origin string, day date, seats int, delay double, cancelled boolean, "
    "stops array<string>",
    "airlines": "carrier string, name string",
    "orders": "ok bigint, status string, placed date",
    "lines": "lk bigint, number int, price decimal(12,2)",
}
KEYED = Delta("orders", primary_key=("ok",))
LOGGED = Delta("lines", primary_key=("lk", "number"), foreign_keys=(ForeignKey(("lk",), "orders"),), append_only=True)
DECLARED: dict[str, SourceDeclaration] = {"orders": KEYED, "lines": LOGGED}
INVARIANT = frozenset({"airlines"})


def read_query(spark: SparkSession, query: QueryText, schemas: Mapping[str, StructType]) -> Query:
    """Analyse and translate a query over sources with these schemas."""
    return analyse(spark, query, schemas, schemas.get).translate()


def schemas() -> dict[str, StructType]:
    """The schemas of the sources."""
    return {name: nullable(cast(StructType, StructType.fromDDL(ddl))) for name, ddl in SOURCES.items()}


def read(spark: SparkSession, query: QueryText) -> Query:
    """The translated query."""
    return read_query(spark, query, schemas())


def fingerprint(spark: SparkSession, query: QueryText) -> str:
    return read(spark, query).fingerprint


def draft(spark: SparkSession, query: QueryText, declared: Mapping[str, SourceDeclaration] | None = None) -> Draft:
    """The translated query as the compiler takes it; raises QueryError where Spark cannot analyse it."""
    return draft_of(spark, read(spark, query), declared)


def draft_of(spark: SparkSession, found: Query, declared: Mapping[str, SourceDeclaration] | None = None) -> Draft:
    """A translated query as the compiler takes it."""
    check_outputs(found.outputs)
    facts = collect_facts(declared or {}, {}, found.sources)
    equality = SparkEquality(spark, found.attributes)
    return Draft(
        plan=found.plan,
        outputs=found.outputs,
        fingerprint=found.fingerprint,
        refusals=found.refusals,
        invariant=INVARIANT,
        facts=facts,
        equality=equality,
    )


def explained(spark: SparkSession, name: str, query: QueryText) -> str:
    """What explain shows of a query."""
    try:
        translated = draft(spark, query, DECLARED)
        *_, (_, compiled) = run_passes(translated, checked=True)
        return explain_program(name, compiled.program())
    except RefusedError as error:
        return explain_refusal(name, error.refusals)


def refused(spark: SparkSession, query: QueryText) -> RefusedError:
    """The refusal of a query that must be refused."""
    try:
        compile_query(draft(spark, query))
    except RefusedError as error:
        return error
    raise AssertionError("the query was not refused")
