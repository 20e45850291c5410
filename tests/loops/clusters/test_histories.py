"""k-means that is kept by references: random histories against Lloyd's algorithm, which cases read the points, crashes.

Coordinates are multiples of 1/8, so that sums are exact in any order, and answers are compared bit by bit.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from incremental.api import View, iterate, nearest
from incremental.lake.memory.log import MemoryLog
from tests.loops import queries
from tests.loops.references import numeric_oracles
from tests.night import night
from tests.sandbox import DeltaSandbox, MemorySandbox, Sandbox, as_if_large, confirm, rows

STEPS = 3  # of queries.clusters
POINTS, SEEDS = "id int, x double, y double", "x double, y double"
CORNERS = [(0.0, 0.0), (0.0, 16.0), (16.0, 0.0), (16.0, 16.0)]
WAYS: list[dict[str, Any]] = [{}, {"local_bytes": 0, "local_rows": 0}, {"bucket_bytes": 1, "buckets": 3}]


class Cloud:
    """Random points around random corners, some of them odd, and the statements that change them."""

    def __init__(self, seed: int) -> None:
        self.chance, self._number = random.Random(seed), 0
        self.spread = self.chance.choice([8, 24, 120])

    def point(self) -> tuple[int, float | None, float | None]:
        """Around a corner; rarely one that has no center, or is one of several equal ones."""
        x, y = (each + self.chance.randint(-self.spread, self.spread) / 8 for each in self.chance.choice(CORNERS))
        odd = self.chance.random()
        self._number += odd > 0.1
        return self._number, float("nan") if 0.1 < odd < 0.14 else x, None if 0.14 < odd < 0.18 else y

    def points(self, number: int) -> list[tuple[int, float | None, float | None]]:
        return [self.point() for _ in range(number)]

    def change(self, sandbox: Sandbox) -> str:
        """Change the points or the start; returns the statement."""
        low = self.chance.randint(0, 40)
        inserted = [self.point() for _ in range(self.chance.randint(1, 6))]
        statement = self.chance.choice([
            "insert", "insert", f"delete from {{points}} where id between {low} and {low + 5}",
            f"update {{points}} set x = x + {self.chance.randint(-8, 8) / 8} where id between {low} and {low + 3}",
            "delete from {points} where x > 8", "update {seeds} set x = x + 0.5 where x > 8",
            "insert into {seeds} values (8.0, 8.0)", "delete from {points}",
        ])  # fmt: skip
        if statement == "insert":
            sandbox.insert("points", POINTS, inserted)
        else:
            sandbox.sql(statement)
        return statement


def check(sandbox: Sandbox, view: View) -> None:
    """Compare the answer with Lloyd's algorithm, exactly; in a view of two equal averages both are there."""
    found = sandbox.read("select x, y from {points} where x is not null and y is not null and not isnan(x)").collect()
    seeds = [(row[0], row[1]) for row in sandbox.read("select * from {seeds}").collect()]
    expected = numeric_oracles.lloyd([(row[0], row[1]) for row in found], seeds, STEPS)
    assert set(rows(view)) == expected


def history(sandbox: Sandbox, seed: int, refreshes: int) -> Counter[str]:
    """One view over one random history; returns the paths that its table was written by."""
    cloud, paths = Cloud(seed), Counter[str]()
    sandbox.tune(**WAYS[seed % len(WAYS)])
    sandbox.source("points", POINTS, cloud.points(40))
    sandbox.source("seeds", SEEDS, CORNERS[: cloud.chance.randint(1, 4)])
    view = sandbox.view(queries.clusters)
    for number in range(refreshes):
        statement = cloud.change(sandbox) if number else ""
        with as_if_large(view):
            report = view.refresh()
        paths[report.paths.get("loop_1", "")] += 1
        try:
            check(sandbox, view)
            if number == refreshes - 1:
                assert Counter(rows(view)) == Counter(tuple(row) for row in view.batch().collect())
        except AssertionError as error:
            error.add_note(f"seed {seed}, refresh {number}, {statement}, {report.paths}, {report.rounds}")
            raise
    return paths


