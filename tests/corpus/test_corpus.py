"""Queries that users really have, in every mode and under random churn: equal to Spark's answer after each step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.tpc import benchmark
from deltafold.api import Policy
from tests.corpus.churn import Churn
from tests.corpus.nexmark import NEXMARK, nexmark_tables
from tests.night import sampled
from tests.sandbox import DeltaSandbox, MemorySandbox, Sandbox, checked

STEPS = 2
SAMPLE = {"tpch": (), "tpcds": (36,), "nexmark": ()}
BY_DEFINITION = {"tpch": (), "tpcds": (), "nexmark": ()}
ON_DELTA = {"tpch": (), "tpcds": (), "nexmark": ()}


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


def check(sandbox: Sandbox, case: tuple[str, int], steps: int, policy: Policy = "incremental") -> None:
    """A query through random churn of its tables."""
    text, used = asked(sandbox.spark, *case)
    churn = Churn(sandbox, used, seed=case[1])
    for table in used:
        sandbox.declare(table)
    view = sandbox.view(text, policy=policy)
    checked(view)
    for _ in range(steps):
        churn.step(list(used))
        checked(view)


@corpus(SAMPLE)
def test_query_in_memory(sandbox: MemorySandbox, case: tuple[str, int]) -> None:
    """The one promise, for a query of a benchmark; none of them is refused."""
    check(sandbox, case, STEPS)


@corpus(BY_DEFINITION)
def test_query_by_definition(sandbox: MemorySandbox, case: tuple[str, int]) -> None:
    """The oracle itself: the batch answer after, less the batch answer before."""
    check(sandbox, case, 1, "definition")


@corpus(ON_DELTA)
def test_query_on_delta(delta: DeltaSandbox, case: tuple[str, int]) -> None:
    """The same over Delta tables, changed by SQL, with its state in Delta tables."""
    check(delta, case, 1)
