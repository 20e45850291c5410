"""Random lists, first and last values of one group-by, compared with columns of the group's rows in one order."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.properties.relation import Draw
from tests.sandbox import MemorySandbox, Step, checked, rows

SCHEMA = "k int, a int, b string, c string"
Row = tuple[Any, ...]
FILTERS: dict[str, Callable[[Row], bool]] = {
    "": lambda row: True,
    "a > 1": lambda row: row[1] is not None and row[1] > 1,
    "b is null": lambda row: row[2] is None,
    "c = 'x'": lambda row: row[3] == "x",
}
# by itself, NULL last
ORDERS: dict[str, Callable[[Row], Any]] = {
    "": lambda row: 0,
    "a desc": lambda row: (row[1] is None, -(row[1] or 0)),
    "b nulls last": lambda row: (row[2] is None, row[2] or ""),
}


KINDS = (
    "list", "list", "array", "text", "text", "first", "last", "any", "known", "latest", "distinct", "set", "sorted",
    "greatest", *["latest row", "earliest row"] * 2,
)  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One aggregate: `column` by position, of the rows of a filter, in an order of its own."""

    kind: str
    column: int
    filter: str = ""
    order: str = ""

    @property
    def sql(self) -> str:
        name = "kabc"[self.column]
        text = {
            "list": f"collect_list({name})", "array": f"array_agg({name})", "text": f"listagg({name}, ',')",
            "first": f"first({name})", "last": f"last({name})", "any": f"any_value({name})",
            "known": f"first({name}, true)", "latest": f"last({name}, true)",
            "distinct": f"collect_list(distinct {name})", "set": f"collect_set({name})",
            "sorted": f"sort_array(collect_list({name}){self._where})", "greatest": f"max({name})",
            "latest row": f"max_by({name}, a)", "earliest row": f"min_by({name}, a)",
        }[self.kind]  # fmt: skip
        if self.order:
            text += f" within group (order by {self.order})"
        return text if self.kind == "sorted" else text + self._where

    @property
    def _where(self) -> str:
        return f" filter (where {self.filter})" if self.filter else ""

    def of(self, group: Sequence[Row]) -> Any:
        """Its value of the rows of a group in their order."""
        taken = sorted((row for row in group if FILTERS[self.filter](row)), key=ORDERS[self.order])
        values = [row[self.column] for row in taken]
        known = [value for value in values if value is not None]
        match self.kind:
            case "list" | "array":
                return known
            case "text":
                return ",".join(known) if known else None
            case "first" | "any" | "last":
                return None if not values else values[-1 if self.kind == "last" else 0]
            case "known" | "latest":
                return None if not known else known[-1 if self.kind == "latest" else 0]
            case "distinct" | "set":
                return sorted(set(known))
            case "sorted":
                return sorted(known)
            case _:
                return max(known, default=None)


def of_tied_row(call: Call, calls: Sequence[Call], group: Sequence[Row]) -> Any:
    """The value of max_by or min_by by `a`: of one row for all calls alike, chosen by their values."""
    tied = dict.fromkeys(each.column for each in calls if (each.kind, each.filter) == (call.kind, call.filter))
    taken = [row for row in group if FILTERS[call.filter](row) and row[1] is not None]
    choose = max if call.kind == "latest row" else min
    row = choose(taken, key=lambda row: (row[1], [(row[i] is not None, row[i]) for i in tied]), default=None)
    return None if row is None else row[call.column]


def ordered(calls: Sequence[Call], group: Sequence[Row]) -> list[Row]:
    """The rows of a group by the values of its lists, then by those that first and last take."""
    lists = [call.column for call in calls if call.kind in ("list", "array", "text")]
    others = [call.column for call in calls if call.kind in ("first", "last", "any", "known", "latest")]
    return sorted(group, key=lambda row: [(row[i] is not None, row[i]) for i in (*lists, *others)])


def answer(found: Sequence[Call], table: Sequence[Row]) -> list[Row]:
    """The sorted answer of a group-by of a table."""
    by_key: dict[Any, list[Row]] = {}
    for row in table:
        by_key.setdefault(row[0], []).append(tuple(row))
    answers: list[Row] = []
    for k, group in by_key.items():
        in_order = ordered(found, group)
        values = (of_tied_row(c, found, group) if c.kind.endswith("row") else c.of(in_order) for c in found)
        answers.append((k, *values))
    return sorted(answers, key=repr)


@st.composite
def calls(draw: Draw) -> Call:
    kind = draw(st.sampled_from(KINDS))
    order = draw(st.sampled_from(list(ORDERS))) if kind == "text" else ""
    column = draw(st.integers(2 if kind == "text" else 1, 3))
    return Call(kind, column, draw(st.sampled_from(["", *FILTERS])), order)


content = st.tuples(
    st.sampled_from([1, 1, 2, None]), st.sampled_from([None, 1, 2, 3]), st.sampled_from([None, "p", "q", "r"]),
    st.sampled_from([None, "x", "y"]),
)  # fmt: skip
GONE = ("a = 1", "b is null", "k = 2", "c = 'x' and a > 1", "true")
steps: st.SearchStrategy[Step] = st.one_of(
    st.lists(content, max_size=4).map(lambda new: ("insert", "t", new)),
    st.sampled_from(GONE).map(lambda where: ("delete", "t", where)),
    st.sampled_from([("update", "t", {"a": "3"}, "b = 'q'"), ("update", "t", {"b": "null"}, "a = 2")]),
)  # fmt: skip
groups = st.lists(content, min_size=3, max_size=12)


def test_lists_of_a_group_are_columns_of_its_rows(spark: SparkSession) -> None:
    """Any aggregates beside each other, any history."""

    @settings(max_examples=max(2, settings().max_examples // 6))
    @given(
        st.lists(calls(), min_size=3, max_size=7),
        st.lists(content, min_size=3, max_size=12),
        st.lists(steps, min_size=1, max_size=2),
    )
    def run(found: list[Call], first: list[Row], history: list[Step]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            sandbox = MemorySandbox(spark, Path(folder)).sources({"t": (SCHEMA, first)})
            view = sandbox.view(
                f"select k, {', '.join(f'{c.sql} c{i}' for i, c in enumerate(found))} from t group by k"
            )
            for step in (None, *history):
                if step:
                    sandbox.do(step)
                checked(view)
                assert rows(view) == answer(found, sandbox.read("select * from {t}").collect()), view.query

    run()
