"""Numeric loops that are maintained: every contract after every change, against oracles in plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.algebra.errors import NotConvergedError, QueryError
from deltafold.api import Report, View, iterate
from deltafold.language.loops.definition import MeasuredPoints
from deltafold.language.loops.options import evaluate_by
from tests.lake.memory.log import MemoryLog
from tests.loops import queries
from tests.loops.references import numeric_oracles
from tests.night import night
from tests.sandbox import MemorySandbox, checked, confirm, rows

NODES = list(range(10))
EDGES = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 4), (5, 0), (6, 7), (7, 6), (7, 99), (0, 1)]
CHANGES = (
    "insert into {edges} values (8, 0), (2, 5)",
    "delete from {edges} where src = 2 and dst = 0",
    "insert into {nodes} values (10), (11)",
    "delete from {nodes} where node = 4",
    "update {edges} set dst = 9 where src = 7",
)


def linked(sandbox: MemorySandbox) -> MemorySandbox:
    nodes = [(node,) for node in NODES]
    return sandbox.sources({"nodes": ("node int", nodes), "edges": ("src int, dst int", EDGES)})


def graph(sandbox: MemorySandbox) -> tuple[list[int], list[tuple[int, int]]]:
    nodes = [row[0] for row in sandbox.read("select * from {nodes}").collect()]
    return nodes, [(row[0], row[1]) for row in sandbox.read("select * from {edges}").collect()]


def test_n_steps(sandbox: MemorySandbox, long: bool) -> None:
    """The answer is that of n steps from the start, with the side inputs as they are now."""
    view = linked(sandbox).view(queries.ranks_after)
    view.refresh()
    for changes in [(change,) for change in CHANGES[:3]] if long else [CHANGES[:3]]:
        for change in changes:
            sandbox.sql(change)
        report = checked(view)
        assert len(report.rounds["loop_1"]["steps"]) == 4
        assert dict(rows(view)) == pytest.approx(numeric_oracles.ranks(*graph(sandbox), 4))
    assert checked(view).verdict == "nothing to do"


def test_an_error(sandbox: MemorySandbox, long: bool) -> None:
    """The true error is within the bound that verify measures, and that within the declared one."""
    view = linked(sandbox).view(queries.ranks)
    view.refresh()
    for change in CHANGES if long else CHANGES[1:2]:
        sandbox.sql(change)
        report = view.refresh()
        found, best = dict(rows(view)), numeric_oracles.ranks(*graph(sandbox), 300)
        verified = view.verify()
        assert verified.ok, verified.sentence
        assert verified.residual is not None and verified.bound is not None
        true_error = numeric_oracles.mean_difference(found, best)
        assert true_error <= verified.bound * (1 + 1e-9) and verified.bound <= 1e-2
        moved = numeric_oracles.rank_step(found, *graph(sandbox))
        assert verified.residual == pytest.approx(numeric_oracles.mean_difference(found, moved), abs=1e-12)
        assert verified.allowed == pytest.approx(15e-4)
    assert verified.residual == pytest.approx(check_residuals(report), abs=1e-12)


def check_residuals(report: Report) -> float:
    """Compare what a report has of the residuals of its loop; returns the last."""
    residuals = report.residuals["loop_1"]
    assert len(residuals) == len(report.rounds["loop_1"]["steps"])
    assert f" to a residual of {residuals[-1]:.3g}" in report.sentence
    return residuals[-1]


@night
def test_a_small_change_takes_few_steps(sandbox: MemorySandbox) -> None:
    """A refresh starts from the stored answer, which is nearer than the start."""
    view = linked(sandbox).view(queries.ranks)
    first = view.refresh()
    sandbox.sql("insert into {edges} values (6, 8)")
    second = view.refresh()
    assert len(second.rounds["loop_1"]["steps"]) < len(first.rounds["loop_1"]["steps"]) / 2
    assert view.verify().ok


def test_an_answer_that_breaks_the_contract(spark: SparkSession) -> None:
    """Verify measures the stored answer itself: one that is too far off, or lacks a key, is found."""
    nodes = spark.createDataFrame([(node,) for node in NODES], "node int")
    edges = spark.createDataFrame(EDGES, "src int, dst int")
    settled = numeric_oracles.ranks(NODES, EDGES, 300)
    for wrong in ({}, {3: settled[3] + 5.0}, {3: None}):
        stored = {node: rank for node, rank in (settled | wrong).items() if rank is not None}
        points = MeasuredPoints({0: spark.createDataFrame([*stored.items()], "k int, x double")})
        with evaluate_by(points):
            assert dict(queries.ranks(nodes, edges).collect()) == stored
        (point,) = points.measured
        assert point.within == (not wrong)
        assert point.unmatched == len(NODES) - len(stored)


@night
def test_above_and_below(sandbox: MemorySandbox) -> None:
    """A loop between a group-by and another: what reads its answer follows it exactly."""
    linked(sandbox).source("groups", "node int, team int", [(n, n % 3) for n in range(12)])

    def query(nodes: DataFrame, edges: DataFrame, groups: DataFrame) -> DataFrame:
        ranked = queries.ranks(nodes, edges.distinct())
        return ranked.join(groups, "node").groupBy("team").agg(F.max("rank").alias("top"), F.count("*").alias("n"))

    view = sandbox.view(query)
    view.refresh()
    for change in (*CHANGES[:2], "update {groups} set team = 0 where node = 5"):
        sandbox.sql(change)
        view.refresh()
        verified = view.verify()
        assert verified.ok, verified.sentence


@night
def test_clusters(sandbox: MemorySandbox) -> None:
    """k-means by steps of nearest and averages, with points that come and go."""
    rng = random.Random(5)
    points = [(i, float(rng.randrange(20)), float(rng.randrange(20))) for i in range(25)]
    sandbox.sources(
        {
            "points": ("id int, x double, y double", points),
            "seeds": ("x double, y double", [(0.0, 0.0), (19.0, 19.0), (0.0, 19.0)]),
        }
    )
    view = sandbox.view(queries.clusters)
    view.refresh()
    for change in ("insert into {points} values (30, 5.0, 5.0), (31, 18.0, 2.0)", "delete from {points} where id < 4"):
        sandbox.sql(change)
        checked(view)
        now = [(row[1], row[2]) for row in sandbox.read("select * from {points}").collect()]
        expected = sorted(numeric_oracles.lloyd(now, [(0.0, 0.0), (19.0, 19.0), (0.0, 19.0)], 3))
        assert flat(sorted(rows(view))) == pytest.approx(flat(expected))


@night
def test_nearest(sandbox: MemorySandbox) -> None:
    """Points and centers both change; each point follows, duplicates counted."""
    sandbox.sources({
        "points": ("id int, x double, y double", [(1, 0.0, 0.0), (1, 0.0, 0.0), (2, 5.0, 5.0), (3, None, 1.0)]),
        "centers": ("name string, x double, y double", [("a", 1.0, 0.0), ("b", 6.0, 5.0)]),
    })  # fmt: skip
    view = sandbox.view(queries.assigned)
    view.refresh()
    for change in (
        "insert into {centers} values ('c', 0.0, 0.0)", "insert into {points} values (4, 9.0, 9.0)",
        "delete from {centers} where name = 'b'", "delete from {points} where id = 1", "delete from {centers}",
    ):  # fmt: skip
        sandbox.sql(change)
        checked(view)
    assert rows(view) == []


@night
def test_factors(sandbox: MemorySandbox) -> None:
    """A loop over two frames, to a residual."""
    cells = [(i, j, float((i + 1) * (j + 2))) for i in range(2) for j in range(2)]
    sandbox.sources({
        "v": ("i int, j int, x double", cells), "w0": ("i int, j int, x double", [(0, 0, 2.0), (1, 0, 3.0)]),
        "h0": ("i int, j int, x double", [(0, 0, 1.0), (0, 1, 2.0)]),
    })  # fmt: skip
    view = sandbox.view(queries.factors)
    view.refresh()
    sandbox.sql("update {v} set x = 3.5 where i = 0 and j = 1")
    view.refresh()
    verified = view.verify()
    assert verified.ok and verified.residual is not None and verified.residual <= 1e-2 and verified.bound is None


def halved(sandbox: MemorySandbox, limit: int = 50, factor: str = "0.5", **options: float) -> View:
    """x becomes half of it and a target: the fixpoint is the target."""
    sandbox.source("targets", "k int, target double, name string", [(1, 8.0, "a"), (2, -4.0, "b")])

    def query(targets: DataFrame) -> DataFrame:
        start = targets.select("k", F.lit(0.0).alias("x"), "name")
        aims = targets.select(F.col("k").alias("aim"), "target")

        def step(known: DataFrame) -> DataFrame:
            near = F.col("target") + (F.col("x") - F.col("target")) * F.expr(factor)
            return known.join(aims, F.col("k") == F.col("aim")).select("k", near.alias("x"), "name")

        return iterate(start, step, key="k", limit=limit, **options)  # type: ignore[arg-type]

    return sandbox.view(query)


def test_nothing_is_written_that_did_not_converge(sandbox: MemorySandbox) -> None:
    """Readers keep the last epoch, and a later refresh that converges publishes."""
    view = halved(sandbox, limit=8, residual=0.1)
    view.refresh()
    before = rows(view)
    sandbox.sql("update {targets} set target = 1e6 where k = 1")
    with pytest.raises(NotConvergedError, match="did not converge in 8 steps"):
        view.refresh()
    assert rows(view) == before and len(view.history()) == 1
    sandbox.sql("update {targets} set target = 9.0 where k = 1")
    view.refresh()
    assert view.verify().ok and abs(rows(view)[0][1] - 9.0) <= 0.2


@night
def test_a_change_within_the_tolerance(sandbox: MemorySandbox) -> None:
    """Nothing is written, and the report says that the residual was measured again, and what it is."""
    view = halved(sandbox, residual=0.5)
    view.refresh()
    sandbox.sql("update {targets} set target = 7.9 where k = 1")
    report = view.refresh()
    assert report.verdict == "nothing to do" and "answer that is stored is still within its tol" in report.sentence
    assert 0 < check_residuals(report) <= 0.5 and len(view.history()) == 1
    assert view.verify().residual == pytest.approx(report.residuals["loop_1"][-1])


@night
def test_keys_that_come_and_go(sandbox: MemorySandbox) -> None:
    """New keys begin at the start, lost ones go, and carried columns are those of now."""
    view = halved(sandbox, residual=1e-3)
    view.refresh()
    sandbox.sql("insert into {targets} values (3, 2.0, 'c'), (null, 1.0, 'd')")
    sandbox.sql("delete from {targets} where k = 2")
    sandbox.sql("update {targets} set name = 'z' where k = 1")
    view.refresh()
    assert view.verify().ok
    assert [(k, name) for k, _, name in rows(view)] == [(1, "z"), (3, "c")], "NULL meets no aim in the step"


@night
def test_a_declared_contraction_that_is_not(sandbox: MemorySandbox) -> None:
    """An error that cannot be promised is not published."""
    view = halved(sandbox, factor="0.9", error=1e-3, contraction=0.6)
    with pytest.raises(NotConvergedError, match=r"a step left 0\.9 of a difference, which is more\. Declare a greater"):
        view.refresh()


@night
@pytest.mark.parametrize("stop", [(1, True), (1, False), (2, False)])
def test_a_crash(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch, stop: tuple[int, bool]) -> None:
    """A refresh that stopped before or after the commit of the loop, or before that of the view, is finished."""
    write, written = stop
    linked(sandbox).source("groups", "node int, team int", [(n, n % 3) for n in range(12)])

    def query(nodes: DataFrame, edges: DataFrame, groups: DataFrame) -> DataFrame:
        return queries.ranks_after(nodes, edges).join(groups, "node").select("node", "rank", "team")

    view = sandbox.view(query)
    view.refresh()
    sandbox.sql("insert into {edges} values (0, 5), (0, 6)")
    advance, calls = MemoryLog.advance, iter(range(1, 9))

    def stopping(self: MemoryLog, *given: Any, **named: Any) -> Any:
        at = next(calls) == write
        if at and not written:
            raise KeyboardInterrupt
        done = advance(self, *given, **named)
        if at:
            raise KeyboardInterrupt
        return done

    with monkeypatch.context() as patched:
        patched.setattr(MemoryLog, "advance", stopping)
        with pytest.raises(KeyboardInterrupt):
            view.refresh()
    view.refresh()
    confirm(view)
    assert view.history()[-1].epoch == 2
    found = {node: rank for node, rank, _ in rows(view)}
    assert found == pytest.approx(numeric_oracles.ranks(*graph(sandbox), 4))


@night
def test_repeated_keys(sandbox: MemorySandbox) -> None:
    """Two rows of one key have no difference."""
    view = halved(sandbox, residual=1e-3)
    view.refresh()
    sandbox.sql("insert into {targets} values (1, 5.0, 'again')")
    with pytest.raises(QueryError, match=r'^\w+_1: several rows have the key \{"k":1\}\. Aggregate'):
        view.refresh()


def flat(points: Iterable[tuple[float, ...]]) -> list[float]:
    return [x for point in points for x in point]
