"""Queries that users really have, maintained in memory under random churn: equal to Spark's answer after each step."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.tpc import ORDERS, benchmark
from incremental.api import Delta
from tests.corpus.churn import Churn
from tests.corpus.memory import MemoryView
from tests.corpus.nexmark import NEXMARK, nexmark_tables
from tests.corpus.world import checked
from tests.examples.scene import Scene
from tests.examples.scene import checked as on_delta

STEPS = 2
SAMPLE = {"tpch": (9, 13, 15, 16, 20, 21), "tpcds": (1, 36, 67), "nexmark": (4, 5, 6, 9, 15)}


def numbers(name: str) -> list[int]:
    return list(range(1, {"tpch": 23, "tpcds": 100}[name])) if name != "nexmark" else list(NEXMARK)


@cache
def pools(spark: SparkSession, name: str) -> dict[str, DataFrame]:
    if name == "nexmark":
        return dict(nexmark_tables(spark))
    return {table: spark.createDataFrame(rows) for table, rows in benchmark(name).tables.items()}


CASES = [(name, number) for name in SAMPLE for number in numbers(name)]


DEFINED = [("tpch", 13), ("nexmark", 5), ("nexmark", 18)]
ON_DELTA = (3, 13, 21)


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


@pytest.mark.parametrize(("name", "number"), DEFINED, ids=lambda part: str(part))
def test_query_by_definition(spark: SparkSession, name: str, number: int) -> None:
    """The oracle itself: the batch answer after, less the batch answer before."""
    text = NEXMARK[number] if name == "nexmark" else benchmark(name).queries[number]
    churn = Churn(spark, {table: frame for table, frame in pools(spark, name).items() if table in text}, seed=number)
    view = MemoryView(spark, text, churn.tables, definition=True)
    checked(view)
    churn.step(view.query.sources)
    checked(view)


def test_queries_on_delta(spark: SparkSession, tmp_path: Path) -> None:
    """A sample of TPC-H over Delta tables: orders come with their items, go with them, and others are corrected."""
    scene = Scene(spark, tmp_path)
    for name, frame in pools(spark, "tpch").items():
        key = ORDERS.get(name)
        kept = frame if key is None else frame.where(f"{key} % 10 <> 0")
        kept.write.format("delta").option("delta.enableDeletionVectors", "true").save(scene.path(name))
        scene.warehouse.source(name, Delta(scene.path(name)))
    views = [scene.view(benchmark("tpch").queries[number], f"q{number}") for number in ON_DELTA]
    for view in views:
        on_delta(view)
    for name, key in ORDERS.items():
        new = pools(spark, "tpch")[name].where(f"{key} % 40 = 0")
        new.write.format("delta").mode("append").save(scene.path(name))
        scene.sql(f"delete from {{{name}}} where {key} % 40 = 7")
    scene.sql("update {customer} set c_mktsegment = 'BUILDING' where c_custkey % 9 = 0")
    scene.sql("update {supplier} set s_nationkey = 20 where s_suppkey % 2 = 0")
    verdicts = [on_delta(view).verdict for view in views]
    assert verdicts.count("applied") >= 2  # so little data gives some queries no answer at all
