"""Queries that users really have, in every mode and under random churn: equal to Spark's answer after each step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.tpc import benchmark
from incremental.api import Delta
from tests.corpus.churn import Churn
from tests.corpus.lakes import DeltaLake, MemoryLake
from tests.corpus.memory import MemoryTable, MemoryView
from tests.corpus.nexmark import NEXMARK, nexmark_tables
from tests.corpus.world import checked
from tests.examples.scene import Scene
from tests.examples.scene import checked as on_delta
from tests.night import sampled

STEPS = 2
SAMPLE = {"tpch": (9, 13, 15, 16, 20, 21), "tpcds": (1, 36, 67), "nexmark": (4, 5, 6, 9, 15)}
BY_DEFINITION = {"tpch": (13,), "tpcds": (), "nexmark": (5, 18)}
ON_DELTA = {"tpch": (3, 21), "tpcds": (), "nexmark": (5,)}


def numbers(name: str) -> list[int]:
    return list(range(1, {"tpch": 23, "tpcds": 100}[name])) if name != "nexmark" else list(NEXMARK)


CASES = [(name, number) for name in SAMPLE for number in numbers(name)]


def corpus(sample: Mapping[str, tuple[int, ...]]) -> pytest.MarkDecorator:
    """Every query at night, a sample of them otherwise."""
    named = sampled(CASES, lambda case: case[1] in sample[case[0]], lambda case: f"{case[0]}-{case[1]}")
    return pytest.mark.parametrize("case", named)


@cache
def pools(spark: SparkSession, name: str) -> dict[str, DataFrame]:
    if name == "nexmark":
        return dict(nexmark_tables(spark))
    return {table: spark.createDataFrame(rows) for table, rows in benchmark(name).tables.items()}


def asked(spark: SparkSession, name: str, number: int) -> tuple[str, dict[str, DataFrame]]:
    """A query, and the pools of the tables that it reads."""
    text = NEXMARK[number] if name == "nexmark" else benchmark(name).queries[number]
    return text, {table: pool for table, pool in pools(spark, name).items() if table in text}


def check_in_memory(spark: SparkSession, name: str, number: int, steps: int, definition: bool) -> None:
    text, used = asked(spark, name, number)
    tables = {table: MemoryTable(spark, table) for table in used}
    churn = Churn(spark, used, {table: MemoryLake(tables[table]) for table in used}, seed=number)
    view = MemoryView(spark, text, tables, definition=definition)  # none of them is refused
    checked(view)
    for _ in range(steps):
        churn.step(view.query.sources)
        checked(view)


@corpus(SAMPLE)
def test_query_in_memory(spark: SparkSession, case: tuple[str, int]) -> None:
    """The one promise, for a query of a benchmark."""
    check_in_memory(spark, *case, STEPS, definition=False)


@corpus(BY_DEFINITION)
def test_query_by_definition(spark: SparkSession, case: tuple[str, int]) -> None:
    """The oracle itself: the batch answer after, less the batch answer before."""
    check_in_memory(spark, *case, 1, definition=True)


@corpus(ON_DELTA)
def test_query_on_delta(spark: SparkSession, tmp_path: Path, case: tuple[str, int]) -> None:
    """The same over Delta tables, changed by SQL, with its state in Delta tables."""
    text, used = asked(spark, *case)
    scene = Scene(spark, tmp_path)
    churn = Churn(spark, used, {table: DeltaLake(spark, scene.path(table)) for table in used}, seed=case[1])
    for table in used:
        scene.warehouse.source(table, Delta(scene.path(table)))
    view = scene.view(text, policy="incremental")
    on_delta(view)
    churn.step(list(used))
    on_delta(view)
