"""k-means that is kept by references: random histories against Lloyd's algorithm, which cases read the points, crashes.

Answers are compared bit by bit with an oracle that sums exactly.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.api import iterate, nearest
from tests.lake.memory.log import MemoryLog
from tests.loops import queries
from tests.loops.clusters.clouds import CORNERS, POINTS, SEEDS, STEPS, Cloud, check, history
from tests.night import every, night
from tests.reading import large_by_day
from tests.sandbox import DeltaSandbox, MemorySandbox, confirm

pytestmark = large_by_day


@pytest.mark.parametrize("seed", every(3, [0, 1, 2]))
def test_a_history(sandbox: MemorySandbox, seed: int) -> None:
    """Protects from sums that drift, points that keep a center which is no longer nearest, clusters that vanish."""
    history(sandbox, seed, 3)


@night
def test_many_histories(sandbox: MemorySandbox) -> None:
    """In all some 900 refreshes, by every path."""
    paths = Counter[str]()
    for seed in range(90):
        paths += history(sandbox.beside(str(seed)), seed, 10)
    assert paths["changed"] > 100 and paths["renewed"] > 100 and paths["near"] > 50


@night
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


@night
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


@night
@pytest.mark.parametrize("written", every(2, [False, True]))
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
