"""Queries with loops, as a user writes them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.iterations import product, scaled, turned
from deltafold.api import fixpoint, iterate, nearest


def closure(edges: DataFrame) -> DataFrame:
    """Every pair that a path connects."""

    def longer(paths: DataFrame) -> DataFrame:
        return paths.alias("p").join(edges.alias("e"), F.col("p.dst") == F.col("e.src")).select("p.src", "e.dst")

    return fixpoint(edges.select("src", "dst"), longer)


def doubling_closure(edges: DataFrame) -> DataFrame:
    """The same, which joins paths with paths."""

    def longer(paths: DataFrame) -> DataFrame:
        return paths.alias("p").join(paths.alias("q"), F.col("p.dst") == F.col("q.src")).select("p.src", "q.dst")

    return fixpoint(edges.select("src", "dst"), longer)


def components(edges: DataFrame) -> DataFrame:
    """The least node that each node is connected with."""
    both = edges.select("src", "dst").union(edges.select("dst", "src"))

    def spread(found: DataFrame) -> DataFrame:
        return found.join(both, found["node"] == both["src"]).select(F.col("dst").alias("node"), "label")

    start = both.select(F.col("src").alias("node"), F.col("src").alias("label"))
    return fixpoint(start, spread, key=("node",), keep="least")


def distances(edges: DataFrame, starts: DataFrame) -> DataFrame:
    """The least sum of weights of a path from a start."""

    def farther(found: DataFrame) -> DataFrame:
        there = found.join(edges, found["node"] == edges["src"])
        return there.select(F.col("dst").alias("node"), (F.col("far") + F.col("weight")).alias("far"))

    return fixpoint(starts.select("node", F.lit(0).alias("far")), farther, key="node")


def parity(edges: DataFrame, starts: DataFrame) -> DataFrame:
    """The nodes at the end of a walk of even, and of odd, length: two sets that define each other."""

    def further(even: DataFrame, odd: DataFrame) -> tuple[DataFrame, DataFrame]:
        after_odd = odd.join(edges, odd["node"] == edges["src"]).select(F.col("dst").alias("node"))
        return after_odd, even.join(edges, even["node"] == edges["src"]).select(F.col("dst").alias("node"))

    even, odd = fixpoint((starts.select("node"), starts.select("node").where("false")), further)
    return even.select("node", F.lit("even").alias("kind")).union(odd.select("node", F.lit("odd").alias("kind")))


def ranks(nodes: DataFrame, edges: DataFrame) -> DataFrame:
    """PageRank to an error of 1e-2 in the mean, without the division by the number of nodes."""
    return iterate(
        nodes.select("node", F.lit(1.0).alias("rank")), rank_step(nodes, edges), key=("node",), error=1e-2,
        contraction=0.85, norm="mean",
    )  # fmt: skip


def ranks_after(nodes: DataFrame, edges: DataFrame) -> DataFrame:
    """PageRank after four steps."""
    return iterate(nodes.select("node", F.lit(1.0).alias("rank")), rank_step(nodes, edges), times=4)


def rank_step(nodes: DataFrame, edges: DataFrame):
    out = edges.groupBy("src").agg(F.count("*").alias("degree"))
    links = edges.join(out, "src").select("src", "dst", (F.lit(0.85) / F.col("degree")).alias("share"))

    def step(known: DataFrame) -> DataFrame:
        parts = known.join(links, known["node"] == links["src"])
        given = parts.groupBy("dst").agg(F.sum(F.col("rank") * F.col("share")).alias("given"))
        joined = nodes.join(given, nodes["node"] == given["dst"], "left")
        return joined.select("node", (F.lit(0.15) + F.coalesce("given", F.lit(0.0))).alias("rank"))

    return step


def clusters(points: DataFrame, seeds: DataFrame) -> DataFrame:
    """Centers after three steps of k-means."""

    def step(centers: DataFrame) -> DataFrame:
        near = nearest(points, centers, on=("x", "y"))
        return near.groupBy("center").agg(F.avg("x").alias("x"), F.avg("y").alias("y")).select("x", "y")

    return iterate(seeds.select("x", "y"), step, times=3)


def factors(v: DataFrame, w0: DataFrame, h0: DataFrame) -> DataFrame:
    """Two factors of a matrix, cells (i, j, x), by damped multiplicative updates.

    Without damping, updating both factors from the old ones cycles.
    """

    def step(w: DataFrame, h: DataFrame) -> tuple[DataFrame, DataFrame]:
        return (
            scaled(w, product(v, turned(h)), product(w, product(h, turned(h)))),
            scaled(h, product(turned(w), v), product(product(turned(w), w), h)),
        )

    w, h = iterate((w0, h0), step, key=("i", "j"), residual=1e-2, norm="max", limit=200)
    return w.withColumn("factor", F.lit("w")).union(h.withColumn("factor", F.lit("h")))


def assigned(points: DataFrame, centers: DataFrame) -> DataFrame:
    """Each point with its nearest center."""
    return nearest(points, centers, on=("x", "y")).select("id", "x", "y", "center.name")
