"""Read all versions of a table by the schema of one, where structs got fields that older versions do not have."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from deltafold.algebra.errors import SourceError
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
