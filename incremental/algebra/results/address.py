"""Define the address of a view's answer: its current table, and the SQL view that always selects it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from incremental.algebra.plan import Column
from incremental.algebra.results.report import Json

SQL_NAME_PART = re.compile(r"[A-Za-z0-9_]{1,128}")


@dataclass(frozen=True)
class Address(Json):
    """The Delta table with the answer of the last finished epoch.

    path: absolute; table: the same path, relative to the view's folder; version: the Delta version after the epoch,
    whose files `maintain` keeps (None in journals of early releases); columns: names and types of the answer, which
    readers select, since the table may have reserved columns beside them; finished: when the epoch was; publish_as:
    the SQL view that shows the same table; since: when the pointer file began to name this table.
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

    def __post_init__(self) -> None:
        given = cast("Iterable[Any]", self.columns)
        columns = tuple(each if isinstance(each, Column) else Column(each["name"], each["type"]) for each in given)
        object.__setattr__(self, "columns", columns)


def sql_name_fault(name: object) -> str | None:
    """Return why a SQL view's name (`database.view`, `catalog.database.view`) is invalid; None if it is valid."""
    parts = name.split(".") if isinstance(name, str) else []
    if len(parts) in (2, 3) and all(SQL_NAME_PART.fullmatch(part) for part in parts):
        return None
    return f"{name!r} cannot name a SQL view. Write `database.view` with letters, digits and underscores"


def is_same_name(one: str | None, other: str | None) -> bool:
    """Return whether two names are the same to Spark, which ignores their case."""
    return (one or "").casefold() == (other or "").casefold()
