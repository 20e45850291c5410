"""Fingerprints and state digests of released versions: a refactoring must not make a warehouse rebuild its views."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import RefusedError
from deltafold.compiler.compile import compile_query
from deltafold.language.query import QueryText
from tests.language.schemas import draft

PINNED = Path(__file__).with_name("fingerprints.json")
GOLDEN = {path.stem: path.read_text() for path in sorted((Path(__file__).parent / "golden").glob("*.sql"))}
# beside the golden queries: every kind of node, every monoid, and every reason that a plan holds
QUERIES: dict[str, str] = {
    "limit without an order": "select carrier from flights limit 3",
    "limit of a subquery without an order": (
        "select (select max(name) from (select a.name from airlines a where a.carrier = f.carrier limit 2)) n "
        "from flights f"
    ),
    "ordered limit": "select carrier, day from flights order by day limit 3 offset 1",
    "range frame by distance": (
        "select carrier, first_value(seats) over (order by seats range between 1 preceding and current row) n "
        "from flights"
    ),
    "windows": (
        "select carrier, rank() over (partition by origin order by day) r, sum(seats) over () t, "
        "last_value(seats) over (partition by upper(carrier) order by day) l from flights"
    ),
    "session window": "select carrier, session_window(day, '1 day').start s, count(*) n from flights group by 1, 2",
    "recursion": (
        "with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select n from r"
    ),
    "subquery within a limit": (
        "select carrier from flights order by seats + (select max(lk) from lines) desc, day limit 2"
    ),
    "subquery within a window": (
        "select sum(seats + (select max(lk) from lines)) over (partition by carrier) s from flights"
    ),
    "subquery within an explode": (
        "select explode(sequence(1, (select max(number) from lines))) n, carrier from flights"
    ),
    "sample": "select carrier from flights tablesample (10 percent)",
    "constants": "select carrier, m from flights join values ('AA', 1) as x (n, m) on carrier = n",
    "range": "select carrier c, sum(m) s from flights join (select id m from range(3)) on true group by carrier",
    "existence join": "select carrier, origin in (select name from airlines) or seats > 1 b from flights",
    "single join": (
        "select carrier, (select name from airlines a where a.carrier = f.carrier) n from flights f where seats > 0"
    ),
    "full join": "select f.carrier, a.name from flights f full join airlines a on f.carrier = a.carrier and seats > 1",
    "cube of sums": (
        "select carrier, origin, sum(seats), sum(cast(seats as smallint)), sum(cast(seats as bigint)), sum(delay), "
        "sum(cast(seats as decimal(30,2))), try_sum(seats), avg(delay), avg(seats) from flights "
        "group by cube(carrier, origin)"
    ),
    "sums of decimals": (
        "select lk, sum(price), avg(price), try_sum(price), try_avg(price), count(*) from lines group by lk"
    ),
    "extremes": (
        "select origin, min(seats), max(day), max_by(carrier, day), min_by(day, seats), bit_and(seats), bit_or(seats), "
        "bit_xor(seats), bool_and(cancelled), bool_or(cancelled) from flights group by origin"
    ),
    "moments": (
        "select origin, stddev(seats), stddev(delay), var_pop(seats), covar_samp(seats, delay), corr(delay, seats), "
        "regr_slope(delay, seats) from flights group by origin"
    ),
    "no merge": (
        "select origin, percentile(delay, 0.5), collect_list(day), mode(seats), first(day), any_value(carrier), "
        "approx_count_distinct(day), listagg(carrier, ',') from flights group by origin"
    ),
    "distinct aggregates": (
        "select origin, count(distinct day), sum(distinct seats), count(*), max(delay) from flights group by origin"
    ),
    "pivot": (
        "select * from (select carrier, seats, origin from flights) pivot (sum(seats) for origin in ('a', 'b' as y))"
    ),
    "lateral": (
        "select f.carrier, x.n from flights f, lateral (select count(*) n from lines l where l.number = f.seats) x"
    ),
}  # fmt: skip


def pinned(spark: SparkSession, query: QueryText) -> dict[str, object]:
    """The fingerprint of a query and the digests of its states; a refused query has none."""
    found = draft(spark, query)
    try:
        digests = compile_query(found).digests((("time zone", "UTC"),))
    except RefusedError:
        digests = {}
    return {"fingerprint": found.fingerprint, "states": digests}


@pytest.mark.parametrize("name", [*GOLDEN, *QUERIES])
def test_fingerprints_of_released_versions(spark: SparkSession, name: str) -> None:
    """Protects every warehouse from being told, after an upgrade, that its query changed."""
    assert pinned(spark, (GOLDEN | QUERIES)[name]) == json.loads(PINNED.read_text())[name]
