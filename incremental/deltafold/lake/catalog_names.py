"""Look up Delta tables by their names in Spark's catalog: the current location of a name, or why it has none (D-065).

A name is looked up at each use, so a table that is created, renamed or pointed elsewhere later is found as a query
would find it; its log and files are read at the location, with the credentials that the catalog gives for it. The
lookup asks the catalog and not Spark's analyser: a temporary view does not hide a table, and no relation is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sqltext import table_name_of, table_name_parts
from deltafold.lake.catalog_faults import catalog_fault
from deltafold.lake.delta_table import DeltaTable
from deltafold.lake.external_table import ExternalTable
from deltafold.lake.log.delta_log import open_log
from deltafold.lake.protocol import VersionedTable
from deltafold.lake.sql_view import VIEW_PROPERTY
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J, JavaError

SESSION_CATALOG = "spark_catalog"
DELTA_CLASS = "org.apache.spark.sql.delta.catalog.DeltaTableV2"
ABSENT = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND")
IN_MEMORY = (
    ". The catalog of this Spark session is in memory and knows only the tables that this process created. Set "
    "spark.sql.catalogImplementation to hive, or use another catalog, or declare the path of the table"
)


@dataclass(frozen=True)
class Lookup:
    """The result of looking up a name: the location of a Delta table, or None with the cause and the fix.

    table: Delta's object of the table, as the catalog gave it.
    """

    location: str | None
    absence: str = ""
    table: J = None


class CatalogTable(DeltaTable):
    """One Delta table by its name in the catalog; if there is none, `version` is None and reads raise SourceError."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark, self.name = spark, name
        self._found: Lookup | None = None

    @property
    def path(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The current location of the table."""
        lookup = self.look_up_once()
        if lookup.location is None:
            raise SourceError(f"table {self.name} is not in the catalog: {lookup.absence}.")
        return lookup.location

    @property
    def label(self) -> str:
        """The table's name."""
        return self.name

    @property
    def place(self) -> str:
        """The location of the table; while there is none, its name."""
        return self.name if self.look_up_once().location is None else super().place

    def version(self) -> int | None:
        """Return the latest version; None if the catalog has no table of this name, or its location has no table."""
        return None if self.look_up_once().location is None else super().version()

    @property
    def log(self) -> J:
        """Delta's log of the table, which reads its files with the credentials that the catalog gives."""
        return open_log(self.spark, self.path, self.name, self.look_up_once().table)

    @property
    def reading_options(self) -> dict[str, str]:
        """What the catalog gives for its file system, such as credentials."""
        return dict(catalyst.jvm(self.spark).scala.jdk.javaapi.CollectionConverters.asJava(self.log.options()))

    def look_up_once(self) -> Lookup:
        """Look the name up; once found, this object keeps the table."""
        lookup = self._found or look_up_table(self.spark, self.name)
        if lookup.location is not None:
            self._found = lookup
        return lookup


def full_name(spark: SparkSession, name: str) -> str:
    """Complete a table's name with the session's current catalog and schema where it lacks them."""
    try:
        catalog, identifier = resolve(spark, name)
    except JavaError:  # a catalog that does not start: the lookup raises it
        return name
    namespace = tuple(str(part) for part in identifier.namespace())
    if is_session_catalog(catalog) and len(namespace) > 1:  # an unknown catalog, which Spark takes for a schema
        return name
    return table_name_of((str(catalog.name()), *namespace, str(identifier.name())))


def look_up_table(spark: SparkSession, name: str) -> Lookup:
    """Find the Delta table that the catalog has under a name.

    Raises SourceError for a view, for a table of another format, and if the catalog does not answer.
    """
    try:
        catalog, identifier = resolve(spark, name)
        namespace = [str(part) for part in identifier.namespace()]
        if is_session_catalog(catalog) and len(namespace) > 1:
            remedy = f"set spark.sql.catalog.{namespace[0]} for this session, or correct the name"
            return Lookup(None, f"there is no catalog {namespace[0]} for table {name}: {remedy}")
        table = catalog.loadTable(identifier)
    except JavaError as error:
        if isinstance(error, PySparkException) and str(error.getCondition()).split(".")[0] in ABSENT:
            return Lookup(None, absence(spark, name))
        fault = catalog_fault(error, "Fix the catalog, or correct the name", f"read table {name}")
        raise SourceError(f"cannot look up table {name}: {fault}.") from error
    return Lookup(location_of(name, table), table=table)


def location_of(name: str, table: J) -> str:
    """Return the folder or URI of a Delta table in a catalog; raises SourceError for anything else."""
    kind = str(table.getClass().getName())
    if kind == DELTA_CLASS:
        return str(table.path()).removeprefix("file:")
    entry = table.catalogTable() if kind.endswith(".V1Table") else None
    if entry is not None and str(entry.tableType().name()) == "VIEW":
        if ours := catalyst.option(entry.properties().get(VIEW_PROPERTY)):
            raise SourceError(
                f"table {name}: it shows the answer of the view {ours}. Declare the view itself as the source."
            )
        raise SourceError(
            f"table {name}: it is a view of the catalog, which has no versions. Declare the tables that it reads."
        )
    provider = None if entry is None else catalyst.option(entry.provider())
    of_format = f" (its format is {provider})" if provider else ""
    raise SourceError(
        f"table {name}: not a Delta table{of_format}. Declare one that is (CONVERT TO DELTA makes one of Parquet)."
    )


def absence(spark: SparkSession, name: str) -> str:
    """Return why the catalog has no table of a name, and the fix."""
    catalog, identifier = resolve(spark, name)
    table, schema = str(identifier.name()), table_name_of((str(catalog.name()), *map(str, identifier.namespace())))
    views = catalyst.session(spark).sessionState().catalog()
    if views.isTempView(catalyst.vector(spark, [table])) or schema.endswith(".global_temp"):
        only = f"only a temporary view {table}, which has no versions"
        return f"there is no table {name} in the catalog, {only}. Write its rows to a Delta table and declare that"
    try:
        missing = f"table {name}" if cast(Any, spark).catalog.databaseExists(schema) else f"schema {schema}"
    except JavaError:
        missing = f"table {name}"
    hint = IN_MEMORY if is_session_catalog(catalog) and is_in_memory(spark) else ""
    return f"there is no {missing} in the catalog. Create it, or correct the name{hint}"


def no_data(source: str, table: VersionedTable, *, was_read: bool = False) -> str:
    """Return why a source has no table, and the fix; was_read: an epoch has read it."""
    if isinstance(table, CatalogTable):
        lookup = table.look_up_once()
        because = lookup.absence or (
            f"there is no Delta table at {lookup.location}, where the catalog has {table.label}. Restore it, or create "
            "the table again"
        )
    elif isinstance(table, ExternalTable):
        because = f"there is no table {table.label}{' any more' if was_read else ''}. Create it"
    elif name := name_in_path(table.spark, table.path):
        because = (
            f"there is no Delta table at {table.path}, and {name} is a table of the catalog, not a path. "
            f"Write Delta(table={name!r}), or `table: {name}` in pipeline.yaml"
        )
    elif was_read:
        because = (
            f"there is no Delta table at {table.path} any more. Restore it, or create or land it again and rebuild the "
            "views that read it"
        )
    else:
        because = f"there is no Delta table at {table.path}. Land its files, or create the table first"
    return f"source {source} {'is gone' if was_read else 'has no data'}: {because}."


def check_is_path(spark: SparkSession, source: str, declaration: object) -> None:
    """Raise SourceError for a table's name given as a path or as a bare string."""
    name = name_in_path(spark, declaration) if isinstance(declaration, str) and "/" not in declaration else None
    if name is not None and not Path(name).exists():
        raise SourceError(
            f"source {source}: {name} is a table of the catalog, not a path. Write Delta(table={name!r})."
        )


def name_in_path(spark: SparkSession, path: str) -> str | None:
    """Return the catalog table that the last part of a path names, None if there is none."""
    name = path.rpartition("/")[2]
    if "." not in name or table_name_parts(name) is None:
        return None
    try:
        catalog, identifier = resolve(spark, name)
        catalog.loadTable(identifier)
    except JavaError:
        return None
    return name


def resolve(spark: SparkSession, name: str) -> tuple[J, J]:
    """Return the catalog of a name and Spark's identifier in it, completed with the current catalog and schema."""
    resolver = catalyst.session(spark).sessionState().analyzer().CatalogAndIdentifier()
    pair = resolver.unapply(catalyst.vector(spark, table_name_parts(name) or ())).get()
    return pair._1(), pair._2()


def is_session_catalog(catalog: J) -> bool:
    """Return whether this is the catalog that every session has."""
    return str(catalog.name()) == SESSION_CATALOG


def is_in_memory(spark: SparkSession) -> bool:
    """Return whether the session's own catalog ends with the process."""
    external = catalyst.session(spark).sharedState().externalCatalog()
    return str(external.unwrapped().getClass().getSimpleName()) == "InMemoryCatalog"
