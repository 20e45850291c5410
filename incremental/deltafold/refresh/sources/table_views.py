"""Read the tables below a view as its query does: with fields, types or columns that a version has otherwise.

| class | reads |
| --- | --- |
| GrownTable | all versions by the schema of one, where structs got fields that older versions do not have |
| WidenedTable | all versions by the types of today, where types of columns got wider |
| Answer | the table of a view without the columns that only its refresh reads |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sqltext import quoted
from deltafold.algebra.wider_types import is_wider
from deltafold.lake.files import File
from deltafold.lake.protocol import VersionedTable
from deltafold.lake.table_view import TableView
from deltafold.lake.version_diff import is_remapped


class GrownTable(TableView):
    """A table whose earlier versions are read by the schema of a later one: fields that they lack are NULL."""

    def __init__(self, table: VersionedTable, later: int) -> None:
        super().__init__(table)
        self._later = later

    def at(self, version: int) -> DataFrame:
        """Return the table as of a version."""
        if version == self._later:
            return self.table.at(version)
        return self.rows_of(version, list(self.table.files(version).values()))

    def rows_of(self, version: int, files: Sequence[File]) -> DataFrame:
        """Return the rows of some files of a version."""
        same = self.table.partitioned_by(version) == self.table.partitioned_by(self._later)
        if not same or is_remapped(self.table, version, self._later):
            raise SourceError(
                f"the table {self.label}: its columns were renamed or its partitions changed, and structs got fields, "
                f"between its versions {version} and {self._later}. Rebuild the views that read it."
            )
        return self.table.rows_of(self._later, files)


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


class Answer(TableView):
    """The table of a view as another view reads it: the answer's columns alone.

    origin: the table with the version before the epoch, if a rebuild has made a new table since.
    """

    def __init__(self, table: VersionedTable, columns: tuple[str, ...], origin: VersionedTable | None = None) -> None:
        super().__init__(table)
        self._columns, self._origin = columns, origin

    @property
    def origin(self) -> VersionedTable:
        """The table before the epoch."""
        return self._origin or self

    @property
    def rewritten(self) -> bool:
        """Whether commits rewrite many unchanged rows, as those of small states do."""
        return True

    def schema(self, version: int | None = None) -> StructType:
        """Return the schema of the answer's columns."""
        return StructType([field for field in super().schema(version) if field.name in self._columns])

    def at(self, version: int) -> DataFrame:
        """Return the answer as of a version."""
        frame = super().at(version)
        present = set(frame.columns)  # an earlier generation may have had other columns
        return frame.select(*(quoted(name) for name in self._columns if name in present))
