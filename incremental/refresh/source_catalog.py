"""The declared sources of a warehouse. In: declarations. Out: their tables, schemas, landings.

sources/<name>      the landed table of dropped files
quarantine/<name>   the rows of them that do not fit
landed/<name>       what their landings remember, and the lock
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from incremental.algebra.constraints import Constraint, collect_facts
from incremental.algebra.errors import SourceError
from incremental.algebra.sources import Files, SourceDeclaration
from incremental.lake.catalog_names import CatalogTable
from incremental.lake.protocol import Lake, Table
from incremental.landing.landing import Landings, types
from incremental.landing.quarantine import Quarantine
from incremental.landing.reader import declared_schema


@dataclass(frozen=True)
class Declared:
    """The sources of a warehouse that are no views, by name."""

    spark: SparkSession
    root: Path
    lake: Lake
    sources: dict[str, SourceDeclaration] = field(default_factory=dict[str, SourceDeclaration])

    def table(self, name: str) -> Table:
        """The Delta table of a source."""
        declaration = self._declaration(name)
        if isinstance(declaration, Files):
            return self.lake.table(self.spark, str(self.root / "sources" / name))
        if declaration.table is not None:
            return CatalogTable(self.spark, declaration.table)
        return self.lake.table(self.spark, declaration.address)

    def tables(self) -> dict[str, Table]:
        """The Delta table of every source."""
        return {name: self.table(name) for name in self.sources}

    def schemas(self) -> dict[str, StructType]:
        """The schema of every source that has one by now."""
        known: dict[str, StructType] = {}
        for name, declaration in self.sources.items():
            if isinstance(declaration, Files):
                known[name] = nullable(declared_schema(name, declaration))
            elif self.table(name).version() is not None:
                known[name] = nullable(self.table(name).schema())
        return known

    def partitioned_by(self) -> dict[str, tuple[str, ...]]:
        """The partition columns of every source that has some by now."""
        known: dict[str, tuple[str, ...]] = {}
        for name, declaration in self.sources.items():
            if isinstance(declaration, Files):
                known[name] = () if declaration.partition_by is None else (declaration.partition_by,)
            elif (version := self.table(name).version()) is not None:
                known[name] = tuple(self.table(name).partitioned_by(version))
        return {name: columns for name, columns in known.items() if columns}

    def constraints(self, read: Collection[str]) -> tuple[Constraint, ...]:
        """What is declared of the sources that a query reads; raises SourceError where it does not fit them."""
        return collect_facts(self.sources, {name: types(schema) for name, schema in self.schemas().items()}, read)

    def landings(self, name: str) -> Landings:
        """What lands a source; raises SourceError for one that is not landed."""
        declaration = self._declaration(name)
        if not isinstance(declaration, Files):
            raise SourceError(f"source {name} is a Delta table, which needs no landing")
        quarantine = self.quarantine(name, declaration)
        return Landings(self.spark, name, declaration, self.table(name), quarantine, self.root / "landed" / name)

    def quarantined(self) -> dict[str, int]:
        """How many rows of each source are in quarantine, where there are any; runs no query."""
        landed = {name: files for name, files in self.sources.items() if isinstance(files, Files)}
        sizes = {name: self.quarantine(name, files).size() for name, files in landed.items()}
        return {name: size for name, size in sizes.items() if size}

    def quarantine(self, name: str, files: Files) -> Quarantine:
        """The quarantine of a landed source, empty or not."""
        return Quarantine(files, self.lake.table(self.spark, str(self.root / "quarantine" / name)))

    def _declaration(self, name: str) -> SourceDeclaration:
        if name not in self.sources:
            raise SourceError(f"there is no source {name!r}; declared are: {', '.join(self.sources) or 'none'}")
        return self.sources[name]


def nullable(schema: StructType) -> StructType:
    """The schema as Delta and dropped files give it: any column may be NULL, and nothing is noted beside it."""
    return StructType([type(each)(each.name, each.dataType, True) for each in schema])
