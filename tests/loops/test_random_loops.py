"""Loops on random graphs and histories: against textbook oracles after each refresh, against Spark's batch in the end.

Every epoch mixes insertions and deletions on all inputs; sizes and limits vary, so that every path is taken.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from incremental.api import View
from tests.loops.cases import CASES, Case, SourceRows, rows
from tests.loops.references.graphs import Graph
from tests.night import night, sampled
from tests.sandbox import DeltaSandbox, MemorySandbox, Sandbox, as_if_large, confirm

SAMPLE = {"paths": 1, "around negation": 3}  # seeds
WAYS: list[dict[str, Any]] = [
    {},
    {"rewrite_files": 0, "bucket_bytes": 1, "buckets": 3},
    {"local_bytes": 0, "local_rows": 0},
    {"restart_rows": 3, "restart_share": 0.3},
    {"local_bytes": 0, "local_rows": 0, "rewrite_files": 0, "bucket_bytes": 1, "buckets": 2},
]


def history(sandbox: Sandbox, case: Case, seed: int, refreshes: int) -> None:
    """One view over one random history."""
    chance = random.Random(seed)
    graph = Graph(chance, chance.randint(3, 7), case.lengths, case.acyclic, nulls=bool(seed % 2))
    sandbox.tune(**WAYS[seed % len(WAYS)])
    schema = "a int, b int, w int" if case.lengths else "a int, b int"
    sandbox.source("edges", schema, [])
    sandbox.source("starts", "x int", [])
    view = sandbox.view(case.query)
    for number, (edges, starts) in enumerate(graph.histories(refreshes)):
        sandbox.insert("edges", schema, rows(edges, 2), "overwrite")
        sandbox.insert("starts", "x int", rows(starts, 1), "overwrite")
        with as_if_large(view):
            report = view.refresh()
        try:
            check(view, case, SourceRows(edges, starts), number == refreshes - 1)
        except AssertionError as error:
            error.add_note(f"seed {seed}, refresh {number}, {report.paths}, {report.rounds}, {edges}, {starts}")
            raise


def check(view: View, case: Case, given: SourceRows, last: bool) -> None:
    """Compare with the oracle; in the end, and where there is none, with Spark's batch."""
    if case.expected is not None:
        answer = Counter(tuple(row) for row in view.answer().collect())
        expected = case.expected(given)
        assert answer == expected, f"missing {expected - answer}, too many {answer - expected}"
    if last or case.expected is None:
        confirm(view)


@pytest.mark.parametrize("name", sampled(CASES, lambda name: name in SAMPLE))
def test_a_loop_equals_its_oracle(sandbox: MemorySandbox, name: str) -> None:
    """Protects from rows that stay in a cycle, counts that drift, levels and best values that are stale."""
    history(sandbox, CASES[name], SAMPLE.get(name, 1), 3)


@pytest.mark.parametrize("name", sampled(("reachability", "shortest paths"), lambda name: name == "reachability"))
def test_a_loop_on_delta_equals_its_oracle(delta: DeltaSandbox, name: str) -> None:
    """The same through Delta's files, MERGE and direct commits."""
    history(delta, CASES[name], 1, 3)


@night
@pytest.mark.parametrize("name", CASES)
def test_many_histories(spark: SparkSession, name: str) -> None:
    """In all some 1,500 refreshes in memory."""
    for seed in range(14):
        with tempfile.TemporaryDirectory() as folder:
            history(MemorySandbox(spark, Path(folder)), CASES[name], seed, 10)


@night
@pytest.mark.parametrize("name", CASES)
def test_many_histories_on_delta(spark: SparkSession, name: str) -> None:
    for seed in range(6):
        with tempfile.TemporaryDirectory() as folder:
            history(DeltaSandbox(spark, Path(folder)), CASES[name], seed, 10)
