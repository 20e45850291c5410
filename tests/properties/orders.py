"""Layers of a random query in which the order of rows counts: windows, QUALIFY, top-k."""

from __future__ import annotations

import pyspark
from hypothesis import strategies as st

from tests.properties.relation import INTEGERS, Draw, Relation

FUNCTIONS = (
    ("row_number()", "int"), ("rank()", "int"), ("dense_rank()", "int"), ("ntile(3)", "int"), ("lag({0})", ""),
    ("lead({0}, 2)", ""), ("first_value({0})", ""), ("count(*)", "bigint"), ("max({0})", ""), ("min({0})", ""),
)  # fmt: skip
FRAMES = (
    "", "", " rows between 1 preceding and 1 following", " rows between unbounded preceding and current row",
    " range between unbounded preceding and unbounded following",
)  # fmt: skip
QUALIFIES = not pyspark.__version__.startswith(("4.0.", "4.1."))  # which cannot parse it
FRAMED = ("count(*)", "max({0})", "min({0})", "first_value({0})")


def windowed(draw: Draw, relation: Relation) -> Relation:
    """One or two window functions, over partitions or (seldom) over all rows; sometimes only the first rows stay."""
    names = relation.exact
    if not names or "fuzzy" in relation.columns.values():
        return relation
    keys = draw(st.lists(st.sampled_from(names), min_size=draw(st.sampled_from([1, 1, 1, 0])), max_size=2, unique=True))
    order = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    direction = draw(st.sampled_from(["", " desc", " desc nulls last"]))
    by = f"partition by {', '.join(keys)} " if keys else ""
    by += f"order by {', '.join(name + direction for name in order)}"
    number = sum(name.startswith("w_") for name in relation.columns)
    columns, items = dict(relation.columns), []
    for _ in range(draw(st.integers(1, 2))):
        argument = draw(st.sampled_from(names))
        function, type_ = draw(st.sampled_from(FUNCTIONS))
        frame = draw(st.sampled_from(FRAMES)) if function in FRAMED else ""
        if function.startswith("first") and not frame:
            frame = FRAMES[2]
        items.append(f"{function.format(argument)} over ({by}{frame}) as w_{number}")
        columns[f"w_{number}"] = type_ or relation.columns[argument]
        number += 1
    chosen = f" qualify row_number() over ({by}) <= 2" if draw(st.integers(0, 3)) == 3 and QUALIFIES else ""
    return Relation(f"select *, {', '.join(items)} from ({relation.sql}){chosen}", columns)


def topped(draw: Draw, relation: Relation) -> Relation:
    """The first few rows of an order, perhaps after some."""
    if not relation.exact or "fuzzy" in relation.columns.values():
        return relation
    order = draw(st.sampled_from(relation.exact)) + draw(st.sampled_from(["", " desc"]))
    limit = draw(st.sampled_from(["limit 3", "limit 5 offset 2", "limit 1"]))
    return Relation(f"select * from ({relation.sql}) order by {order} {limit}", relation.columns)


def unmerged(draw: Draw, relation: Relation) -> tuple[str, str] | None:
    """An aggregate that has no merge, and the type of its answer; None where no column suits."""
    text, suits, type_ = draw(
        st.sampled_from(
            [
                ("percentile({0}, 0.5)", INTEGERS, "fuzzy"), ("median({0})", ("int",), "fuzzy"),
                ("collect_list({0})", (*INTEGERS, "string"), "array"), ("collect_set({0})", ("int",), "array"),
                ("mode({0})", (*INTEGERS, "string"), ""), ("any_value({0})", (*INTEGERS, "string", "date"), ""),
                ("approx_count_distinct({0})", INTEGERS, "bigint"), ("skewness({0})", INTEGERS, "fuzzy"),
                ("string_agg({0}, ',') within group (order by {0})", ("string",), "string"),
            ]
        )
    )  # fmt: skip
    names = relation.of(*suits)
    if not names:
        return None
    name = draw(st.sampled_from(names))
    return text.format(name), type_ or relation.columns[name]
