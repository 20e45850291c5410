"""Queries that users really have, maintained in memory under random churn: equal to Spark's answer after each step."""

from __future__ import annotations

from functools import cache

import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.tpc import benchmark
from tests.corpus.churn import Churn
from tests.corpus.memory import MemoryView
from tests.corpus.nexmark import NEXMARK, nexmark_tables
from tests.corpus.world import checked

STEPS = 3
SAMPLE = {"tpch": (1, 3, 9, 13, 15, 16, 20, 21), "tpcds": (1, 36, 67), "nexmark": (3, 4, 5, 6, 9, 15, 18, 20)}


def numbers(name: str) -> list[int]:
    return list(range(1, {"tpch": 23, "tpcds": 100}[name])) if name != "nexmark" else list(NEXMARK)


@cache
def pools(spark: SparkSession, name: str) -> dict[str, DataFrame]:
    if name == "nexmark":
        return dict(nexmark_tables(spark))
    return {table: spark.createDataFrame(rows) for table, rows in benchmark(name).tables.items()}


CASES = [(name, number) for name in SAMPLE for number in numbers(name)]


@pytest.mark.parametrize(("name", "number"), CASES, ids=lambda part: str(part))
def test_query_under_churn(spark: SparkSession, long: bool, name: str, number: int) -> None:
    """The one promise, for a query of a benchmark."""
    if not long and number not in SAMPLE[name]:
        pytest.skip("only with --long")
    text = NEXMARK[number] if name == "nexmark" else benchmark(name).queries[number]
    all_pools = pools(spark, name)
    used = {table: frame for table, frame in all_pools.items() if table in text}
    churn = Churn(spark, used, seed=number)
    view = MemoryView(spark, text, churn.tables)  # none of them is refused
    checked(view)
    for _ in range(STEPS):
        churn.step(view.query.sources)
        checked(view)
