"""Read one version of a table as an epoch does: perhaps with other files, or with columns and types of a later one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sqltext import quoted
from deltafold.algebra.wider_types import is_wider
from deltafold.lake.files import File, Identity, physical_name
from deltafold.lake.protocol import VersionedTable
from deltafold.spark import catalyst

NESTED = (StructType, ArrayType, MapType)


@dataclass(frozen=True)
class Snapshot:
    """A version of a table.

    chosen: the files that it consists of, instead of those of the version: between two chunks of a change;
    read_as: the version whose types columns are read with, where structs got fields, which are NULL in older files;
    columns: the only ones that are read, as of a view's table;
    types: wider types than those that columns have in this version.
    """

    table: VersionedTable
    version: int
    _: KW_ONLY
    chosen: Mapping[Identity, File] | None = field(default=None, hash=False)
    read_as: int | None = None
    columns: tuple[str, ...] | None = None
    types: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)

    @property
    def files(self) -> Mapping[Identity, File]:
        """The data files by identity."""
        return self.table.files(self.version) if self.chosen is None else self.chosen

    @property
    def schema(self) -> StructType:
        """The schema of the version: types that are read as wider ones are narrow in it."""
        schema = self.table.schema(self.version)
        return schema if self.columns is None else StructType([each for each in schema if each.name in self.columns])

    @property
    def is_readable(self) -> bool:
        """Whether the version can still be read: the log lists its files, and all of them exist."""
        try:
            return self.table.find_missing(self.version) is None
        except SourceError:
            return False

    def rows(self) -> DataFrame:
        """Return the rows; raises SourceError where the version can no longer be read."""
        if self.chosen is not None or self.read_as not in (None, self.version):
            return self.rows_of(list(self.files.values()))
        rows = self.widen(self.table.at(self.version))
        if self.columns is None:
            return rows
        there = set(rows.columns)  # an earlier generation of a view may have had other columns
        return rows.select(*(quoted(name) for name in self.columns if name in there))

    def rows_of(self, files: Sequence[File]) -> DataFrame:
        """Return the rows of some files."""
        read_as = self.version if self.read_as is None else self.read_as
        if read_as != self.version and not self._is_readable_as(read_as):
            return self.widen(self._reconcile(self.table.rows_of(self.version, files), read_as))
        return self.widen(self.table.rows_of(read_as, files))

    def widen(self, rows: DataFrame) -> DataFrame:
        """Return rows of the table with the types that are read."""
        there = catalyst.types_of(rows.schema) if self.types else {}
        wider = {name: type_ for name, type_ in self.types.items() if is_wider(there.get(name, ""), type_)}
        casts = {name: F.col(quoted(name)).cast(type_) for name, type_ in wider.items()}
        return rows.withColumns(casts) if casts else rows

    def _is_readable_as(self, later: int) -> bool:
        """Return whether the schema of a later version gives the same values, NULL in fields that structs got."""
        partitions = {self.table.metadata(version).partition_columns for version in (self.version, later)}
        return len(partitions) == 1 and not is_remapped(self, Snapshot(self.table, later))

    def _reconcile(self, rows: DataFrame, later: int) -> DataFrame:
        """Return rows with the types of a later version: fields of structs by name, NULL for an added one (D-227)."""
        nested = {each.name: each.dataType for each in self.table.schema(later) if isinstance(each.dataType, NESTED)}
        return rows.to(StructType([StructField(x.name, nested.get(x.name, x.dataType)) for x in rows.schema]))


def is_remapped(before: Snapshot, after: Snapshot) -> bool:
    """Return whether column names refer to other columns of the files: a column was renamed, or dropped and added
    again, or the table was replaced.
    """
    if before.table is not after.table:
        return True
    table, versions = after.table, (before.version, after.version)
    if not any(table.metadata(version).is_mapped for version in versions):
        return False
    old, new = (physical_names(table.schema(version)) for version in versions)
    return any(name in new and new[name] != physical for name, physical in old.items())


def physical_names(data_type: DataType, path: str = "") -> dict[str, str]:
    """Return the names in the files of each column and nested field, by its name in the schema."""
    match data_type:
        case StructType(fields=fields):
            names: dict[str, str] = {}
            for column in fields:
                inner = f"{path}.{column.name}"
                names[inner] = physical_name(column)
                names |= physical_names(column.dataType, inner)
            return names
        case ArrayType(elementType=element):
            return physical_names(element, f"{path}[]")
        case MapType(keyType=key, valueType=value):
            return physical_names(key, f"{path}{{}}") | physical_names(value, f"{path}[]")
        case _:
            return {}
