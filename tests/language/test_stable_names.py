"""The same query has the same fingerprint and column names in every process, because states depend on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.language.schemas import explained, fingerprint
from tests.night import night

RECOMPUTED = [
    "with recursive r(c, n) as (select carrier, 1 from flights union all select c, 2 from r where n < 2) table r",
    "with recursive r(c, n) as (select carrier, 1 from flights union all select c, 3 from r where n < 2) table r",
    "select carrier, day from flights limit 3",
    "select carrier, day from flights limit 4",
    "select carrier, day from flights limit 3 offset 1",
    "select carrier, last_value(day) over (partition by origin order by day) r from flights",
    "select carrier, last_value(day) over (partition by origin order by seats) r from flights",
    "select carrier, last_value(day) over (partition by carrier order by day) r from flights",
]
PROJECT = Path(__file__).resolve().parents[2]
GOLDEN = PROJECT / "tests" / "language" / "golden"
PROGRAM = """
import json, pathlib, sys
from deltafold.spark.session import start
from tests.language.schemas import explained
spark = start(settings={"spark.sql.shuffle.partitions": "2"})
spark.range(int(sys.argv[1])).selectExpr("id + 1 as other").collect()
paths = sorted(pathlib.Path("tests/language/golden").glob("*.sql"), reverse=bool(int(sys.argv[1])))
print(json.dumps({path.stem: explained(spark, path.stem, path.read_text()) for path in paths}))
"""


def explained_elsewhere(seed: str, used_before: str) -> dict[str, str]:
    """All golden explains in another process, whose Spark has other expression numbers."""
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", PROGRAM, used_before]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@night  # the pinned fingerprints compare each run, under a hash seed of its own, with those of others
def test_two_processes_with_different_hash_seeds() -> None:
    """Neither Python's hashes nor Spark's expression numbers nor earlier queries may show."""
    texts = {path.stem: path.with_suffix(".txt").read_text().rstrip("\n") for path in GOLDEN.glob("*.sql")}
    for seed, used_before in (("1", "0"), ("4242", "17")):
        assert explained_elsewhere(seed, used_before) == texts


def test_a_query_after_another(spark: SparkSession) -> None:
    """Twice in one process, with another query between."""
    query = (GOLDEN / "count_distinct.sql").read_text()
    first = explained(spark, "v", query)
    explained(spark, "other", (GOLDEN / "nested.sql").read_text())
    assert explained(spark, "v", query) == first


def test_another_query_has_another_fingerprint(spark: SparkSession) -> None:
    """Constants, operators, types, names and order of the answer's columns all count."""
    queries = [
        "select carrier c, sum(seats) s from flights group by carrier",
        "select carrier c, sum(seats) t from flights group by carrier",
        "select sum(seats) s, carrier c from flights group by carrier",
        "select carrier c, sum(seats + 1) s from flights group by carrier",
        "select carrier c, sum(seats) s from flights where seats > 1 group by carrier",
        "select carrier c, sum(seats) s from flights where seats > 2 group by carrier",
        "select carrier c, sum(seats) filter (where seats > 2) s from flights group by carrier",
        "select carrier c, sum(distinct seats) s from flights group by carrier",
        "select carrier c, try_sum(seats) s from flights group by carrier",
        "select carrier c, sum(cast(seats as bigint)) s from flights group by carrier",
        "select carrier c, count(seats) s from flights group by carrier",
        "select origin c, sum(seats) s from flights group by origin",
        "select carrier c, sum(seats) s from flights group by carrier having sum(seats) > 1",
        "select carrier c, sum(transform(stops, x -> length(x))[0]) s from flights group by carrier",
        "select carrier c, sum(transform(stops, x -> length(x) + 1)[0]) s from flights group by carrier",
        "select carrier c, sum(m) s from flights join values ('AA', 1) as x (n, m) on carrier = n group by carrier",
        "select carrier c, sum(m) s from flights join values ('AA', 2) as x (n, m) on carrier = n group by carrier",
        "select carrier c, sum(m) s from flights join (select id m from range(3)) on true group by carrier",
        "select carrier c, sum(m) s from flights join (select id m from range(4)) on true group by carrier",
        "select carrier, day from flights order by day limit 3",
        "select carrier, day from flights order by day limit 4",
        "select carrier, day from flights order by day desc limit 3",
        "select carrier, rank() over (partition by origin order by day) r from flights",
        "select carrier, rank() over (partition by origin order by seats) r from flights",
        "select carrier c, percentile(seats, 0.5) p from flights group by carrier",
        "select carrier c, percentile(seats, 0.6) p from flights group by carrier",
    ]
    assert len({fingerprint(spark, query) for query in RECOMPUTED}) == len(RECOMPUTED)
    heads = [explained(spark, "v", query).splitlines()[0] for query in queries]
    assert len(set(heads)) == len(queries)


def test_refused_queries_keep_their_fingerprint_too(spark: SparkSession) -> None:
    """Under policy auto they are recomputed, by a view that must recognise its own query."""
    assert [fingerprint(spark, query) for query in RECOMPUTED] == [fingerprint(spark, query) for query in RECOMPUTED]


def test_lambdas_of_dataframes_have_no_number(spark: SparkSession) -> None:
    """PySpark numbers their variables, so a query function had another fingerprint whenever it was called."""

    def query(flights: DataFrame) -> DataFrame:
        lengths = F.transform("stops", lambda stop: F.aggregate(F.array(stop), F.lit(0), lambda a, b: a + F.length(b)))
        return flights.select("carrier", lengths.alias("lengths"))

    assert fingerprint(spark, query) == fingerprint(spark, query)


def test_python_functions_are_part_of_the_query(spark: SparkSession) -> None:
    """Another Python function is another query, although Spark prints both alike."""

    def by(function: Callable[[Any], str]) -> Callable[..., DataFrame]:
        return lambda flights, **_: flights.select(F.udf(function)("carrier").alias("c")).groupBy("c").count()

    one, other = by(lambda value: f"{value}!"), by(lambda value: f"{value}?")
    assert fingerprint(spark, one) != fingerprint(spark, other)
    assert fingerprint(spark, one) == fingerprint(spark, one)
