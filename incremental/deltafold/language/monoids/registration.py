"""Check declared monoids in Spark, and create their SQL functions in a session."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from pyspark.sql import SparkSession

from deltafold.algebra.errors import QueryError
from deltafold.algebra.monoids.declared import MARK, DeclaredMonoid
from deltafold.algebra.sources import is_name
from deltafold.algebra.sqltext import first_unstored_type, is_unordered
from deltafold.language.inner_plans import has_subquery
from deltafold.language.names import type_text
from deltafold.language.translation.scalars import find_undetermined
from deltafold.spark import catalyst
from deltafold.spark.catalyst import JavaError
from deltafold.spark.java_errors import sentence_of_analysis


def register_monoids(spark: SparkSession, monoids: Iterable[DeclaredMonoid]) -> None:
    """Create the functions of monoids in a session, in place of others of their names.

    Raises QueryError for parts that may not be in a function, such as an aggregate.
    """
    for monoid in monoids:
        try:
            cast(Any, spark).sql(monoid.create_sql)
        except JavaError as error:
            because = f"Spark cannot create its function ({sentence_of_analysis(error)})"
            raise fault(monoid, because, "Let its parts compute one value from their arguments") from None


def find_named(text: str, monoids: Mapping[str, DeclaredMonoid]) -> tuple[DeclaredMonoid, ...]:
    """Return the monoids whose names occur in a query text."""
    words = {word.lower() for word in re.findall(r"\w+", text)}
    return tuple(monoid for name, monoid in monoids.items() if name in words)


def analyse_monoid(spark: SparkSession, monoid: DeclaredMonoid) -> DeclaredMonoid:
    """Return a monoid with its types in Spark's spelling; runs no job.

    Raises QueryError for a name that is taken, for SQL that Spark cannot analyse or whose value is not fixed, and for
    types that cannot be stored or compared.
    """
    if not is_name(monoid.name):
        raise fault(monoid, "its name is invalid", "Use letters, digits and underscores")
    if is_foreign(spark, monoid.name):
        raise fault(monoid, f"Spark has another function {monoid.name}", "Choose another name")
    typed = replace(
        monoid, type=spell_type(spark, monoid, monoid.type), of=monoid.of and spell_type(spark, monoid, monoid.of)
    )
    if is_unordered(typed.type):
        because = f"its laws cannot be checked, since Spark does not compare values of type {typed.type}"
        raise fault(monoid, because, "Use an array of structs")
    if (unstored := first_unstored_type(typed.type)) is not None:
        raise fault(monoid, f"Delta does not store values of type {unstored}", "Use another type")
    for part, sql, whole in definition_parts(typed):
        check_part(spark, typed, part, sql, whole)
    check_zero(spark, typed)
    return typed


def spell_type(spark: SparkSession, monoid: DeclaredMonoid, ddl: str) -> str:
    """Return a type in Spark's spelling; raises QueryError for another text."""
    try:
        return type_text(catalyst.sql(spark).types.DataType.fromDDL(ddl))
    except JavaError:
        raise fault(monoid, f"{ddl!r} is not a type", "Write a type of Spark's, such as ARRAY<INT>") from None


def definition_parts(monoid: DeclaredMonoid) -> list[tuple[str, str, str]]:
    """Return the name, the SQL, and the SQL over typed NULLs of each part of a definition."""
    value, given = (f"CAST(NULL AS {type_})" for type_ in (monoid.type, monoid.of_type))
    found = [("zero", monoid.zero, monoid.zero_sql), ("plus", monoid.plus, monoid.plus_sql(value, value))]
    found += [] if monoid.unit is None else [("unit", monoid.unit, monoid.unit_sql(given))]
    found += [] if monoid.inverse is None else [("inverse", monoid.inverse, monoid.inverse_sql(value))]
    return [*found, ("unit", "x", f"CAST({given} AS {monoid.type})")] if monoid.unit is None else found


def check_part(spark: SparkSession, monoid: DeclaredMonoid, part: str, sql: str, whole: str) -> None:
    """Raise QueryError for a part that is not one expression with a fixed value."""
    try:
        catalyst.parse_expression(spark, sql)
        frame = cast(Any, spark).sql(f"SELECT {whole} AS value")
    except JavaError as error:
        if part == "unit" and monoid.unit is None:
            because = f"without a unit, x of type {monoid.of_type} would be its value, of type {monoid.type}"
            raise fault(monoid, because, "Give `unit`, SQL of x, such as array(x)") from None
        raise fault(monoid, f"Spark cannot analyse {part} ({sentence_of_analysis(error)})", f"Correct {part}") from None
    for expression in catalyst.sequence(catalyst.analysed_plan(frame).expressions()):
        if has_subquery(spark, expression):
            raise fault(monoid, f"{part} contains a subquery", "Use constants and its arguments alone")
        if (found := find_undetermined(expression)) is not None:
            _, because, instead = found
            raise fault(monoid, f"{part} is not fixed, since {because}", f"{instead[0].upper()}{instead[1:]}")


def check_zero(spark: SparkSession, monoid: DeclaredMonoid) -> None:
    """Raise QueryError for a zero that is no value of its type; Spark computes it without a job."""
    try:
        cast(Any, spark).sql(f"SELECT {monoid.zero_sql} AS value").collect()
    except JavaError as error:
        because = f"its zero is not a value of type {monoid.type} ({sentence_of_analysis(error)})"
        raise fault(monoid, because, "Correct zero or the type") from None


def is_foreign(spark: SparkSession, name: str) -> bool:
    """Return whether a session has a function of this name that is not a declared monoid's."""
    catalog = catalyst.session(spark).sessionState().catalog()
    identifier = catalyst.catalyst(spark).FunctionIdentifier(name)
    if not catalog.functionExists(identifier):
        return False
    return MARK not in str(catalog.lookupFunctionInfo(identifier).getUsage())


def fault(monoid: DeclaredMonoid, because: str, instead: str) -> QueryError:
    """Return the error of a declaration."""
    return QueryError(f"monoid {monoid.name}: {because}. {instead}.")