@pytest.mark.parametrize("seed", [1, 2])
def test_a_history(sandbox: MemorySandbox, seed: int) -> None:
    """Protects from sums that drift, points that keep a center which is no longer nearest, clusters that vanish."""
    history(sandbox, seed, 3)


@night
def test_many_histories(sandbox: MemorySandbox) -> None:
    """In all some 600 refreshes, by every path."""
    paths = Counter[str]()
    for seed in range(60):
        paths += history(sandbox.beside(str(seed)), seed, 10)
    assert paths["changed"] > 100 and paths["renewed"] > 100


def test_no_point_is_read_again(delta: DeltaSandbox) -> None:
    """Clusters that are far apart keep their points: the sums of a change are added, on Delta as in memory."""
    cloud = Cloud(7)
    cloud.spread = 8
    delta.source("points", POINTS, cloud.points(60))
    delta.source("seeds", SEEDS, CORNERS)
    view = delta.view(queries.clusters)
    assert view.refresh().paths["loop_1"] == "first load"
    for statement in (
        "insert into {points} values (90, 1.0, 0.5), (91, 17.0, 15.5)",
        "delete from {points} where id < 9",
    ):
        delta.sql(statement)
        report = view.refresh()
        assert report.rounds == {"loop_1": {"points": [0] * STEPS}} and report.paths["loop_1"] == "changed"
        check(delta, view)
    confirm(view)


def weighted(points: DataFrame, seeds: DataFrame) -> DataFrame:
    """k-means of points with weights, whose centers count them; small clusters vanish."""

    def step(centers: DataFrame) -> DataFrame:
        near = nearest(points.select("x", "y", (F.col("id") * 2).alias("w")), centers, on=("x", "y"))
        sums = near.groupBy("center").agg(
            F.sum(F.col("x") * F.col("w")).alias("x"), F.sum(F.col("y") * F.col("w")).alias("y"),
            F.sum("w").alias("w"), F.count("*").alias("n"),
        )  # fmt: skip
        return sums.where("n > 2").select(
            (F.col("x") / F.col("w")).alias("x"), (F.col("y") / F.col("w")).alias("y"), "n"
        )

    return iterate(seeds.select("x", "y", F.lit(0).cast("bigint").alias("n")), step, times=3)


def test_weights_and_a_count(sandbox: MemorySandbox) -> None:
    """Arguments that are computed, a filter over the sums, and a column of centers that is no coordinate."""
    cloud = Cloud(5)
    sandbox.source("points", POINTS, cloud.points(40))
    sandbox.source("seeds", SEEDS, CORNERS)
    view = sandbox.view(weighted)
    view.refresh()
    for statement in ("insert into {points} values (3, 1.0, 0.5), (4, 17.0, 15.5)", "delete from {points} where y > 8"):
        sandbox.sql(statement)
        view.refresh()
        confirm(view)


@pytest.mark.parametrize("written", [False, True])
def test_a_crash(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch, written: bool) -> None:
    """A refresh that stopped before or after the commit of the loop is finished."""
    sandbox.source("points", POINTS, [(i, x + i / 8, y) for i, (x, y) in enumerate(CORNERS * 3)])
    sandbox.source("seeds", SEEDS, CORNERS)
    view = sandbox.view(lambda points, seeds: queries.clusters(points, seeds).withColumn("z", F.lit(1)))
    view.refresh()
    sandbox.sql("insert into {points} values (50, 1.0, 1.0)")
    advance = MemoryLog.advance

    def stopping(self: MemoryLog, *given: Any, **named: Any) -> Any:
        if written:
            advance(self, *given, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(MemoryLog, "advance", stopping)
        with pytest.raises(KeyboardInterrupt):
            view.refresh()
    view.refresh()
    confirm(view)
    assert view.history()[-1].epoch == 2
