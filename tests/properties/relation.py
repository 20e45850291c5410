"""What random queries are built of: SQL of rows whose columns and types are known, and conditions on them.

A column is *fuzzy* when its value depends on rounding (deviations): it is shown and aggregated, but no key, no order
and no condition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

EVENTS = {
    "k": "int", "q": "string", "b": "boolean", "i": "int", "h": "smallint", "l": "bigint", "e": "decimal",
    "v": "double", "d": "date", "t": "timestamp", "s": "string", "a": "array", "u": "bigint",
}  # fmt: skip
DIMENSION = {"dk": "int", "name": "string", "w": "int"}
INTEGERS = ("smallint", "int", "bigint")
CONDITIONS = {
    "int": ("{0} > 1", "{0} is not null", "{0} in (0, 1, 2)", "coalesce({0}, 0) <= 1"),
    "smallint": ("{0} < 2",),
    "bigint": ("{0} % 2 = 0", "{0} > 3"),
    "string": ("{0} = 'a'", "{0} is null", "{0} like '%b%'", "{0} rlike '^[ab]'"),
    "boolean": ("{0}", "not {0}", "{0} is null"),
    "double": ("{0} > 0", "not isnan({0})", "{0} <= 1.5"),
    "decimal": ("{0} < 100", "{0} is not null"),
    "date": ("{0} > date'2020-01-02'",),
    "timestamp": ("{0} is not null", "hour({0}) < 12"),
    "array": ("size({0}) > 1",),
}


@dataclass(frozen=True)
class Relation:
    """SQL of rows and the types of their columns."""

    sql: str
    columns: dict[str, str]

    def of(self, *types: str) -> list[str]:
        return [name for name, type_ in self.columns.items() if type_ in types]

    @property
    def exact(self) -> list[str]:
        return [name for name, type_ in self.columns.items() if type_ not in ("fuzzy", "array")]


Draw = Callable[[Any], Any]


def condition(draw: Draw, relation: Relation) -> str:
    names = [c for c, t in relation.columns.items() if t != "fuzzy"]
    if not names:
        return "true"
    name = draw(st.sampled_from(names))
    return draw(st.sampled_from(CONDITIONS[relation.columns[name]])).format(name)
