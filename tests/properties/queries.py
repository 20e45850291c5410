"""Random queries: linear operators, joins and subqueries, windows, group-bys up to three deep.

A query is built from the inside out; each layer is a subquery whose columns and types are known.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tests.properties.joins import combined, joined, looked_up, tested
from tests.properties.orders import topped, unmerged, windowed
from tests.properties.relation import CONDITIONS, EVENTS, INTEGERS, Draw, Relation, condition

COMPUTED = {
    "int": ("coalesce({0}, -1)", "{0} % 3", "cast({0} as bigint) * 2", "cast({0} as string)"),
    "smallint": ("cast({0} as int) + 1",),
    "bigint": ("{0} & 255", "if({0} > 2, {0}, null)"),
    "string": ("upper({0})", "coalesce({0}, '?')", "length({0})", "nullif({0}, 'a')"),
    "boolean": ("not {0}", "coalesce({0}, false)"),
    "double": ("{0} * 2", "coalesce({0}, 0.5D)", "cast({0} > 1 as int)"),
    "decimal": ("cast({0} as decimal(14,3))", "-{0}", "abs({0})"),
    "date": ("year({0})", "add_months({0}, 1)"),
    "timestamp": ("date_trunc('DAY', {0})", "hour({0})"),
    "array": ("size({0})", "array_contains({0}, 1)", "transform({0}, x -> x + 1)[0]"),
}
RESULTS = {
    "cast({0} as bigint) * 2": "bigint", "cast({0} as string)": "string", "cast({0} as int) + 1": "int",
    "length({0})": "int", "cast({0} > 1 as int)": "int", "year({0})": "int", "hour({0})": "int", "size({0})": "int",
    "array_contains({0}, 1)": "boolean", "transform({0}, x -> x + 1)[0]": "int",
}  # fmt: skip
COUNTS = ("count({0})", "count(distinct {0})")
EXTREMES = ("min({0})", "max({0})")
MOMENTS = ("stddev({0})", "stddev_pop({0})", "variance({0})", "var_pop({0})")
SUMS = ("sum({0})", "avg({0})", "try_sum({0})", "sum(distinct {0})")
BITS = ("bit_and({0})", "bit_or({0})", "bit_xor({0})")
AGGREGATES = {
    **dict.fromkeys(INTEGERS, (*SUMS, *EXTREMES, *COUNTS, *BITS, *MOMENTS, "count_if({0} > 1)", "avg(distinct {0})")),
    "double": (*SUMS[:3], *EXTREMES, *COUNTS, *MOMENTS),
    "decimal": (*SUMS, *EXTREMES, *COUNTS),
    "boolean": ("bool_and({0})", "bool_or({0})", "count_if({0})", *EXTREMES, *COUNTS),
    **dict.fromkeys(("string", "date", "timestamp"), (*EXTREMES, *COUNTS)),
    "fuzzy": ("min({0})", "max({0})", "sum({0})", "avg({0})", "count({0})"),
    "array": ("count({0})", "max({0})"),
}
SAME_TYPE = {"min", "max", "bit_and", "bit_or", "bit_xor"}


def filtered(draw: Draw, relation: Relation) -> Relation:
    return Relation(f"select * from ({relation.sql}) where {condition(draw, relation)}", relation.columns)


def projected(draw: Draw, relation: Relation) -> Relation:
    """All columns, two of them replaced by expressions of theirs."""
    columns, items = dict(relation.columns), []
    sharp = [c for c in columns if columns[c] != "fuzzy"]
    changing = draw(st.lists(st.sampled_from(sharp), min_size=1, max_size=2)) if sharp else []
    for name, type_ in relation.columns.items():
        text = draw(st.sampled_from(COMPUTED[type_])) if name in changing and name != "u" else "{0}"
        columns[name] = RESULTS.get(text, type_)
        items.append(f"{text.format(name)} as {name}")
    return Relation(f"select {', '.join(items)} from ({relation.sql})", columns)


def exploded(draw: Draw, relation: Relation) -> Relation:
    arrays = relation.of("array")
    if not arrays or "el" in relation.columns:
        return filtered(draw, relation)
    outer = draw(st.sampled_from(["", "outer "]))
    sql = f"select * from ({relation.sql}) lateral view {outer}explode({arrays[0]}) as el"
    return Relation(sql, {**relation.columns, "el": "int"})


def united(draw: Draw, relation: Relation) -> Relation:
    names = ", ".join(relation.columns)
    branches = (f"select {names} from ({filtered(draw, relation).sql})" for _ in "12")
    return Relation(" union all ".join(branches), relation.columns)


def aggregate(draw: Draw, relation: Relation) -> tuple[str, str]:
    """One aggregate and the type of its answer."""
    if relation.exact and draw(st.integers(0, 9)) == 9:
        value, order = (draw(st.sampled_from(relation.exact)) for _ in "vo")
        which = draw(st.sampled_from(["max_by", "min_by"]))
        return f"{which}({value}, named_struct('o', {order}, 'v', {value}))", relation.columns[value]
    if draw(st.integers(0, 9)) == 9 and len(pair := relation.of(*INTEGERS, "double")) > 1:
        return f"{draw(st.sampled_from(['covar_samp', 'covar_pop']))}({pair[0]}, {pair[-1]})", "fuzzy"
    if draw(st.integers(0, 7)) == 7 and (found := unmerged(draw, relation)) is not None:
        return found
    name = draw(st.sampled_from(list(relation.columns)))
    type_ = relation.columns[name]
    text = draw(st.sampled_from(AGGREGATES[type_]))
    return text.format(name), answer_type(text.split("(")[0], type_)


def answer_type(function: str, type_: str) -> str:
    if function in SAME_TYPE or type_ == "fuzzy":
        return "bigint" if function == "count" else type_
    if function in ("sum", "try_sum"):
        return "bigint" if type_ in INTEGERS else type_
    if function == "avg":
        return "decimal" if type_ == "decimal" else "double"
    return {"bool_and": "boolean", "bool_or": "boolean"}.get(function, "bigint" if "count" in function else "fuzzy")


def grouped(draw: Draw, relation: Relation, depth: int) -> Relation:
    """A group-by or a total, with FILTER clauses, expressions over aggregates, grouping sets and HAVING."""
    keys = draw(st.lists(st.sampled_from(relation.exact), max_size=2, unique=True)) if relation.exact else []
    names = {key: f"g{depth}_{number}" for number, key in enumerate(keys)}
    columns = {names[key]: relation.columns[key] for key in keys}
    items = [f"{key} as {name}" for key, name in names.items()]
    having = []
    for number in range(draw(st.integers(1, 4))):
        text, type_ = aggregate(draw, relation)
        if draw(st.integers(0, 4)) == 4:
            text += f" filter (where {condition(draw, relation)})"
        if type_ == "bigint" and draw(st.integers(0, 3)) == 3:
            text = draw(st.sampled_from(["coalesce({0}, 0) + count(*)", "if({0} > 1, {0}, null)"])).format(text)
        if type_ in ("bigint", "boolean"):
            having.append(draw(st.sampled_from(CONDITIONS[type_])).format(text))
        items.append(f"{text} as a{depth}_{number}")
        columns[f"a{depth}_{number}"] = type_
    sql = f"select {', '.join(items)} from ({relation.sql})"
    if keys:
        sets = ["group by {0}", "group by {0}", "group by cube ({0})", "group by rollup ({0})",
                "group by grouping sets (({0}), ())"]  # fmt: skip
        sql += " " + draw(st.sampled_from(sets)).format(", ".join(keys))
    if having and draw(st.integers(0, 2)) == 2:
        sql += f" having {having[0]}"
    return Relation(sql, columns)


LAYERS = (
    filtered, projected, exploded, united, joined, joined, joined, tested, tested, looked_up, combined, windowed,
)  # fmt: skip


@st.composite
def queries(draw: Draw) -> str:
    """A query over `events` and `dim`."""
    relation = Relation(f"select {', '.join(EVENTS)} from events", EVENTS)
    for operator in draw(st.lists(st.sampled_from(LAYERS), max_size=3)):
        relation = operator(draw, relation)
    for depth in range(draw(st.sampled_from([1, 1, 2, 2, 3, 0]))):
        relation = grouped(draw, relation, depth)
        if draw(st.integers(0, 4)) == 4:
            relation = draw(st.sampled_from(LAYERS))(draw, relation)
    if draw(st.integers(0, 5)) == 5:
        relation = topped(draw, relation)
    chosen = [c for c, t in relation.columns.items() if t != "array"]
    if len(chosen) > 6:
        chosen = draw(st.lists(st.sampled_from(chosen), min_size=1, max_size=4, unique=True))
        exact = all(relation.columns[c] != "fuzzy" for c in chosen)
        distinct = draw(st.sampled_from(["", "", "distinct "])) if exact else ""
        return f"select {distinct}{', '.join(chosen)} from ({relation.sql})"
    return relation.sql
