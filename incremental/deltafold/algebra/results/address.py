"""Define the address of a view's answer: its current table, and the SQL view that always selects it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from deltafold.algebra.errors import QueryError
from deltafold.algebra.plan import Column
from deltafold.algebra.results.report import Json

SQL_NAME_PART = re.compile(r"[A-Za-z0-9_]{1,128}")


@dataclass(frozen=True, kw_only=True)
class Address(Json):
    """The Delta table with the answer of the last finished epoch.

    path: absolute; table: the same path, relative to the view's folder; version: the Delta version after the epoch,
    whose files `maintain` keeps (None in journals of early releases); columns: names and types of the answer, which
    readers select, since the table may have reserved columns beside them; finished: when the epoch was; publish_as:
    the SQL view that shows the same table; since: when the pointer file began to name this table. plain: whether it is
    the plain table, which has no other columns; reader_features: Delta's features that a reader of the table has to
    support, None where readers are not pointed to it yet; publication: what was declared of it.
    """

    view: str
    path: str
    table: str
    version: int | None
    generation: int
    epoch: int
    columns: tuple[Column, ...]
    finished: str
    publish_as: str | None = None
    since: str = field(default="", compare=False)
    plain: bool = False
    reader_features: tuple[str, ...] | None = None
    publication: str = ""

    def __post_init__(self) -> None:
        stored = cast("Iterable[Any]", self.columns)  # JSON has dictionaries
        columns = tuple(c if isinstance(c, Column) else Column(c["name"], c["type"]) for c in stored)
        object.__setattr__(self, "columns", columns)
        if self.reader_features is not None:
            object.__setattr__(self, "reader_features", tuple(self.reader_features))

    def is_of(self, generation: int, epoch: int) -> bool:
        """Return whether it is the address of this epoch's answer."""
        return (self.generation, self.epoch) == (generation, epoch)

    def follow(self, pointed: Address) -> Address:
        """Return this address of a maintained answer as readers are pointed to the same epoch, wherever it is now."""
        place = self.path.removesuffix(self.table)
        return replace(
            self,
            path=f"{place}{pointed.table}",
            table=pointed.table,
            version=pointed.version,
            since=pointed.since,
            plain=pointed.plain,
            reader_features=pointed.reader_features,
            publication=pointed.publication,
        )


class SqlNames:
    """The names of the SQL views of one warehouse, by the view whose answer they select."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def claim(self, view: str, name: str | None) -> None:
        """Give a view a SQL name, or none; raises QueryError for an invalid one, or one that another view has."""
        self.free(view)
        if name is None:
            return
        if fault := sql_name_fault(name):
            raise QueryError(f"view {view}: publish_as: {fault}.")
        if other := next((view for view, sql in self._names.items() if is_same_name(sql, name)), None):
            raise QueryError(f"view {view}: view {other} is published as {name} too. Choose another name for one.")
        self._names[view] = name

    def free(self, view: str) -> None:
        """Free the SQL name of a view, so that another one can have it."""
        self._names.pop(view, None)


def sql_name_fault(name: object) -> str | None:
    """Return why a SQL view's name (`database.view`, `catalog.database.view`) is invalid; None if it is valid."""
    parts = name.split(".") if isinstance(name, str) else []
    if len(parts) in (2, 3) and all(SQL_NAME_PART.fullmatch(part) for part in parts):
        return None
    return f"{name!r} cannot name a SQL view. Write `database.view` with letters, digits and underscores"


def is_same_name(one: str | None, other: str | None) -> bool:
    """Return whether two names are the same to Spark, which ignores their case."""
    return (one or "").casefold() == (other or "").casefold()
