"""Compiler room: the rule of each kind of operator, in words. In: nothing. Out: the rows of explain and of the README.

`python -m incremental.compiler.operators` prints the README's table.
"""

from __future__ import annotations

from dataclasses import dataclass

from incremental.algebra.monoids.family import infer_monoid
from incremental.algebra.monoids.kinds import Group


@dataclass(frozen=True)
class Operator:
    """A kind of operator: how it is maintained, what is kept for it, what is read, and what deletions do."""

    name: str
    rule: str
    state: str
    reads: str
    deletions: str


# Spark's class names of aggregates and the argument types by which each is classified
AGGREGATES = (
    ("sum", "int"), ("count", "int"), ("average", "int"), ("stddevsamp", "int"), ("variancesamp", "int"),
    ("bitxoragg", "int"), ("min", "int"), ("max", "int"), ("minby", "int"),
    ("maxby", "int"), ("bitandagg", "int"), ("bitoragg", "int"), ("stddevsamp", "double"), ("variancesamp", "double"),
    ("covsample", "double"), ("corr", "double"), ("percentile", "int"), ("mode", "int"), ("collectlist", "int"),
    ("collectset", "int"), ("listagg", "string"), ("approximatepercentile", "int"),
    ("hyperloglogplusplus", "int"), ("skewness", "double"), ("histogramnumeric", "int"),
)  # fmt: skip
NAMES = {
    "average": "avg", "stddevsamp": "stddev", "variancesamp": "variance", "bitxoragg": "bit_xor", "minby": "min_by",
    "maxby": "max_by", "bitandagg": "bit_and and bool_and", "bitoragg": "bit_or and bool_or", "covsample": "covar",
    "collectlist": "collect_list", "collectset": "collect_set", "percentile": "percentile, median",
    "approximatepercentile": "approx_percentile", "hyperloglogplusplus": "approx_count_distinct",
    "histogramnumeric": "histogram_numeric and every other",
}  # fmt: skip


def classified(kind: str) -> str:
    """The aggregates of a kind (subtract, recompute, none), as the monoids say."""
    found: list[str] = []
    for function, type_ in AGGREGATES:
        inferred = infer_monoid(function, (type_, type_), "ansi", 2)
        here = "none" if inferred is None else "subtract" if isinstance(inferred, Group) else "recompute"
        if here == kind:
            of = f" of {type_}s" if function in ("stddevsamp", "variancesamp") else ""
            found.append(NAMES.get(function, function) + of)
    return ", ".join(dict.fromkeys(found))


KEYED = "the group row count, and the aggregates' own columns, by lineage key"
LINEAR = Operator(
    "SELECT, WHERE, explode, UNION ALL, cube, rollup, grouping sets, scalar Python and Arrow functions",
    "linear", "none", "the change alone", "the same operator on deleted rows",
)  # fmt: skip
INNER = Operator(
    "inner, cross and comma joins on any condition, uncorrelated scalar subqueries",
    "one term for each input that changed: the inputs before it as they are now, those after it as they were",
    "none", "the other inputs, within the intervals of the change's keys", "as any change",
)  # fmt: skip
OUTER = Operator(
    "left, right and full joins, IN, EXISTS and their negations, correlated subqueries, LATERAL, INTERSECT, EXCEPT",
    "Δl, then the rows that a changed row of r can match, before and after",
    "none; one for each GROUP BY within", "both inputs, within the intervals of the change's keys", "as any change",
)  # fmt: skip
ADDITIVE = Operator(
    f"GROUP BY and totals: {classified('subtract')}", "state ⊗ h(ΔS), one MERGE", KEYED, "touched buckets of the state",
    "subtract",
)  # fmt: skip
EXTREME = Operator(
    f"GROUP BY and totals: {classified('recompute')}", ADDITIVE.rule, KEYED,
    "touched buckets of the state; where a deletion reaches a group's value, the rows of that group",
    "recompute the groups whose value they reach",
)  # fmt: skip
UNMERGED = Operator(
    f"GROUP BY and totals: {classified('none')} aggregate of Spark's", "touched groups are computed anew",
    "the answer of each group", "the rows of touched groups", "computed anew",
)  # fmt: skip
DISTINCT = Operator(
    "SELECT DISTINCT, UNION, DISTINCT in aggregates", "group row count crossing zero",
    "the row count of each distinct value", "touched buckets of the state", "subtract",
)  # fmt: skip
WINDOW = Operator(
    "windows with PARTITION BY, QUALIFY, top-k per group, Pandas functions of groups",
    "touched partitions, before and after", "none", "the rows of touched partitions", "computed anew",
)  # fmt: skip
WHOLE = Operator(
    "windows without PARTITION BY, ORDER BY with LIMIT or OFFSET", "all rows, before and after", "none",
    "all rows of the input, twice", "computed anew",
)  # fmt: skip
OPERATORS = (LINEAR, INNER, OUTER, ADDITIVE, EXTREME, UNMERGED, DISTINCT, WINDOW, WHOLE)


def table() -> str:
    """All operators as Markdown."""
    lines = ["| operator | how it is maintained | state kept | what is read | deletions |", "| --- " * 5 + "|"]
    lines += [f"| {o.name} | {o.rule} | {o.state} | {o.reads} | {o.deletions} |" for o in OPERATORS]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
