"""The batch definition of loops, against textbook algorithms that share no code with it.

Whatever maintains loops is compared with this definition, so an error here would be everybody's.
"""

from __future__ import annotations

import math
import random

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.algebra.errors import NotConvergedError, QueryError
from deltafold.algebra.loops import advise
from deltafold.api import fixpoint, iterate, nearest
from tests.loops import queries
from tests.loops.references import numeric_oracles, oracles
from tests.night import night

EDGES = [(1, 2), (2, 3), (3, 1), (3, 4), (5, 5), (6, 7), (7, 8), (8, 7), (2, 3), (None, 9), (9, None)]
WEIGHTED = [(1, 2, 4), (1, 3, 1), (3, 2, 1), (2, 4, 0), (4, 2, 0), (5, 1, 1), (4, 6, 7), (3, 6, 20)]


def frame(spark: SparkSession, rows: list[tuple], schema: str) -> DataFrame:
    return spark.createDataFrame(rows, schema)


def pairs(frame: DataFrame) -> set[tuple]:
    found = [tuple(row) for row in frame.collect()]
    assert len(set(found)) == len(found), "a set has no duplicates"
    return set(found)


@pytest.fixture(scope="module")
def edges(spark: SparkSession) -> DataFrame:
    return frame(spark, EDGES, "src int, dst int")


def test_closure(edges: DataFrame) -> None:
    """Cycles, a loop of one edge, parallel edges and NULL; linear and by doubling."""
    assert pairs(queries.closure(edges)) == oracles.closure(EDGES) == pairs(queries.doubling_closure(edges))


def by_attribute(edges: DataFrame) -> DataFrame:
    """The pairs of a closure that lie on a cycle; all columns are named as attributes of their frames."""

    def longer(paths: DataFrame) -> DataFrame:
        return paths.join(edges, paths["dst"] == edges["src"]).select(paths["src"], edges["dst"])

    found = fixpoint(edges.select("src", "dst"), longer)
    return found.join(edges, (found["dst"] == edges["src"]) & (found["src"] == edges["dst"])).select(edges["src"])


def test_a_start_and_a_step_over_rows_without_null(edges: DataFrame) -> None:
    """Spark may know something of a checkpoint's rows by attributes that they do not have, and fails by it later."""

    def longer(known: DataFrame) -> DataFrame:
        joined = known.alias("k").join(edges.alias("e"), F.col("k.dst") == F.col("e.src"))
        return joined.select("k.src", "e.dst", F.col("k.hops") + 1)

    found = fixpoint(
        edges.where("src is not null").select("src", "dst", F.lit(1).alias("hops")), longer, ["src", "dst"]
    )
    assert {row[:2] for row in pairs(found)} == {p for p in oracles.closure(EDGES) if p[0] is not None}


def test_advice_by_residuals() -> None:
    """Neither more steps nor a greater tolerance help where numbers grow, or are none."""
    assert advise([3.0, math.nan]).startswith("A step computes numbers that are not finite")
    assert advise([3.0, 4.0]).startswith("They grow")
    assert advise([4.0, 3.0]) == "Raise the limit or the tolerance."


def test_columns_named_as_attributes(edges: DataFrame) -> None:
    """Rows of a loop are a relation of their own, although its start selects from a frame that the step joins."""
    closed = oracles.closure(EDGES)
    expected = sorted(a for a, b in EDGES if a is not None and b is not None and (b, a) in closed)
    assert sorted(row["src"] for row in by_attribute(edges).collect()) == expected


def test_components(spark: SparkSession) -> None:
    known = [edge for edge in EDGES if None not in edge]
    found = queries.components(frame(spark, known, "src int, dst int"))
    assert pairs(found) == set(oracles.components(known).items())


def test_distances(spark: SparkSession) -> None:
    """Edges of weight 0 in a cycle, and a path that is found later and is shorter."""
    edges = frame(spark, WEIGHTED, "src int, dst int, weight int")
    found = queries.distances(edges, frame(spark, [(1,), (1,)], "node int"))
    assert pairs(found) == set(oracles.distances({1: 0}, WEIGHTED).items())


