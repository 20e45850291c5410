"""Numeric iteration to a tolerance as data arrive: a refresh, which starts from the stored answer, against the batch.

| what | data | change | contract |
| --- | --- | --- | --- |
| PageRank | R-MAT graphs (.30 .25 .25 .20) | 100 or 400 edges | an error of 1e-4 in the mean |
| factorisation | 400 × 300 cells, of rank 4 and noise | about 400 cells | a residual of 1e-2 |

The batch is the same function from its start; it runs after the refreshes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from benchmarks.contest import Contest
from benchmarks.group_by import session
from deltafold.api import Delta, Report, Warehouse, iterate
from deltafold.spark.cache import cache_folder

GRAPHS = [(5_000, 50_000, 100), (100_000, 1_000_000, 400)]  # nodes, edges, edges of a change
ROWS = 400
COLUMNS = 300
RANK = 4
CELLS = 400
QUADRANTS = (0.30, 0.55, 0.80)  # where the shares of R-MAT's quadrants end
CHANGES = 4
BATCHES = 2
ERROR = 1e-4
DAMPING = 0.85
RESIDUAL = 1e-2


def ranks(edges: DataFrame) -> DataFrame:
    """PageRank without the division by the number of nodes."""
    nodes = edges.select(F.col("src").alias("node")).union(edges.select("dst")).distinct()
    out = edges.groupBy("src").agg(F.count("*").alias("degree"))
    links = edges.join(out, "src").select("src", "dst", (F.lit(DAMPING) / F.col("degree")).alias("share"))

    def step(ranked: DataFrame) -> DataFrame:
        parts = ranked.join(links, ranked["node"] == links["src"])
        passed = parts.groupBy("dst").agg(F.sum(F.col("rank") * F.col("share")).alias("passed"))
        joined = nodes.join(passed, nodes["node"] == passed["dst"], "left")
        return joined.select("node", (F.lit(1 - DAMPING) + F.coalesce("passed", F.lit(0.0))).alias("rank"))

    first = nodes.select("node", F.lit(1.0).alias("rank"))
    return iterate(first, step, key="node", error=ERROR, contraction=DAMPING, norm="mean")


def factors(v: DataFrame, w0: DataFrame, h0: DataFrame) -> DataFrame:
    """Two factors of a matrix of cells (i, j, x) by damped multiplicative updates (Lee and Seung)."""

    def step(w: DataFrame, h: DataFrame) -> tuple[DataFrame, DataFrame]:
        return (
            scaled(w, product(v, turned(h)), product(w, product(h, turned(h)))),
            scaled(h, product(turned(w), v), product(product(turned(w), w), h)),
        )

    w, h = iterate((w0, h0), step, key=("i", "j"), residual=RESIDUAL, norm="max", limit=200)
    return w.withColumn("factor", F.lit("w")).union(h.withColumn("factor", F.lit("h")))


def product(a: DataFrame, b: DataFrame) -> DataFrame:
    """The product of two matrices."""
    one = a.toDF("i", "k", "x")
    two = b.toDF("k", "j", "y")
    return one.join(two, "k").groupBy("i", "j").agg(F.sum(F.col("x") * F.col("y")).alias("x"))


def turned(a: DataFrame) -> DataFrame:
    """The transposed matrix."""
    return a.select(F.col("j").alias("i"), F.col("i").alias("j"), "x")


def scaled(a: DataFrame, up: DataFrame, down: DataFrame) -> DataFrame:
    """Each cell times the root of a quotient."""
    joined = a.join(up.toDF("i", "j", "up"), ["i", "j"]).join(down.toDF("i", "j", "down"), ["i", "j"])
    return joined.select("i", "j", (F.col("x") * F.sqrt(F.col("up") / F.col("down"))).alias("x"))


def rmat(spark: SparkSession, nodes: int, edges: int, seed: int) -> DataFrame:
    """Edges of an R-MAT graph: a bit of both ends at a time, from the quadrant that a random number is in."""
    drawn = spark.range(edges)
    src = F.lit(0)
    dst = F.lit(0)
    for bit in range((nodes - 1).bit_length()):
        drawn = drawn.withColumn(f"r{bit}", F.rand(seed * 100 + bit))
        down, right = quadrant(F.col(f"r{bit}"))
        src = src * 2 + down
        dst = dst * 2 + right
    return drawn.select((src % nodes).alias("src"), (dst % nodes).alias("dst")).coalesce(2)


def quadrant(drawn: Column) -> tuple[Column, Column]:
    """Whether a random number is in the lower, and in the right half."""
    one, two, three = QUADRANTS
    lower = drawn >= two
    right = ((drawn >= one) & (drawn < two)) | (drawn >= three)
    return lower.cast("int"), right.cast("int")


def matrix(cells: DataFrame, seed: int) -> DataFrame:
    """The cells of a product of random factors, with noise."""
    near = (f"(1 + (i * {k} + 3) % 7) * (1 + (j * {k} + 5) % 5) / 20" for k in range(1, RANK + 1))
    return cells.select("i", "j", (F.expr(" + ".join(near)) + F.rand(seed) / 10).alias("x"))


def grid(spark: SparkSession, rows: int, columns: int) -> DataFrame:
    """The places of a matrix."""
    return spark.range(rows * columns).selectExpr(f"CAST(id DIV {columns} AS INT) i", f"CAST(id % {columns} AS INT) j")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A query with its sources at first, and the rows that each change adds to one of them; least: the target."""

    name: str
    query: Callable[..., DataFrame]
    sources: dict[str, DataFrame]
    grows: str
    change: Callable[[int], DataFrame]
    least: int


