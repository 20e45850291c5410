"""List the rule of each kind of operator, for explain and for the documented table of operators.

`python -m deltafold.compiler.operators` prints the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from deltafold.algebra.monoids.family import infer_own_monoid
from deltafold.algebra.monoids.kinds import Group, Monoid, Recomputed


@dataclass(frozen=True, kw_only=True)
class Operator:
    """A kind of operator: its rule, the state stored for it, the reads, and the effect of deletions."""

    name: str
    rule: str
    state: str
    reads: str
    deletions: str


# Spark's class names of aggregates, the argument types by which each is classified, and its name in SQL
AGGREGATES = (
    ("count", "int", "count"), ("sum", "int", "sum and avg of integers and decimals"),
    ("stddevsamp", "int", "stddev and variance of TINYINT to INT"),
    ("bitxoragg", "int", "bit_xor"), ("min", "int", "min"),
    ("max", "int", "max"), ("minby", "int", "min_by"), ("maxby", "int", "max_by"),
    ("bitandagg", "int", "bit_and and bool_and"), ("bitoragg", "int", "bit_or and bool_or"),
    ("sum", "double", "sum and avg of doubles (for deleted NaN, infinities and huge numbers alone)"),
    ("stddevsamp", "double", "stddev and variance of doubles and BIGINT"),
    ("covsample", "double", "covar"), ("corr", "double", "corr"), ("percentile", "int", "percentile, median"),
    ("mode", "int", "mode"), ("collectlist", "int", "collect_list"), ("collectset", "int", "collect_set"),
    ("listagg", "string", "listagg"), ("approximatepercentile", "int", "approx_percentile"),
    ("hyperloglogplusplus", "int", "approx_count_distinct"), ("skewness", "double", "skewness"),
    ("regrslope", "double", "regr_slope, regr_intercept, regr_r2, regr_sxx, regr_sxy, regr_syy"),
    ("histogramnumeric", "int", "histogram_numeric and every other"),
)  # fmt: skip


def list_aggregates(kind: type[Group | Monoid | Recomputed]) -> str:
    """Return the names of the aggregates whose accumulator is of a kind."""
    monoids = [(infer_own_monoid(function, (type_, type_), "ansi", 2), name) for function, type_, name in AGGREGATES]
    return ", ".join(name for monoid, name in monoids if (Recomputed if monoid is None else type(monoid)) is kind)


KEYED = "the group row count, and the aggregates' own columns, by lineage key"
LINEAR = Operator(
    name="SELECT, WHERE, explode, UNION ALL, cube, rollup, grouping sets, scalar Python and Arrow functions",
    rule="linear",
    state="none",
    reads="the change alone",
    deletions="the same operator on deleted rows",
)
INNER = Operator(
    name="inner, cross and comma joins on any condition, uncorrelated scalar subqueries",
    rule="one term for each input that changed: the inputs before it as they are now, those after it as they were",
    state="none",
    reads="the other inputs, within the intervals of the change's keys",
    deletions="as any change",
)
OUTER = Operator(
    name="left, right and full joins, IN, EXISTS and their negations, correlated subqueries, LATERAL, INTERSECT, "
    "EXCEPT",
    rule="Δl, then the rows that a changed row of r can match, before and after",
    state="none; one for each GROUP BY within, and for the keys that IN or EXISTS looks for in a join",
    reads="both inputs, within the intervals of the change's keys",
    deletions="as any change",
)
ADDITIVE = Operator(
    name=f"GROUP BY and totals: {list_aggregates(Group)}",
    rule="state ⊗ h(ΔS), one MERGE",
    state=KEYED,
    reads="touched buckets of the state",
    deletions="subtract",
)
EXTREME = Operator(
    name=f"GROUP BY and totals: {list_aggregates(Monoid)}, "
    "declared monoids (with an inverse, for deleted values that it does not cancel alone)",
    rule=ADDITIVE.rule,
    state=KEYED,
    reads="touched buckets of the state; where a deletion reaches a group's value, the rows of that group",
    deletions="recompute the groups whose value they reach",
)
UNMERGED = Operator(
    name=f"GROUP BY and totals: {list_aggregates(Recomputed)} aggregate of Spark's",
    rule="touched groups are recomputed",
    state="the answer of each group",
    reads="the rows of touched groups",
    deletions="recomputed",
)
DISTINCT = Operator(
    name="SELECT DISTINCT, UNION, DISTINCT in aggregates",
    rule="group row count crossing zero",
    state="the row count of each distinct value",
    reads="touched buckets of the state",
    deletions="subtract",
)
WINDOW = Operator(
    name="windows with PARTITION BY, QUALIFY, top-k per group, Pandas functions of groups",
    rule="touched partitions, before and after",
    state="none",
    reads="the rows of touched partitions",
    deletions="recomputed",
)
WHOLE = Operator(
    name="windows without PARTITION BY, ORDER BY with LIMIT or OFFSET",
    rule="all rows, before and after",
    state="none",
    reads="all rows of the input, twice",
    deletions="recomputed",
)
RECURSION = Operator(
    name="fixpoint, WITH RECURSIVE … UNION",
    rule="derivations are counted by level; in rounds, rows without one at their level are removed, then others are "
    "added",
    state="each row with its levels and the number of derivations at each",
    reads="touched rows of the state; the other inputs of the step, within the intervals of the round's keys",
    deletions="as any change",
)
LEVELS = Operator(
    name="WITH RECURSIVE … UNION ALL, fixpoint with a key",
    rule="the levels that a change reaches, in rising order",
    state=RECURSION.state,
    reads=RECURSION.reads,
    deletions="as any change",
)
REPLAY = Operator(
    name="iterate with times",
    rule="the steps are evaluated from the start, and the difference is applied",
    state="the answer; the group-bys below the step",
    reads="the start and the inputs of the step, in every step",
    deletions="recomputed",
)
CLUSTERS = Operator(
    name="iterate with times, of a group-by of points by the nearest center (k-means)",
    rule="the change of the points is added to the sums of each step, and old points whose nearest center may have "
    "changed are taken from one sum to another",
    state="the centers of each step and the sums of their points; the answer; once needed, the points with their "
    "margins",
    reads="those; the points whose margin is less than what centers have moved; all points, in every step, once these "
    "are more than a tenth",
    deletions="subtract",
)
CONVERGENCE = Operator(
    name="iterate to a residual or an error",
    rule="steps from the stored answer, until the measured residual is small enough",
    state=REPLAY.state,
    reads="the inputs of the step, in every step",
    deletions="as any change",
)
OPERATORS = (
    LINEAR,
    INNER,
    OUTER,
    ADDITIVE,
    EXTREME,
    UNMERGED,
    DISTINCT,
    WINDOW,
    WHOLE,
    RECURSION,
    LEVELS,
    REPLAY,
    CLUSTERS,
    CONVERGENCE,
)


def operator_table() -> str:
    """Return all operators as a Markdown table."""
    lines = ["| operator | how it is maintained | state kept | what is read | deletions |", "| --- " * 5 + "|"]
    lines += [f"| {o.name} | {o.rule} | {o.state} | {o.reads} | {o.deletions} |" for o in OPERATORS]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(operator_table(), end="")
