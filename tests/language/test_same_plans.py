"""Queries are held equal by Spark's analysed plans alone only where their fingerprints are equal too.

A query function is called at each refresh, as it may return another query; most return the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from deltafold.algebra.plan import Keep
from deltafold.api import fixpoint, iterate
from deltafold.language.analysis import Analysis, analyse
from deltafold.language.query import QueryText
from tests.language.schemas import schemas
from tests.language.test_equality import EQUAL, GROUPED, UNEQUAL
from tests.language.test_fingerprint_details import ALIKE
from tests.language.test_fingerprints import GOLDEN, QUERIES
from tests.night import every

Function = Callable[..., DataFrame]
# generators are not compared, and Spark numbers recursions anew in each analysis
TRANSLATED = {"explode", "subquery within an explode", "recursion", "closure"}


def analysed(spark: SparkSession, queries: Sequence[QueryText]) -> list[Analysis]:
    """Return the analysis of each query, over the relations of the first."""
    found = list[Analysis]()
    for query in queries:
        found.append(analyse(spark, query, schemas(), schemas().get, {}, found[0] if found else None))
    return found


def seen_equal(spark: SparkSession, *queries: QueryText) -> bool:
    """Return whether two queries are held equal; if so, their fingerprints have to be."""
    one, other = analysed(spark, queries)
    equal = one.has_plans_of(other)
    if equal:
        assert one.translate().fingerprint == other.translate().fingerprint
    return equal


@pytest.mark.parametrize("name", every(6, [*GOLDEN, *QUERIES]))
def test_the_same_text(spark: SparkSession, name: str) -> None:
    """Protects from a comparison that always fails, which nobody would notice."""
    query = {**GOLDEN, **QUERIES}[name]
    assert seen_equal(spark, query, query) == (name not in TRANSLATED)


@pytest.mark.parametrize("case", every(3, UNEQUAL))
def test_what_differs_a_little(spark: SparkSession, case: str) -> None:
    """Protects from a state that goes on by the query of yesterday."""
    assert not seen_equal(spark, *(GROUPED.format(*each) for each in UNEQUAL[case]))


@pytest.mark.parametrize("case", every(3, ALIKE))
def test_what_spark_prints_alike(spark: SparkSession, case: str) -> None:
    """Protects from arguments that are in no text."""
    query, *written = ALIKE[case]
    assert not seen_equal(spark, *(query.replace("{}", each) for each in written))


def test_all_pairs(spark: SparkSession) -> None:
    """Of the group-bys that Spark itself finds equal, each is equal to itself alone."""
    queries = [GROUPED.format(*each) for each in EQUAL.values()]
    assert not [(one, other) for one, other in combinations(analysed(spark, queries), 2) if one.has_plans_of(other)]


def loop(limit: int = 9, keep: Keep = "least", by: int = 1, start: str = "seats", first: bool = False) -> Function:
    """Return a query with two loops."""

    def query(flights: DataFrame, lines: DataFrame) -> DataFrame:
        def step(found: DataFrame) -> DataFrame:
            return found.join(lines, found.a == lines.number).select("a", found.b + by)

        kept = fixpoint(flights.selectExpr("origin a", f"{start} b"), step, key="a", keep=keep, limit=limit)
        steps = iterate(flights.selectExpr("origin a", "seats b"), step, times=2)
        return kept.join(steps, "a") if first else steps.join(kept, "a")

    return query


LOOPS = {
    "limit": loop(limit=8), "keep": loop(keep="greatest"), "step": loop(by=2), "start": loop(start="seats + 1"),
    "order of use": loop(first=True),
}  # fmt: skip


@pytest.mark.parametrize("what", every(2, LOOPS))
def test_loops(spark: SparkSession, what: str) -> None:
    """Their plans are not below that of the query."""
    assert seen_equal(spark, loop(), loop())
    assert not seen_equal(spark, loop(), LOOPS[what])


def test_names_of_columns(spark: SparkSession) -> None:
    """Spark's canonical form has none."""

    def named(name: str) -> Function:
        return lambda flights: flights.select(F.col("seats").alias(name))

    assert seen_equal(spark, named("a"), named("a"))
    assert not seen_equal(spark, named("a"), named("b"))


def test_sources_are_not_exchanged(spark: SparkSession) -> None:
    """Two relations with the same columns differ by what they stand for."""

    def of(name: str) -> Function:
        return lambda **tables: cast("dict[str, DataFrame]", tables)[name].select("carrier")

    assert seen_equal(spark, of("flights"), of("flights"))
    assert not seen_equal(spark, of("flights"), of("airlines"))


def test_python_functions(spark: SparkSession) -> None:
    """A plan has the name of an imported function, not what it does now."""

    def query(flights: DataFrame) -> DataFrame:
        return flights.select(F.udf(lambda n: n, IntegerType())("seats"))

    assert not seen_equal(spark, query, query)


def test_another_schema(spark: SparkSession) -> None:
    """A relation is taken again only for the same columns."""
    query = "select * from flights"
    first = analyse(spark, query, schemas(), schemas().get)
    wider = schemas() | {"flights": schemas()["lines"]}
    other = analyse(spark, query, schemas(), wider.get, {}, first)
    assert [column.name for column in other.columns] == ["lk", "number", "price"]
    assert not first.has_plans_of(other)