def test_mutual_recursion(spark: SparkSession) -> None:
    """Two frames of a loop stay apart, also where both have the same rows."""
    edges = [(1, 2), (2, 3), (3, 4), (4, 2), (6, 1)]
    found = queries.parity(frame(spark, edges, "src int, dst int"), frame(spark, [(1,)], "node int"))
    doubled = [((a, n), (b, 1 - n)) for a, b in edges for n in (0, 1)]
    reached = oracles.reachable([(1, 0)], doubled)
    assert pairs(found) == {(node, "odd" if n else "even") for node, n in reached}


def test_parts_of_other_columns(spark: SparkSession) -> None:
    """Parts may have columns of one name and another type, and columns that no other part has."""
    start = frame(spark, [(1,)], "v int"), frame(spark, [("a", 2.0)], "v string, w double")

    def step(one: DataFrame, two: DataFrame) -> tuple[DataFrame, DataFrame]:
        return one.select((F.col("v") + 1).alias("n")).where("n < 4"), two.select(F.lit("b"), F.col("w"))

    one, two = fixpoint(start, step)
    assert one.columns == ["v"] and two.columns == ["v", "w"]
    assert pairs(one) == {(1,), (2,), (3,)} and pairs(two) == {("a", 2.0), ("b", 2.0)}


@night
def test_ranks(spark: SparkSession) -> None:
    """n steps are n steps, and the answer to an error is within it of the fixpoint."""
    rng = random.Random(3)
    nodes, edges = list(range(12)), [(rng.randrange(12), rng.randrange(13)) for _ in range(30)]
    frames = frame(spark, [(n,) for n in nodes], "node int"), frame(spark, edges, "src int, dst int")
    after = dict(queries.ranks_after(*frames).collect())
    assert after == pytest.approx(numeric_oracles.ranks(nodes, edges, 4))
    found = dict(queries.ranks(*frames).collect())
    assert 0 < numeric_oracles.mean_difference(found, numeric_oracles.ranks(nodes, edges, 500)) <= 1e-2


def test_clusters(spark: SparkSession) -> None:
    """Equally near centers, a center that loses all points, and points without a coordinate."""
    points = [(0.0, 0.0), (2.0, 0.0), (1.0, 0.0), (9.0, 9.0), (9.0, 8.0), (1.0, 5.0), (1.0, 5.0)]
    seeds = [(0.0, 0.0), (2.0, 0.0), (9.0, 8.5), (50.0, 50.0)]
    lost = [(None, 1.0), (float("nan"), 2.0)]
    found = queries.clusters(
        frame(spark, points + lost, "x double, y double"), frame(spark, seeds, "x double, y double")
    )
    expected = numeric_oracles.lloyd(points, seeds, 3)
    assert [x for row in sorted(found.collect()) for x in row] == pytest.approx(
        [x for p in sorted(expected) for x in p]
    )


@night  # test_iteration.py has them maintained
def test_factors(spark: SparkSession) -> None:
    """A loop over two frames of cells, to a residual that one more step confirms."""
    v = {(i, j): float((i + 1) * (j + 2)) for i in range(2) for j in range(2)}
    w, h = {(i, 0): 2.0 + i for i in range(2)}, {(0, j): 1.0 + j for j in range(2)}
    cells = [frame(spark, [(*cell, x) for cell, x in each.items()], "i int, j int, x double") for each in (v, w, h)]
    found = {(row["factor"], row["i"], row["j"]): row["x"] for row in queries.factors(*cells).collect()}
    for _ in range(20):
        moved = numeric_oracles.factor_step(v, w, h)
        if max(abs(new[cell] - x) for old, new in zip((w, h), moved, strict=True) for cell, x in old.items()) <= 1e-2:
            break
        w, h = moved
    assert found == pytest.approx({(name, *cell): x for name, each in (("w", w), ("h", h)) for cell, x in each.items()})


