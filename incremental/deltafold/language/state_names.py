"""Read a query under the names of its stored state, so that the state's columns keep their names.

Names within a query do not change its meaning, but the columns of states are named by them: if the query is the same
under the names of its state, it gets these names. The same applies to the order of a source's columns, which affects
the numbers in names, and fingerprints: a query that names its columns stays the same when those of the table are
reordered.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from deltafold.algebra.errors import QueryError
from deltafold.algebra.recipe import Recipe, describe_column_changes
from deltafold.language.analysis import Analysis, SchemaOf
from deltafold.language.fingerprint.grown_structs import FieldReads, find_grown
from deltafold.language.names import type_text
from deltafold.language.query import Query
from deltafold.spark import catalyst


@dataclass(frozen=True)
class ColumnTypes(Mapping[str, Mapping[str, str]]):
    """The type of each column by source, in the form of recipes; a source is looked up at its first use.

    schema: that of a source, None where it has none or is not declared.
    """

    declared: Collection[str]
    schema: Callable[[str], StructType | None]

    def __getitem__(self, source: str) -> Mapping[str, str]:
        schema = self.schema(source)
        if schema is None:
            raise KeyError(source)
        return catalyst.types_of(schema)

    def __iter__(self) -> Iterator[str]:
        return iter(self.declared)

    def __len__(self) -> int:
        return len(self.declared)


def translate_analysis(analysis: Analysis, kept: Recipe | None, schema: SchemaOf, views: Collection[str]) -> Query:
    """Translate a query, as it was for the stored state if it is the same query. Raises QueryError.

    schema: that of a source; views: the sources that are views.
    """
    query = analysis.translate()
    if kept is None or query.fingerprint == kept.fingerprint:
        return query
    named = analysis.translate(kept.names, kept.orders)
    if named.fingerprint == kept.fingerprint:
        return named
    return read_as_before(analysis, kept, schema, views, named) or query


def read_as_before(
    analysis: Analysis, kept: Recipe, schema: SchemaOf, views: Collection[str], named: Query
) -> Query | None:
    """Return the query as that of the state if it reads no field that structs got since, and no comment of one."""
    grown = find_grown(kept.sources, schema)
    if grown is None or analysis.loops.loops or set(grown) & set(views):
        return None
    if grown and not FieldReads(analysis.normal, analysis.relations, grown).are_of_fields(analysis.spark):
        return None
    then = analysis.translate(kept.names, kept.orders, struct_types(analysis.spark, kept.sources))
    if then.fingerprint != kept.fingerprint:
        return None
    return replace(named, built_as=kept.fingerprint, grown=frozenset(grown))


def struct_types(spark: SparkSession, recorded: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return the texts of the recorded types that have fields, which have no comments, by source and column."""
    java = catalyst.sql(spark).types.DataType
    return {
        source: {name: type_text(java.fromDDL(text)) for name, text in columns.items() if "struct<" in text}
        for source, columns in recorded.items()
    }


@contextmanager
def citing_moved_columns(types: ColumnTypes, kept: Recipe | None) -> Generator[None]:
    """Add to a QueryError the changes of the source columns that the state was built from."""
    try:
        yield
    except QueryError as error:
        if kept is None or not (moved := describe_column_changes(kept, types)):
            raise
        apart = "\n" if "\n" in str(error) else " "  # an error of MRQL ends with a line of the query
        raise QueryError(
            f"{error}{apart}Since the state was built, {'; '.join(moved)}. Restore it, or change the query and rebuild "
            "the view."
        ) from error


def releases(spark: SparkSession) -> dict[str, str]:
    """Return the releases of Deltafold and Spark, which a recipe records."""
    try:
        ours = version("deltafold")
    except PackageNotFoundError:  # a checkout that is not installed
        ours = "unknown"
    return {"Deltafold": ours, "Spark": spark.version, "Python": platform.python_version()}
