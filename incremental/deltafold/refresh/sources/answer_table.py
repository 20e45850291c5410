"""Read the table of a view as another view reads it: the answer's columns alone."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from deltafold.algebra.sqltext import quoted
from deltafold.lake.protocol import VersionedTable
from deltafold.lake.table_view import TableView


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
        given = set(frame.columns)  # an earlier generation may have had other columns
        return frame.select(*(quoted(name) for name in self._columns if name in given))
