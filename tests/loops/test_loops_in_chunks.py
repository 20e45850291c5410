"""Chunks of a change whose loops, or expressions, fail by themselves, where the whole change does not."""

from __future__ import annotations

import contextlib
import itertools
import random
import warnings
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.algebra.errors import DeltafoldWarning, EvaluationError, NotConvergedError, QueryError
from deltafold.api import iterate
from tests.crash.points import Killed, watched
from tests.night import night
from tests.sandbox import DeltaSandbox, MemorySandbox, Sandbox, checked, rows

pytestmark = pytest.mark.usefixtures("files_in_order")

LEVELS = """with recursive r(n) max recursion level 5 as (
    select dst from t where src = 1 union select t.dst from r join t on r.n = t.src) select n from r"""


def put_edges(sandbox: Sandbox, **edges: list[tuple[int, int]]) -> None:
    """Write partitions of edges, one file each."""
    for day, pairs in edges.items():
        frame = sandbox.spark.createDataFrame([(day, *pair) for pair in pairs], "day string, src int, dst int")
        sandbox.write("t", frame.coalesce(1), partition="day")


def put_far_nodes(sandbox: Sandbox) -> None:
    """Nodes that are beyond the level limit until the last of three partitions has the way to them."""
    put_edges(sandbox, d2=[(2, 3), (3, 4)], d3=[(n, n + 1) for n in range(4, 9)], d4=[(1, 5), (5, 8)])


@night
def test_a_cycle_that_is_taken_back_between_chunks(sandbox: MemorySandbox) -> None:
    """The change that they belong to never converges, a later version does."""
    put_edges(sandbox, d1=[(1, 2)])
    sandbox.declare("t")
    view = sandbox.view(LEVELS.replace("union", "union all"))
    checked(view)
    put_edges(sandbox, d2=[(2, 3)], d3=[(3, 4)], d4=[(4, 2)])
    for chunk in (1, None):
        with (
            pytest.warns(DeltafoldWarning),
            pytest.raises(NotConvergedError, match="view v: recursion loop_1: more than 5 levels"),
        ):
            view.refresh(chunk=chunk)
        assert rows(view) == [(2,)] and view.status().epoch == 1 and view.verify().ok
    sandbox.sql("delete from {t} where src = 4")
    put_edges(sandbox, d2=[(2, 3)], d5=[(3, 5)])
    with pytest.warns(DeltafoldWarning):
        report = checked(view)
    assert report.versions["t"] == (0, 6), report.sentence
    assert rows(view) == [(2,), (3,), (3,), (4,), (4,), (5,), (5,)]


@night
def test_values_that_never_met_outside_of_a_chunk(sandbox: MemorySandbox) -> None:
    """A sum of zero, which no version has, is divided by."""
    put_edges(sandbox, d1=[(1, 1)])
    sandbox.declare("t")
    view = sandbox.view("select 10 / sum(dst) q from t")
    checked(view)
    put_edges(sandbox, d2=[(1, -1)], d3=[(1, 3)])
    with pytest.warns(DeltafoldWarning):
        checked(view, chunk=1)
    put_edges(sandbox, d4=[(1, 1)], d5=[(1, -4)])
    with pytest.warns(DeltafoldWarning), pytest.raises(EvaluationError, match="Division by zero"):
        view.refresh(chunk=1)
    sandbox.sql("delete from {t} where dst = -4")
    with pytest.warns(DeltafoldWarning):
        checked(view)


def halves(t: DataFrame) -> DataFrame:
    """The limit of x = (x + dst) / 2 for each src."""

    def step(known: DataFrame) -> DataFrame:
        return known.join(t, "src").select("src", ((F.col("x") + F.col("dst")) / 2).alias("x"))

    return iterate(t.select("src", F.lit(0.0).alias("x")), step, key="src", residual=0.1)


