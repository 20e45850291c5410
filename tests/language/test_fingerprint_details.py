"""Queries that Spark prints alike have different fingerprints; usual arguments add nothing to the text."""

from __future__ import annotations

import time

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.spark import catalyst
from tests.language.schemas import explained, fingerprint

# a query, and what is written in place of its {}
ALIKE = {
    "schema of CSV": ("select sum(from_csv(origin, '{}').y) s from flights", "x int, y int", "y int, x int"),
    "schema of JSON": ("select sum(from_json(origin, '{}').y) s from flights", "y int", "y int, x int"),
    "schema of XML": ("select sum(from_xml(origin, '{}').y) s from flights", "y int", "y int, x int"),
    "what a map is read from": (
        "select max(from_json({}, 'map<string,string>')['x']) s from flights", "origin", "lower(origin)",
    ),
    "type of a variant's part": (
        "select count(try_variant_get(parse_json(origin), '$.v', '{}') is null) s from flights", "int", "date",
    ),
    "what gives NULL where another fails": ("select count({}) s from flights", "stops[1]", "get(stops, 1)"),
    "which of two gives NULL": (
        "select count({}) s from flights", "stops[1] || get(stops, 1)", "get(stops, 1) || stops[1]",
    ),
    "sums that overflow to NULL": ("select count({}) s from flights", "seats + 1", "try_add(seats, 1)"),
    "dates that give NULL": ("select count({}(origin)) s from flights", "to_timestamp", "try_to_timestamp"),
    "types of array elements": ("select count(cast(stops as array<{}>)[0] is null) s from flights", "int", "double"),
    "several patterns": ("select count(*) s from flights where origin like any ({})", "'a, b'", "'a', 'b'"),
    "lag": ("select lag(seats) {} over (partition by carrier order by day) s from flights", "", "ignore nulls"),
    "lead": ("select lead(seats) {} over (partition by carrier order by day) s from flights", "", "ignore nulls"),
    "first": (
        "select first_value(seats) {} over (partition by carrier order by day rows 2 preceding) s from flights",
        "", "ignore nulls",
    ),
    "last": (
        "select last_value(seats) {} over (partition by carrier order by day rows 2 preceding) s from flights",
        "", "ignore nulls",
    ),
    "what a limit shows": ("select seats + {} x from (select * from flights order by day) limit 3", "1", "2"),
    "which column a limit shows": (
        "select {} x from (select * from flights order by day) limit 3", "carrier", "origin",
    ),
    "values of a pivot": (
        "select * from (select carrier, seats, origin from flights) "
        "pivot (sum(seats) for origin in ('a' as x, {} as y))",
        "'b'", "'c'",
    ),
}  # fmt: skip
# queries whose arguments all have their usual values
USUAL = (
    "select cast(origin as int) + size(stops) + abs(seats) s, to_date(origin, 'yyyy') d, split_part(origin, '-', 2) p, "
    "right(origin, 2) r, stops[0] t, origin like 'a%' l, hash(origin) h, date_trunc('month', day) m from flights",
    "select carrier, avg(seats) a, sum(price) p, percentile(seats, array(0.5, 0.9)) q, mode(seats) m, "
    "collect_set(day) c, approx_count_distinct(day) d, min_by(day, seats, 2) b from flights join lines on seats = lk "
    "group by carrier",
    "select lag(seats, 1) over (partition by carrier order by day) l, nth_value(seats, 2) over (order by day) n "
    "from flights",
    "select carrier, day from flights order by seats limit 3",
)


@pytest.mark.parametrize("case", ALIKE)
def test_another_query_has_another_fingerprint(spark: SparkSession, case: str) -> None:
    """A changed query that is not recognised would keep the state of the one before."""
    query, *written = ALIKE[case]
    one, other = (fingerprint(spark, query.replace("{}", each)) for each in written)
    assert one != other
    assert one == fingerprint(spark, query.replace("{}", written[0]))


def test_dataframe_programs_are_distinguished(spark: SparkSession) -> None:
    """By the fields that they replace, and by how many columns may be NULL."""

    def field(name: str) -> str:
        def query(flights: DataFrame, **_: DataFrame) -> DataFrame:
            pair = F.struct("carrier", "origin").withField(name, F.lit("x"))
            return flights.select(pair.alias("p")).where("p.carrier = 'x'").select(F.lit(1).alias("n"))

        return fingerprint(spark, query)

    def dropped(most: int) -> str:
        return fingerprint(spark, lambda flights, **_: flights.select("seats", "day").dropna(thresh=most))

    assert field("carrier") != field("origin")
    assert dropped(1) != dropped(2)


def test_functions_in_sql_are_known_by_their_bodies(spark: SparkSession) -> None:
    """And not by the time at which they were created: every process creates them again."""

    def declared(body: str) -> str:
        session = catalyst.isolate_session(spark)
        session.sql(f"create temporary function f(x int) returns int return {body}").collect()
        return fingerprint(session, "select f(seats) s from flights")

    first = declared("x + 1")
    time.sleep(0.005)
    assert first == declared("x + 1") != declared("x + 2")


@pytest.mark.parametrize("query", USUAL)
def test_usual_arguments_add_no_detail(spark: SparkSession, query: str) -> None:
    """Views of earlier releases would have to be rebuilt, and explain would show noise."""
    assert " ~ " not in explained(spark, "v", query)