def test_nearest_keeps_duplicates(spark: SparkSession) -> None:
    points = frame(spark, [(1, 0.0, 0.0), (1, 0.0, 0.0), (2, 4.0, 4.0)], "id int, x double, y double")
    centers = frame(spark, [("a", 1.0, 0.0), ("b", -1.0, 0.0), ("c", 4.0, 5.0)], "name string, x double, y double")
    found = sorted((row["id"], row["name"]) for row in queries.assigned(points, centers).collect())
    assert found == [(1, "a"), (1, "a"), (2, "c")], "of two equally near centers, the least"
    assert queries.assigned(points, centers.where("false")).collect() == []


def test_limits(spark: SparkSession) -> None:
    """A loop that cannot end says so instead of running for ever; the last round within a limit is allowed."""
    start = frame(spark, [(1,)], "n int")

    def counting(found: DataFrame) -> DataFrame:
        return found.select((F.col("n") + 1).alias("n")).where("n <= 5")

    assert fixpoint(start, counting, limit=5).count() == 5
    for key in (None, "k"):
        with pytest.raises(NotConvergedError, match=r"round 1 .* limit is 0"):
            fixpoint(start.select(F.lit(1).alias("k"), "n"), lambda found: found, key=key, limit=0)
    with pytest.raises(NotConvergedError, match=r"round 5 .* limit is 4"):
        fixpoint(start, counting, limit=4)
    grown = frame(spark, [(1, 1.0)], "k int, x double")
    with pytest.raises(NotConvergedError, match="did not converge in 3 steps"):
        iterate(grown, lambda x: x.select("k", F.col("x") + 1), key="k", residual=0.5, limit=3)
    with pytest.raises(NotConvergedError, match=r"contraction 0\.5 of iterate: a step left 0\.\d+ of a difference"):
        iterate(grown, lambda x: x.select("k", F.col("x") * 0.9), key="k", error=1e-6, contraction=0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: iterate(f, lambda x: x), "no condition that ends it"),
        (lambda f: iterate(f, lambda x: x, times=2, residual=0.1), "times, residual"),
        (lambda f: iterate(f, lambda x: x, error=0.1, key="k"), "Pass contraction=c"),
        (lambda f: iterate(f, lambda x: x, key="k"), "Pass one of"),
        (lambda f: iterate(f, lambda x: x, error=0.1, contraction=1.0, key="k"), "out of range"),
        (lambda f: iterate(f, lambda x: x, residual=0.1), "Pass key"),
        (lambda f: iterate(f, lambda x: x, residual=0.1, key="k", norm="l2"), "unknown norm"),  # type: ignore
        (lambda f: iterate(f, lambda x: x.select("k"), times=1), "types int, and the start has"),
        (lambda f: iterate(f, lambda x: 1, times=1), "returned int"),  # type: ignore
        (lambda f: iterate(f, lambda x: x.union(x), residual=0.1, key="k"), r'several rows have the key \{"k":\d\}\. '),
        (lambda f: iterate(f.select("k"), lambda x: x, residual=0.1, key="k"), "there is none"),
        (lambda f: fixpoint(f, lambda x: x, key="z"), "not a column of the start"),
        (lambda f: fixpoint(f, lambda x: x, key="k", keep="any"), "keep is 'any'"),  # type: ignore
        (lambda f: fixpoint(f, lambda x: x, keep="least"), "Pass a key"),
        (lambda f: fixpoint((f, f), lambda x, y: (x,)), "no tuple of 2"),
        (lambda f: fixpoint((f, f), lambda x, y: (x, y.select("x", "k"))), "part 2 of the step"),
        (lambda f: nearest(f, f, on="z"), "no column z"),
    ],
)  # fmt: skip
def test_what_cannot_be_called(spark: SparkSession, call, message: str) -> None:
    """A wrong call says what to pass, before anything runs."""
    with pytest.raises(QueryError, match=message):
        call(frame(spark, [(1, 1.0)], "k int, x double"))