def experiments(spark: SparkSession, graphs: Iterable[tuple[int, int, int]]) -> list[Experiment]:
    """PageRank of every graph, then the factorisation."""
    page_ranks = [
        Experiment(
            name=f"PageRank, {edges:,} edges",
            query=ranks,
            sources={"edges": rmat(spark, nodes, edges, 1)},
            grows="edges",
            change=lambda number, nodes=nodes, few=few: rmat(spark, nodes, few, 10 + number),
            least=3,
        )
        for nodes, edges, few in graphs
    ]
    random = (F.rand(3) + 0.5).alias("x")
    sources = {
        "v": matrix(grid(spark, ROWS, COLUMNS), 1),
        "w0": grid(spark, ROWS, RANK).select("i", "j", random),
        "h0": grid(spark, RANK, COLUMNS).select("i", "j", random),
    }

    def cells(number: int) -> DataFrame:
        few = f"pmod(xxhash64(i, j, {number}), {ROWS * COLUMNS // CELLS}) = 0"
        return matrix(grid(spark, ROWS, COLUMNS).where(few), number)

    factorisation = Experiment(name="factorisation", query=factors, sources=sources, grows="v", change=cells, least=1)
    return [*page_ranks, factorisation]


def run(edges: Sequence[int]) -> None:
    """All experiments whose graph has one of these numbers of edges, then what a refresh takes of a batch."""
    spark = session()
    contest = Contest(spark, cache_folder("benchmarks", "iterations"))
    chosen = experiments(spark, [graph for graph in GRAPHS if graph[1] in edges])
    for experiment in chosen:
        compete(contest, spark, experiment)
    spark.stop()
    ratios = [
        (f"{experiment.name}: batch / refresh", quotient(contest, experiment.name), f"at least {experiment.least}")
        for experiment in chosen
    ]
    contest.show("iteration to a tolerance", ratios, cache_folder("benchmarks") / "iterations.json")


def compete(contest: Contest, spark: SparkSession, experiment: Experiment) -> None:
    """First load, then the changes, then the batch."""
    folder = cache_folder("benchmarks", "iterations")
    shutil.rmtree(folder, ignore_errors=True)
    warehouse = Warehouse(spark, folder / "warehouse")
    for name, rows in experiment.sources.items():
        rows.write.format("delta").save(str(folder / name))
        warehouse.source(name, Delta(str(folder / name)))
    view = warehouse.view("answer", experiment.query)
    reports = list[Report]()

    def refresh() -> Report:
        reports.append(view.refresh())
        return reports[-1]

    contest.lap(experiment.name, "load", "refresh", refresh)
    for number in range(CHANGES + 1):
        experiment.change(number).write.format("delta").mode("append").save(str(folder / experiment.grows))
        contest.lap(experiment.name, f"change-{number}" if number else "warm-up", "refresh", refresh)
    for number in range(BATCHES):
        contest.lap(experiment.name, f"batch-{number}", "batch", lambda: view.batch().count())
    verification = view.verify()
    show_rounds(experiment.name, reports, verification.bound)
    if not verification.ok:
        raise SystemExit(verification.sentence)


def show_rounds(name: str, reports: Sequence[Report], bound: float | None) -> None:
    """Print the steps of each refresh, the first from the start, and the measured bound of the error."""
    steps = [sum(map(len, report.residuals.values())) for report in reports]
    certified = "" if bound is None else f"; error at most {bound:.2g}"
    Console().print(f"{name}: {steps[0]} steps from the start, then {', '.join(map(str, steps[1:]))}{certified}")


def quotient(contest: Contest, name: str) -> float:
    return contest.median(name, "batch") / contest.median(name, "refresh", "change")