@night
def test_two_rows_of_one_key_between_chunks(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is corrected, and the new one is read before the old one goes. No version has both."""
    backwards = itertools.count(999, -1)
    monkeypatch.setattr("tests.lake.memory.table.uuid", SimpleNamespace(uuid4=lambda: f"{next(backwards):09}"))

    def check_near(limits: dict[int, int]) -> None:
        found = dict(rows(view))
        assert found.keys() == limits.keys() and all(abs(found[key] - limit) < 0.2 for key, limit in limits.items())
        assert view.verify().ok

    put_edges(sandbox, d1=[(1, 2)])
    sandbox.declare("t")
    view = sandbox.view(halves)
    view.refresh()
    check_near({1: 2})
    put_edges(sandbox, d2=[(1, 6)], d3=[(3, 4)])
    sandbox.sql("delete from {t} where src = 1 and dst = 2")
    with pytest.warns(DeltafoldWarning, match="chunk 2 of 3 fails by itself"):
        report = view.refresh(chunk=1)
    assert report.versions["t"] == (0, 3), report.sentence
    check_near({1: 6, 3: 4})
    put_edges(sandbox, d4=[(1, 7)])
    with pytest.raises(QueryError, match="several rows have the key"):
        view.refresh()
    check_near({1: 6, 3: 4})
    sandbox.sql("delete from {t} where dst = 6")
    view.refresh()
    check_near({1: 7, 3: 4})


def kill_chunks(sandbox: Sandbox, at: int) -> bool:
    """Kill a refresh in chunks, one of which fails by itself, at one of its writes; return whether it came there."""
    put_edges(sandbox, d1=[(1, 2)])
    sandbox.declare("t")
    checked(sandbox.view(LEVELS))
    put_far_nodes(sandbox)
    view, reached = sandbox.view(LEVELS), False
    with warnings.catch_warnings(), watched(at):
        warnings.simplefilter("ignore", DeltafoldWarning)
        try:
            view.refresh(chunk=1)
        except Killed:
            reached = True
    sandbox.warehouse = sandbox.opened(tuning=sandbox.warehouse.tuning)
    sandbox.declare("t")
    put_edges(sandbox, d6=[(2, 8), (1, 8)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeltafoldWarning)
        checked(sandbox.view(LEVELS))
    return reached


@night
def test_a_killed_rest_of_a_change(sandbox: MemorySandbox) -> None:
    """One that takes in what chunks left goes on from the same versions."""
    assert kill_chunks(sandbox, 10)


@night
@pytest.mark.timeout(1800)
def test_a_killed_rest_at_each_write(spark: SparkSession, tmp_path: Path) -> None:
    at = 0
    while kill_chunks(MemorySandbox(spark, tmp_path / str(at)), at):
        at += 1
    assert at > 12


def levels_within_limit(edges: list[tuple[int, int]]) -> set[tuple[int]] | None:
    """The nodes of LEVELS, by hand; None if more than five levels have some."""
    level, found, number = {dst for src, dst in edges if src == 1}, set[int](), 0
    while level:
        found, number = found | level, number + 1
        level = {dst for src, dst in edges if src in level} - found
    return {(node,) for node in found} if number <= 5 else None


def refresh_at_the_limit(sandbox: Sandbox, seed: int, refreshes: int) -> Counter[str]:
    """Change edges at random and refresh in chunks of a file; return how often it succeeded, was warned of, failed."""
    chance, seen = random.Random(seed), Counter[str]()
    sandbox.source("t", "src int, dst int", [(node, node + 1) for node in range(1, 5)])
    view = sandbox.view(LEVELS)
    for _ in range(refreshes):
        for _ in range(chance.randint(1, 4)):
            if chance.random() < 0.8:
                nodes = [chance.randint(1, 14) for _ in range(chance.randint(1, 5))]
                pairs = [(node, node + chance.choice((-3, 1, 1, 1, 2, 6))) for node in nodes]
                sandbox.insert("t", "src int, dst int", pairs)
            else:
                sandbox.sql(f"delete from {{t}} where {chance.choice(['src', 'dst'])} = {chance.randint(1, 14)}")
        edges = sandbox.read("select src, dst from {t}").collect()
        expected, found = levels_within_limit([(src, dst) for src, dst in edges]), None
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", DeltafoldWarning)
            with contextlib.suppress(NotConvergedError):
                view.refresh(chunk=1 if chance.random() < 0.7 else None)
                found = set(rows(view))
                assert len(found) == len(rows(view))
        assert found == expected, f"seed {seed}"
        seen[("failed" if found is None else "warned" if warned else "passed")] += 1
    return seen


@night
def test_chunks_at_the_level_limit(sandbox: MemorySandbox) -> None:
    """A refresh in chunks fails where the query does, and nowhere else, whatever failed before."""
    assert len(refresh_at_the_limit(sandbox, 1, 8)) == 3


@night
@pytest.mark.timeout(3600)
def test_many_chunks_at_the_level_limit(spark: SparkSession, tmp_path: Path) -> None:
    seen = Counter[str]()
    for seed in range(12):
        seen += refresh_at_the_limit(MemorySandbox(spark, tmp_path / str(seed)), seed, 12)
    for seed in range(12, 15):
        seen += refresh_at_the_limit(DeltaSandbox(spark, tmp_path / str(seed)), seed, 12)
    assert min(seen["failed"], seen["warned"]) > 5, seen
