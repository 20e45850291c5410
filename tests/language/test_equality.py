"""Which group-bys Spark itself finds equal: pairs of subqueries over one table, each written as a user would."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import RefusedError
from deltafold.compiler.compile import compile_query, run_passes
from tests.language.schemas import draft

GROUPED = "select origin, {} x from {} group by origin"
FROM = "flights where seats > 10"
EXPLODED = "(select origin, stop from flights lateral view explode(stops) as stop)"
FRAMED = "(select origin, sum(seats) over (partition by carrier order by day {}) n from flights)"
NUMBERED = "(select *, row_number() over (partition by carrier order by day) n from flights) where n <= {}"
UNITED = "(select origin, seats from flights union all select carrier, seats from flights where seats > {})"
JOINED = "flights f {} join airlines a on a.carrier = f.carrier"

# an aggregate and where its rows are from
EQUAL = {
    "sum": ("sum(seats)", FROM),
    "expression": ("sum(delay * (1 - seats))", FROM),
    "several": ("sum(seats) / count(*) + max(delay)", FROM),
    "filter clause": ("count(seats) filter (where delay > 1)", FROM),
    "no merge": ("percentile(seats, 0.5)", FROM),
    "ordered": ("max_by(delay, named_struct('a', day, 'b', delay))", FROM),
    "distinct": ("count(distinct carrier)", FROM),
    "lambda": ("sum(aggregate(transform(stops, s -> length(s)), 0, (a, b) -> a + b))", FROM),
    "explode": ("count(stop)", EXPLODED),
    "window": ("sum(n)", FRAMED.format("rows 2 preceding")),
    "top of each": ("sum(seats)", NUMBERED.format(2)),
    "union": ("sum(seats)", UNITED.format(3)),
    "join": ("count(a.name)", JOINED.format("left")),
    "exists": ("sum(seats)", "flights f where exists (select 1 from airlines a where a.carrier = f.carrier)"),
    "constants": ("sum(seats * y)", "flights cross join (values (1), (2)) as c (y)"),
    "rollup": ("sum(seats)", "(select origin, seats from flights group by rollup (origin, seats))"),
}
UNEQUAL = {
    "literal in a filter": (("sum(seats)", FROM), ("sum(seats)", "flights where seats > 11")),
    "literal in an expression": (("sum(seats * 2)", FROM), ("sum(seats * 3)", FROM)),
    "type of a literal": (("sum(seats * 2)", FROM), ("sum(seats * 2L)", FROM)),
    "cast": (("sum(seats)", FROM), ("sum(cast(seats as smallint))", FROM)),
    "safe cast": (("count(cast(carrier as int))", FROM), ("count(try_cast(carrier as int))", FROM)),
    "distinct": (("sum(seats)", FROM), ("sum(distinct seats)", FROM)),
    "overflow": (("sum(seats)", FROM), ("try_sum(seats)", FROM)),
    "filter clause": (
        ("sum(seats) filter (where seats > 1)", FROM), ("sum(seats) filter (where seats > 2)", FROM),
    ),
    "percentage": (("percentile(seats, 0.5)", FROM), ("percentile(seats, 0.6)", FROM)),
    "list and set": (("collect_list(seats)", FROM), ("collect_set(seats)", FROM)),
    "frame": (("sum(n)", FRAMED.format("rows 2 preceding")), ("sum(n)", FRAMED.format("rows 3 preceding"))),
    "kind of frame": (("sum(n)", FRAMED.format("")), ("sum(n)", FRAMED.format("rows unbounded preceding"))),
    "top of each": (("sum(seats)", NUMBERED.format(2)), ("sum(seats)", NUMBERED.format(1))),
    "branch": (("sum(seats)", UNITED.format(3)), ("sum(seats)", UNITED.format(4))),
    "join": (("count(a.name)", JOINED.format("left")), ("count(a.name)", JOINED.format("inner"))),
    "constants": (
        ("sum(seats * y)", "flights cross join (values (1), (2)) as c (y)"),
        ("sum(seats * y)", "flights cross join (values (1), (3)) as c (y)"),
    ),
    "outer explode": (
        ("count(*)", EXPLODED), ("count(*)", EXPLODED.replace("lateral view", "lateral view outer")),
    ),
    "order of additions": (("sum(delay + seats + 1)", FROM), ("sum(1 + seats + delay)", FROM)),
    "max_by": (("max_by(delay, day)", FROM), ("min_by(delay, day)", FROM)),
}  # fmt: skip


def states(spark: SparkSession, *subqueries: tuple[str, str]) -> tuple[int, int]:
    """Return the number of group-bys of two subqueries that are joined, and of their states."""
    one, other = (GROUPED.format(*each) for each in subqueries)
    query = f"select a.origin, a.x, b.x y from ({one}) a join ({other}) b on a.origin = b.origin"
    counts = {name: len(after.states) for name, after in run_passes(draft(spark, query))}
    return counts["split_states"], counts["share_states"]


@pytest.mark.parametrize("what", EQUAL)
def test_equal_group_bys_have_one_state(spark: SparkSession, what: str) -> None:
    """Two copies need no state more than one."""
    both, shared = states(spark, EQUAL[what], EQUAL[what])
    assert shared == both / 2


@pytest.mark.parametrize("what", UNEQUAL)
def test_unequal_group_bys_have_two(spark: SparkSession, what: str) -> None:
    """Whatever changes a value, however little."""
    both, shared = states(spark, *UNEQUAL[what])
    assert shared == both > 1


def test_what_is_not_determined_is_refused_before(spark: SparkSession) -> None:
    """Two evaluations of rand() are never one."""
    random = "sum(r)", "(select origin, seats * rand() r from flights)"
    with pytest.raises(RefusedError, match="rand"):
        states(spark, random, random)


def test_names_of_functions_are_no_columns(spark: SparkSession) -> None:
    """Columns named like functions do not make two functions one."""
    one = "select origin, max(upper) x from (select origin, upper(upper) upper from (select origin, carrier upper from flights)) group by origin"  # noqa: E501
    other = one.replace("upper", "lower")
    query = f"select * from ({one}) a join ({other}) b on a.origin = b.origin"
    found = compile_query(draft(spark, query.replace("select *", "select a.origin, a.x, b.x y")))
    assert len(found.states) == 2
