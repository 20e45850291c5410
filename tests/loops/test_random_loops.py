"""Loops on random graphs and histories, against textbook oracles after each refresh."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.loops.cases import CASES
from tests.loops.histories import history
from tests.night import night, sampled
from tests.reading import large_by_day, reading
from tests.sandbox import READS, DeltaSandbox, MemorySandbox

SAMPLE = {"around negation": 3}  # seeds


@large_by_day
@pytest.mark.parametrize("name", sampled(CASES, lambda name: name in SAMPLE))
def test_a_loop_equals_its_oracle(sandbox: MemorySandbox, name: str) -> None:
    """Protects from rows that stay in a cycle, counts that drift, levels and best values that are stale."""
    history(sandbox, CASES[name], SAMPLE.get(name, 1), 3)


@night
@pytest.mark.parametrize("name", sampled(("reachability", "shortest paths"), lambda name: name == "reachability"))
def test_a_loop_on_delta_equals_its_oracle(delta: DeltaSandbox, name: str) -> None:
    """The same through Delta's files, MERGE and direct commits."""
    history(delta, CASES[name], 1, 3)


@night
@pytest.mark.parametrize("name", CASES)
def test_many_histories(spark: SparkSession, name: str) -> None:
    """In all some 1,500 refreshes in memory."""
    for seed in range(14):
        with tempfile.TemporaryDirectory() as folder, reading([*READS][seed % 3]):
            history(MemorySandbox(spark, Path(folder)), CASES[name], seed, 10)


@night
@pytest.mark.parametrize("name", CASES)
def test_many_histories_on_delta(spark: SparkSession, name: str) -> None:
    for seed in range(6):
        with tempfile.TemporaryDirectory() as folder, reading([*READS][seed % 3]):
            history(DeltaSandbox(spark, Path(folder)), CASES[name], seed, 10)


@night
@pytest.mark.parametrize("name", CASES)
def test_many_graphs_at_once(spark: SparkSession, name: str) -> None:
    """In all 110,000 changes of graphs, two hundred of which a refresh follows at once."""
    for seed in range(5):
        with tempfile.TemporaryDirectory() as folder, reading([*READS][seed % 3]):
            history(MemorySandbox(spark, Path(folder)), CASES[name], seed, 10, graphs=200)
