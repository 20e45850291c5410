"""The FROM and WHERE of one SELECT while it is put together.

Every column has a unique name in the whole program (`_price12`), so a subquery can refer to the rows around it by their
columns' names. The text is written last: a group by gets its aggregates while the head above it is translated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

FRAME_COLUMN = re.compile(r"(?<!\w)_\w+")
# a quoted name, a string, a word or one other character
TOKEN = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\w+|\W", re.DOTALL)
SUBQUERY = "(SELECT "


class FreshNames:
    """Names of columns and of the elements of arrays, none of them twice."""

    def __init__(self) -> None:
        self._last = 0

    def fresh(self, hint: str) -> str:
        """Return an unused name, which ends with a number."""
        self._last += 1
        return f"_{re.sub(r'[^A-Za-z0-9]', '', hint)}{self._last}"


def uses_columns(sql: str, names: Iterable[str]) -> bool:
    """Return whether an expression uses one of these columns or elements."""
    return not set(FRAME_COLUMN.findall(sql)).isdisjoint(names)


@dataclass(frozen=True)
class FromItem:
    """One relation of a FROM: its text, and the columns that it gives, to which aggregates are added later."""

    text: Callable[[], str]
    columns: set[str]


@dataclass
class Frame:
    """The rows that a SELECT reads: relations and conditions; without relations one row without columns.

    parent: the rows around it; imported: their columns → the columns here that have the same values.
    """

    names: FreshNames
    items: list[FromItem] = field(default_factory=list[FromItem])
    conditions: list[str] = field(default_factory=list[str])
    parent: Frame | None = None
    imported: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def columns(self) -> set[str]:
        """The columns of a row."""
        return {column for item in self.items for column in item.columns}

    def child(self) -> Frame:
        """Return a frame of its own, for a subquery."""
        return Frame(self.names, parent=self)

    @property
    def outer(self) -> set[str]:
        """The columns of the rows around, which the SELECT of this frame may refer to."""
        return self.parent.columns | self.parent.outer if self.parent else set[str]()

    def importing(self, sql: str) -> str:
        """Return a subquery over this frame that refers to rows around it through columns of it.

        Spark lets a subquery refer to the rows of the query just around it alone.
        """
        for name in sorted(self.outer & set(FRAME_COLUMN.findall(sql))):
            if name not in self.imported:
                self.imported[name] = self.column(name, name.strip("_").rstrip("0123456789"))
        tokens: list[str] = TOKEN.findall(sql)
        return "".join(self.imported.get(token, token) for token in tokens)

    def text(self) -> str:
        """Return FROM and WHERE; nothing for one row without columns."""
        return _render(self.items, self.conditions)

    def add(self, text: Callable[[], str], columns: Iterable[str]) -> FromItem:
        """Cross-join the rows of a SELECT, which may refer to the columns that are here already."""
        item = FromItem(text, set(columns))
        self.items.append(item)
        return item

    def absorb(self, other: Frame) -> None:
        """Cross-join another frame."""
        self.items += other.items
        self.conditions += other.conditions

    def filter(self, condition: str) -> None:
        """Keep the rows for which a condition is true."""
        self.conditions.append(condition)

    def column(self, sql: str, hint: str) -> str:
        """Add a column, and return its name."""
        name = self.names.fresh(hint)
        others = "*, " if self.items else ""
        items = list(self.items)
        conditions = list(self.conditions)
        text = f"SELECT {others}{sql} AS {name}"
        self.items = [FromItem(lambda: f"({text}{_render(items, conditions)})", self.columns | {name})]
        self.conditions = []
        return name

    def local(self, sql: str, hint: str) -> str:
        """Return an expression over columns of this frame alone, without a subquery; else a column of it."""
        is_local = SUBQUERY not in sql and set(FRAME_COLUMN.findall(sql)) <= self.columns
        return sql if is_local else self.column(sql, hint)

    def explode(self, array: str, hint: str) -> str:
        """Cross-join the elements of an array, and return the column that has them."""
        if SUBQUERY in array or uses_columns(array, self.outer):  # Spark explodes columns of the same rows alone
            array = self.column(array, hint)
        name = self.names.fresh(hint)
        view = f" LATERAL VIEW explode({array}) {name}s AS {name}"
        if not self.items:
            self.add(lambda: f"(SELECT explode({array}) AS {name})", (name,))
        else:
            items = list(self.items)
            self.items = [FromItem(lambda: f"(SELECT *{_render(items, ())}{view})", self.columns | {name})]
        return name


def _render(items: Sequence[FromItem], conditions: Sequence[str]) -> str:
    """Write FROM and WHERE. A relation that refers to those before it is LATERAL."""
    relations = list[str]()
    before = set[str]()
    for item in items:
        text = item.text()
        relations.append(f"LATERAL {text}" if uses_columns(text, before) else text)
        before |= item.columns
    if conditions and not relations:
        relations = ["(SELECT 0)"]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return (f" FROM {', '.join(relations)}" if relations else "") + where
