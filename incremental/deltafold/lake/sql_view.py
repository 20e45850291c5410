"""Manage a SQL view in Spark's catalog that selects columns of a Delta table by the table's path (D-057)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from deltafold.algebra.errors import CatalogError
from deltafold.algebra.sqltext import literal, quoted
from deltafold.lake.catalog_faults import catalog_fault
from deltafold.spark.catalyst import JavaError
from deltafold.spark.java_errors import is_caused_by

VIEW_PROPERTY = "deltafold.view"  # the view whose answer a SQL view shows
MISSING_ERRORS = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "CATALOG_NOT_FOUND",
    "REQUIRES_SINGLE_PART_NAMESPACE",  # Spark's error class for a name whose first part is not a catalog
)
NOT_A_VIEW = "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE"  # Spark's error class for DESCRIBE … AS JSON of a Delta table
NO_VIEWS_ERRORS = ("MISSING_CATALOG_ABILITY", "UNSUPPORTED_FEATURE")


@dataclass(frozen=True)
class CatalogEntry:
    """A table or view in a catalog; text: of the view's query, empty for a table."""

    is_view: bool
    text: str
    comment: str
    properties: Mapping[str, str]


@dataclass(frozen=True)
class SqlView:
    """The SQL view `database.view` or `catalog.database.view`, which may not exist."""

    spark: SparkSession
    name: str

    def entry(self) -> CatalogEntry | None:
        """Return the catalog's entry of the name, None if there is none; one catalog call, no Spark job.

        Raises CatalogError where the catalog does not answer.
        """
        try:
            rows = cast(Any, self.spark).sql(f"DESCRIBE TABLE EXTENDED {self._name} AS JSON").collect()
            described = json.loads(rows[0]["json_metadata"])
        except JavaError as error:
            if condition(error).startswith(MISSING_ERRORS):
                return None
            if condition(error).startswith(NOT_A_VIEW):
                return CatalogEntry(is_view=False, text="", comment="", properties={})
            raise CatalogError(f"SQL view {self.name}: {self._fault(error, 'Fix the catalog')}") from error
        fields = described.get("view_text", ""), described.get("comment", ""), described.get("table_properties", {})
        return CatalogEntry(described.get("type") == "VIEW", *fields)

    def write(
        self, text: str, columns: Sequence[str], comment: str, properties: Mapping[str, str], *, replace: bool
    ) -> None:
        """Create the view with these columns, replacing an existing one: in one step if the catalog can.

        Raises CatalogError if the name is taken: by anything, or with `replace` by a table.
        """
        listed, how = ", ".join(map(quoted, columns)), "OR REPLACE " if replace else ""
        assignments = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())
        head = f"COMMENT {literal(comment)} TBLPROPERTIES ({assignments})"
        try:
            cast(Any, self.spark).sql(f"CREATE {how}VIEW {self._name} ({listed}) {head} AS {text}").collect()
        except JavaError as error:
            if replace and is_caused_by(error, "java.lang.UnsupportedOperationException"):
                self.drop()
                self.write(text, columns, comment, properties, replace=False)
                return
            raise CatalogError(f"SQL view {self.name}: {self._fault(error, self._remedy(error))}") from error

    def drop(self) -> None:
        """Remove the view."""
        try:
            cast(Any, self.spark).sql(f"DROP VIEW IF EXISTS {self._name}").collect()
        except JavaError as error:
            fault = self._fault(error, "Drop it, or let this user drop it")
            raise CatalogError(f"the SQL view {self.name} cannot be dropped: {fault}.") from error

    @property
    def _name(self) -> str:
        return ".".join(quoted(part) for part in self.name.split("."))

    def _remedy(self, error: Exception) -> str:
        if condition(error).startswith(NO_VIEWS_ERRORS):
            return "Choose a database of a catalog that supports views"
        if condition(error).startswith("TABLE_OR_VIEW_ALREADY_EXISTS"):
            return f"Choose another name, or drop {self.name}"
        return f"Let this user create and replace views in {self._database}"

    @property
    def _database(self) -> str:
        return self.name.rpartition(".")[0]

    def _fault(self, error: Exception, remedy: str) -> str:
        return catalog_fault(error, remedy, f"create, replace and drop views in {self._database}")

    def check_database(self) -> None:
        """Raise CatalogError for a database that does not exist."""
        try:
            exists = self.spark.catalog.databaseExists(".".join(quoted(part) for part in self._database.split(".")))
        except JavaError as error:
            raise CatalogError(f"database {self._database}: {self._fault(error, 'Fix the catalog')}") from error
        if exists:
            return
        kind = self.spark.conf.get("spark.sql.catalogImplementation", "")
        hint = " (this Spark's catalog is in memory: it has `default` and the databases that this process created)"
        raise CatalogError(
            f"database {self._database}: it does not exist{hint if kind == 'in-memory' else ''}. "
            "Create it, or choose another"
        )


def select_columns(path: str, columns: Sequence[str]) -> str:
    """Return the query that selects columns of the Delta table at a path."""
    return f"SELECT {', '.join(map(quoted, columns))} FROM delta.{quoted(path)}"


def condition(error: Exception) -> str:
    """Return Spark's error condition (such as `TABLE_OR_VIEW_NOT_FOUND`), empty if the error has none."""
    return (error.getCondition() or "") if isinstance(error, PySparkException) else ""
