"""Queries that cannot be maintained are refused with node, reason and way out, before any data is read."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from deltafold.algebra.errors import QueryError
from tests.language.schemas import explained, refused

# query, and words of the node, the reason and the way out
REFUSED = {
    "limit without an order": ("select carrier from flights limit 3", "limit 3", "without an order", "add ORDER BY"),
    "offset without an order": ("select carrier from flights offset 3", "offset 3", "without an order", "add ORDER BY"),
    "limit of a subquery without an order": (
        "select (select max(name) from (select a.name from airlines a where a.carrier = f.carrier limit 2)) n "
        "from flights f",
        "row_number", "without an order", "add ORDER BY",
    ),
    "limit without an order beneath an ordered one": (
        "select * from (select * from flights limit 10) order by seats limit 3",
        "limit 10", "without an order", "add ORDER BY",
    ),
    "offset without an order beneath an ordered limit": (
        "select * from (select * from (select * from flights offset 2) order by seats limit 9) order by day limit 3",
        "offset 2", "without an order", "add ORDER BY",
    ),
    "a range frame by distance": (
        "select carrier, first_value(seats) over (order by seats range between 1 preceding and current row) n "
        "from flights",
        "first", "among peers", "ROWS instead of RANGE",
    ),
    "a list of a range frame by distance": (
        "select carrier, nth_value(day, 2) over (order by seats range between 1 preceding and current row) n, "
        "collect_list(day) over (order by seats range between 1 preceding and current row) l from flights",
        "nth_value", "among peers", "ROWS instead of RANGE",
    ),
    "rand": ("select carrier, rand() r from flights", "rand(", "differs each time", "deterministic"),
    "uuid below a group-by": (
        "select u, count(*) from (select uuid() u from flights) group by u", "uuid(", "differs", "deterministic",
    ),
    "current_date": ("select carrier from flights where day = current_date", "current_date", "clock", "literal"),
    "now": ("select carrier, now() t from flights", "now()", "clock", "literal"),
    "the clock in a window": (
        "select carrier, lead(day, 1, current_date()) over (partition by carrier order by day) d from flights",
        "current_date()", "clock", "literal",
    ),
    "the clock in what a window is over": (
        "select sum(seats) over (order by abs(datediff(day, current_date())) rows 1 preceding) s from flights",
        "current_date()", "clock", "literal",
    ),
    "the clock in the filter of a window": (
        "select first_value(seats) filter (where day < current_date()) over (partition by carrier order by day rows "
        "1 preceding) s from flights",
        "current_date()", "clock", "literal",
    ),
    "the clock in an order": (
        "select * from flights order by abs(datediff(day, current_date())) limit 10",
        "current_date()", "clock", "literal",
    ),
    "the clock in a limit": (
        "select carrier from flights order by day limit day(current_date())", "current_date()", "clock", "literal",
    ),
    "rand beneath a limit": (
        "select seats, rand() r from (select * from flights order by day) limit 3",
        "rand(", "differs each time", "deterministic",
    ),
    "the clock beneath a limit": (
        "select year(now()) y from (select * from flights order by day) limit 3", "now()", "clock", "literal",
    ),
    "the clock in what rows explode to": (
        "select explode(sequence(day, current_date())) d from flights", "current_date()", "clock", "literal",
    ),
    "the clock in a grouping set": (
        "select carrier, day < current_date() o, count(*) n from flights group by cube(carrier, day < current_date())",
        "current_date()", "clock", "literal",
    ),
    "the clock in a pivot": (
        "select * from (select carrier, seats, day < current_date() old from flights) "
        "pivot (sum(seats) for old in (true, false))",
        "current_date()", "clock", "literal",
    ),
    "the clock in the filter of an aggregate": (
        "select carrier, count(*) filter (where day < current_date()) n from flights group by carrier",
        "current_date()", "clock", "literal",
    ),
    "the clock in a subquery": (
        "select carrier, (select max(datediff(current_date(), placed)) from orders) d from flights",
        "current_date()", "clock", "literal",
    ),
    "file name": (
        "select input_file_name() f, count(*) from flights group by 1",
        "input_file_name", "files", "source column",
    ),
    "who runs the query": (
        "select carrier, max(concat(origin, current_user())) m from flights group by carrier",
        "current_user()", "depends on who runs", "literal",
    ),
    "a branch of a recursion that gives its rows in every round": (
        "with recursive r(n) as "
        "(select 1 union all (select n + 1 from r where n < 5 union all select seats from flights)) select n from r",
        "source flights", "in every round", "before the recursive part",
    ),
    "NOT EXISTS over the rows of a recursion": (
        "with recursive r(n) as (select 1 union all select seats from r join flights f on n < seats "
        "where not exists (select 1 from r s where s.n = f.delay)) select n from r",
        "anti join", "by level", "above or below the loop",
    ),
    "one of several values that cannot be ordered": (
        "select carrier, max_by(struct(map(origin, seats)), day) m from flights group by carrier",
        "max_by", "depends on the order of the rows", "to_json",
    ),
    "a list of what cannot be ordered": (
        "select carrier, to_json(collect_list(map(origin, seats))) m from flights group by carrier",
        "collect_list", "cannot be ordered", "to_json",
    ),
    "the most frequent of what cannot be ordered": (
        "select carrier, mode(parse_json(origin)) m from flights group by carrier",
        "mode", "cannot be ordered", "to_json",
    ),
    "map in a view of rows": (
        "select map(carrier, seats) m from flights", "column m", "cannot compare values", "map_entries",
    ),
    "interval between extremes": (
        "select carrier, max(day) - min(day) as span from flights group by carrier",
        "column span", "Delta does not store values of type interval day, so no table", "timestampdiff",
    ),
    "distinct intervals": (
        "select distinct make_dt_interval(seats) d from flights", "column d", "interval day to second", "extract",
    ),
    "extreme of intervals": (
        "select carrier, extract(day from max(make_dt_interval(seats))) d from flights group by carrier",
        "max(", "Delta does not store values of type interval day to second", "cast it to STRING",
    ),
    "collated extreme": (
        "select carrier, max(origin collate utf8_lcase) o from flights group by carrier",
        "max(collate", "string collate utf8_lcase", "cast it to STRING",
    ),
    "NULL beside a count": (
        "select carrier, NULL as n, count(*) c from flights group by carrier", "untyped NULL", "void", "omit",
    ),
    "intervals within something": (
        "select carrier, array(max(day) - min(day)) as spans from flights group by carrier",
        "column spans", "interval day", "STRING",
    ),
    "group by NULL": ("select count(*) from flights group by NULL", "untyped NULL", "void", "omit it"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_node_reason_and_way_out(spark: SparkSession, case: str) -> None:
    """A user must learn which part it is, why, and what to do instead."""
    query, node, because, instead = REFUSED[case]
    error = refused(spark, query)
    assert node.lower() in error.node.lower()
    assert because in error.because
    assert any(instead in refusal.instead for refusal in error.refusals)
    assert str(error).startswith(f"{error.node} cannot be maintained incrementally: ")


def test_dataframe_programs_are_refused_alike(spark: SparkSession) -> None:
    """The analysed plan decides, not the language."""

    def query(flights: DataFrame, airlines: DataFrame, **_: DataFrame) -> DataFrame:
        return flights.join(airlines, "carrier").limit(3)

    assert "limit 3" in refused(spark, query).node


def test_every_reason_is_in_the_message(spark: SparkSession) -> None:
    """Users fix all of them at once."""
    error = refused(spark, "select rand() r, carrier from flights limit 3")
    assert [word for word in ("rand(", "limit 3") if word not in str(error)] == []


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("select x from nowhere", "nowhere"),
        ("select nothing from flights", "nothing"),
        ("selekt 1", "selekt"),
        ("select sum(carrier, day) from flights", "sum"),
        ("select carrier, Carrier from flights", "duplicate answer column 'Carrier'"),
        (
            "select f.*, a.* from flights f join airlines a on f.carrier = a.carrier",
            "duplicate answer column 'carrier'",
        ),
        ("select carrier as __rows from flights", "reserved"),
        (
            "with recursive r(a, n) as (select carrier, 1 from flights union all "
            "select a, 2L from r where n < 2) select * from r",
            r"INT.* and .*BIGINT",
        ),
    ],
)
def test_invalid_queries(spark: SparkSession, query: str, sentence: str) -> None:
    """Undeclared tables, misspellings and answers that no table can store get one sentence each."""
    with pytest.raises(QueryError, match=sentence) as error:
        explained(spark, "v", query)
    assert len(str(error.value).splitlines()) == 1
    assert "Traceback" not in str(error.value) and "JVM" not in str(error.value)
