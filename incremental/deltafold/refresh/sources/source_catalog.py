"""Look up the declared sources of a warehouse: their tables, schemas and landers.

sources/<name>      the landed table of input files, or of a stream
quarantine/<name>   their rows that do not fit the schema
landed/<name>       the record of landings, or the position in a stream, and the lock
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from deltafold.algebra.constraints import Constraint, collect_facts
from deltafold.algebra.errors import SourceError
from deltafold.algebra.sources import Delta, External, Files, SourceDeclaration, Stream, check_source
from deltafold.lake.catalog_names import CatalogTable, check_is_path, full_name, no_data
from deltafold.lake.external_table import ExternalTable, open_external
from deltafold.lake.protocol import Lake, Table, VersionedTable
from deltafold.lake.remote.remote_path import Place
from deltafold.landing.landing import FileLander
from deltafold.landing.quarantine import Quarantine
from deltafold.landing.reader import declared_schema
from deltafold.landing.streams.stream_landing import StreamLander
from deltafold.spark import catalyst

CHAR_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"  # Spark's metadata of a column that is declared CHAR(n) or VARCHAR(n)


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The declared sources of a warehouse, views excluded, by name; lock_seconds: those of Tuning for a landing."""

    spark: SparkSession
    root: Place
    lake: Lake
    lock_seconds: float
    sources: dict[str, SourceDeclaration] = field(default_factory=dict[str, SourceDeclaration])
    _opened: dict[str, ExternalTable] = field(default_factory=dict[str, ExternalTable])

    def add(self, name: str, declaration: object) -> None:
        """Declare a source; raises SourceError for an invalid one, such as a table's name given as a path.

        A name in the catalog is completed by the session's current catalog and schema, which may change later.
        """
        path = declaration.path if isinstance(declaration, Delta) else declaration
        check_is_path(self.spark, name, path)
        checked = check_source(name, declaration)
        if isinstance(checked, Delta) and checked.table is not None:
            checked = replace(checked, table=full_name(self.spark, checked.table))
        self.sources[name] = checked

    def table(self, name: str) -> VersionedTable:
        """Return the table of a source."""
        match self._declaration(name):
            case Files() | Stream():
                return self._landed_table(name)
            case External() as external:
                if name not in self._opened:
                    self._opened[name] = open_external(self.spark, name, external)
                return self._opened[name]
            case Delta(table=str(table)):
                return CatalogTable(self.spark, table)
            case Delta() as declaration:
                return self.lake.table(self.spark, declaration.address)

    def _landed_table(self, name: str) -> Table:
        return self.lake.table(self.spark, str(self.root / "sources" / name))

    def tables(self) -> dict[str, VersionedTable]:
        """Return the table of every source."""
        return {name: self.table(name) for name in self.sources}

    def without_data(self, name: str, *, was_read: bool) -> str:
        """Return why a source has no table, and the fix; was_read: an epoch has read it."""
        return no_data(name, self.table(name), was_read=was_read)

    def schema(self, name: str) -> StructType | None:
        """Return the schema of a source as queries see it: declared for landed sources; None without a table."""
        declaration, table = self._declaration(name), self.table(name)
        if isinstance(declaration, Files | Stream):
            return nullable(declared_schema(name, declaration))
        return None if table.version() is None else nullable(table.schema())

    def partitioned_by(self, name: str) -> tuple[str, ...]:
        """Return the partition columns of a source, empty if it has no table yet."""
        declaration, table = self._declaration(name), self.table(name)
        if isinstance(declaration, Files):
            return () if declaration.partition_by is None else (declaration.partition_by,)
        version = table.version()
        return () if version is None else table.metadata(version).partition_columns

    def invariant(self) -> frozenset[str]:
        """Return the sources that are declared invariant."""
        return frozenset(name for name, declaration in self.sources.items() if declaration.invariant)

    def constraints(self, read: Collection[str], schema: Callable[[str], StructType | None]) -> tuple[Constraint, ...]:
        """Return the declared constraints of the sources that a query reads; raises SourceError for missing columns."""
        schemas = {name: schema(name) for name in read if name in self.sources}
        columns = {name: catalyst.types_of(struct) for name, struct in schemas.items() if struct is not None}
        return collect_facts(self.sources, columns, read)

    def lander(self, name: str) -> FileLander | StreamLander:
        """Return what lands a source; raises SourceError for one that is not landed."""
        declaration = self._declaration(name)
        if not isinstance(declaration, Files | Stream):
            kind = "a Delta table" if isinstance(declaration, Delta) else "a table of another format"
            raise SourceError(f"source {name}: {kind} needs no landing. Refresh the views that read it.")
        lands_to: dict[str, Any] = {
            "table": self._landed_table(name),
            "quarantine": self.quarantine(name, declaration),
            "folder": self.root / "landed" / name,
            "lock_seconds": self.lock_seconds,
        }
        if isinstance(declaration, Stream):
            return StreamLander(spark=self.spark, name=name, stream=declaration, **lands_to)
        return FileLander(spark=self.spark, name=name, files=declaration, **lands_to)

    def quarantined(self, names: Collection[str] | None = None) -> dict[str, int]:
        """Return the number of rows in quarantine by source; runs no query."""
        landed = {name: files for name, files in self.sources.items() if isinstance(files, Files | Stream)}
        landed = {name: files for name, files in landed.items() if names is None or name in names}
        sizes = {name: self.quarantine(name, files).size() for name, files in landed.items()}
        return {name: size for name, size in sizes.items() if size}

    def quarantine(self, name: str, files: Files | Stream) -> Quarantine:
        """Return the quarantine of a landed source."""
        return Quarantine(files, self.lake.table(self.spark, str(self.root / "quarantine" / name)))

    def _declaration(self, name: str) -> SourceDeclaration:
        if name not in self.sources:
            raise SourceError(
                f"unknown source {name!r}: it is not declared. Choose one of: {', '.join(self.sources) or 'none'}."
            )
        return self.sources[name]


def nullable(schema: StructType) -> StructType:
    """Return a schema with all columns nullable, as Delta and input files give it.

    Of their metadata stays the length of CHAR columns, by which Spark pads what they are compared with.
    """
    return StructType([type(column)(column.name, column.dataType, True, char_length(column)) for column in schema])


def char_length(column: StructField) -> dict[str, Any]:
    """Return the part of a column's metadata that has the length of its CHAR type; empty for other types."""
    return {key: value for key, value in column.metadata.items() if key == CHAR_LENGTH}
