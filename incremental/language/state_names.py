"""Read a query under the names of its stored state, so that the state's columns keep their names.

Names within a query do not change its meaning, but the columns of states are named by them: if the query is the same
under the names of its state, it gets these names.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from incremental.algebra.errors import QueryError
from incremental.algebra.recipe import Recipe, describe_column_changes
from incremental.language.analysis import Analysis
from incremental.language.query import Query


@dataclass(frozen=True)
class ColumnTypes(Mapping[str, Mapping[str, str]]):
    """The type of each column by source, in the form of recipes; a source is looked up at its first use.

    schema: that of a source, None where it has none or is not declared.
    """

    declared: Collection[str]
    schema: Callable[[str], StructType | None]

    def __getitem__(self, source: str) -> Mapping[str, str]:
        found = self.schema(source)
        if found is None:
            raise KeyError(source)
        return types_of(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self.declared)

    def __len__(self) -> int:
        return len(self.declared)


def types_of(schema: StructType) -> dict[str, str]:
    """Return the type of each column."""
    return {field.name: field.dataType.simpleString() for field in schema}


def translate_analysis(analysis: Analysis, kept: Recipe | None) -> Query:
    """Translate a query, under the names of the stored state if it is the same query. Raises QueryError."""
    query = analysis.translate()
    if kept is None or query.fingerprint == kept.fingerprint:
        return query
    named = analysis.translate(kept.names)
    return named if named.fingerprint == kept.fingerprint else query


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
