"""Declare Delta tables that others write."""

from __future__ import annotations

from dataclasses import dataclass

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sources.constraints import ForeignKey, check_declaration
from deltafold.algebra.table_name import table_name_fault


@dataclass(frozen=True)
class Delta:
    """A Delta table, whoever writes it: by its path or by its name in the catalog, exactly one of them.

    path: its folder or URI; table: its name in Spark's catalog (`schema.t`, `catalog.schema.t`), looked up at each use;
    the session's current catalog and schema complete a shorter name when the source is declared, as in a SQL view;
    invariant: it never changes after a view's first epoch (a dimension table);
    primary_key: columns that no two rows share and that are never NULL; foreign_keys: those that refer to other
    sources; append_only: rows are added and never removed or changed.
    """

    path: str | None = None
    invariant: bool = False
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    append_only: bool = False
    table: str | None = None

    def __post_init__(self) -> None:
        if (self.path is None) == (self.table is None) or (self.path is not None and not str(self.path).strip()):
            raise SourceError('Delta: a source has either a path or a table. Write Delta(path) or Delta(table="db.t").')
        if self.table is not None and (fault := table_name_fault(self.table)):
            raise SourceError(f"Delta: {fault}.")
        check_declaration(self)

    @property
    def address(self) -> str:
        """The path or the name of the table, as it was declared."""
        return str(self.path if self.table is None else self.table)
