"""Delta tables by their names in the session's catalog: where a name points to now.

A name is looked up at each use, so that a table that is created, renamed or pointed elsewhere later is found as a query
would find it; everything else works by the location.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from incremental.algebra.errors import SourceError
from incremental.lake.physical_layout import Storage
from incremental.spark import catalyst
from incremental.spark.catalyst import J
from incremental.spark.java_errors import cause

ABSENT = {"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "NO_SUCH_CATALOG_EXCEPTION", "CATALOG_NOT_FOUND"}


class CatalogTable(Storage):
    """One Delta table by its name in the catalog (`db.t`, `catalog.schema.t`); raises SourceError if it is absent."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark, self.name = spark, name
        self._found: str | None = None

    @property
    def path(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The location that the name points to, looked up once."""
        self._found = self._found or location(self.spark, self.name)
        if self._found is None:
            raise SourceError(
                f"table {self.name} is not in the catalog of this Spark session: create it, correct the name, or use "
                "a session with the catalog that has it (an in-memory catalog forgets its tables when Spark ends)"
            )
        return self._found

    @property
    def label(self) -> str:
        """The table's name."""
        return self.name

    def version(self) -> int | None:
        """The latest version, None if the catalog has no table of this name."""
        return None if location(self.spark, self.name) is None else super().version()


def check_is_path(spark: SparkSession, source: str, path: str) -> None:
    """Refuse a table's name given as a path, which would be read as a folder without a table; raises SourceError."""
    if "." not in path or "/" in path or Path(path).exists():
        return
    try:
        known = bool(cast(Any, spark).catalog.tableExists(path))
    except PySparkException:
        return  # no name at all
    if known:
        raise SourceError(f"source {source}: {path} is a table of the catalog, not a path: write Delta(table={path!r})")


def location(spark: SparkSession, name: str) -> str | None:
    """Find the location of the Delta table of a name; None if the catalog has none.

    Raises SourceError for a name that cannot be one, for a view, and for a table of another format.
    """
    try:
        plan = catalyst.analysed(cast(Any, spark).table(name))
    except PySparkException as error:
        if str(error.getCondition()).split(".")[0] in ABSENT:
            return None
        raise SourceError(f"cannot read table {name}: {cause(error)}. Correct the name of the source.") from error
    while catalyst.kind(plan) == "SubqueryAlias":
        plan = plan.child()
    if catalyst.kind(plan) == "View":
        raise SourceError(f"{name} is a view of the catalog, which has no versions: declare the tables that it reads")
    found = delta_path(plan)
    if found is None:
        raise SourceError(
            f"table {name} is not a Delta table: convert it (CONVERT TO DELTA {name}), or declare another"
        )
    return found


def delta_path(plan: J) -> str | None:
    """The folder or URI of the Delta table that a plan reads; None if it reads anything else."""
    if catalyst.kind(plan) == "LogicalRelation" and is_of_files(plan.relation()):
        found = plan.relation().location()
    elif catalyst.kind(plan) == "DataSourceV2Relation":
        found = plan.table()
    else:
        return None
    delta = str(found.getClass().getName()).startswith("org.apache.spark.sql.delta.")
    return str(found.path()).removeprefix("file:") if delta else None


def is_of_files(relation: J) -> bool:
    """True if a relation reads files; Delta's own is a subclass without a name."""
    kind: J = relation.getClass()
    return "HadoopFsRelation" in (str(kind.getSimpleName()), str(kind.getSuperclass().getSimpleName()))
