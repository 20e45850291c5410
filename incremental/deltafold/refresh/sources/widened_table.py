"""Read all versions of a table by the types of today, where types of its columns were widened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.sqltext import quoted
from deltafold.algebra.wider_types import is_wider
from deltafold.lake.files import File
from deltafold.lake.protocol import VersionedTable
from deltafold.lake.table_view import TableView


class WidenedTable(TableView):
    """A table whose columns are cast to wider types, in versions in which they are narrower; types: by column."""

    def __init__(self, table: VersionedTable, types: Mapping[str, str]) -> None:
        super().__init__(table)
        self._types = types

    @property
    def origin(self) -> VersionedTable:
        """The table that has the version before an epoch."""
        origin = self.table.origin
        return self if origin is self.table else WidenedTable(origin, self._types)

    def at(self, version: int) -> DataFrame:
        """Return the table as of a version."""
        return self._widen(self.table.at(version))

    def scan(self, version: int) -> DataFrame:
        """Return the same rows as any other reader sees them."""
        return self._widen(self.table.scan(version))

    def rows_of(self, version: int, files: Sequence[File]) -> DataFrame:
        """Return the rows of some files of a version."""
        return self._widen(self.table.rows_of(version, files))

    def rows_between(self, version: int, before: Sequence[File], after: Sequence[File]) -> DataFrame:
        """Return the rows by which the deletion vectors of the same files differ."""
        return self._widen(self.table.rows_between(version, before, after))

    def feed(self, before: int, after: int) -> DataFrame:
        """Return the changed rows that the commits between two versions recorded."""
        return self._widen(self.table.feed(before, after))

    def _widen(self, rows: DataFrame) -> DataFrame:
        there = {field.name: field.dataType.simpleString() for field in rows.schema}
        wider = [name for name, type_ in self._types.items() if is_wider(there.get(name, ""), type_)]
        return rows.withColumns({name: F.col(quoted(name)).cast(self._types[name]) for name in wider})
