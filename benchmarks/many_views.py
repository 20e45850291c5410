"""Many small datasets over one large table: refreshed in one run, and recomputed.

`flat` are datasets of five shapes in turn over the same table and a small one: a sum, an extremum and a distinct count
by key, a sum by key of a join, and rows of a join. `layered` are two datasets a layer, each over both of the layer
below, so that the number of paths doubles with each layer. After each change of the large table (rows added, corrected
and deleted) all are refreshed by one run, and then recomputed. The ratios are those of medians after the first change.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.contest import Contest
from benchmarks.projects import Datasets
from benchmarks.shop import KINDS
from deltafold.spark.cache import cache_folder
from deltafold.spark.session import start

SIZES = [2_000_000]
NUMBERS = [20]
SHAPES = ("flat", "layered")
ROUNDS = 3  # of changes; one more warms up
KEYS = 5_000
KINDS_OF_KEYS = 100
ADDED, CORRECTED, DELETED = 1_000, 200, 100
FLAT = (
    "SELECT k % {keys} AS k, sum(v) AS total, count(*) AS n FROM events GROUP BY k % {keys}",
    "SELECT k % {keys} AS k, max(v) AS most, min(day) AS first FROM events WHERE v % 7 <> {number} GROUP BY k % {keys}",
    "SELECT k % {keys} AS k, count(DISTINCT day) AS days FROM events WHERE day % 5 <> {number} % 5 GROUP BY k % {keys}",
    "SELECT g, sum(v * weight) AS total FROM events JOIN kinds ON k % 100 = g WHERE k % {keys} <> 0 GROUP BY g",
    "SELECT id, v, name FROM events JOIN kinds ON k % 100 = g WHERE v % 100 = {number}",
)
LOWEST = "SELECT k, sum(v) AS v FROM events WHERE day % 2 = {side} GROUP BY k"
LAYER = """
    SELECT a.k, sum(a.v + b.v * {side}) AS v
    FROM layer_{below}_0 a JOIN layer_{below}_1 b ON a.k = b.k WHERE a.k % 97 <> {below} GROUP BY a.k"""


def queries(shape: str, number: int) -> Mapping[str, str]:
    """Return a number of queries of a shape."""
    if shape == "flat":
        made = [FLAT[i % len(FLAT)].format(keys=KEYS - i, number=i) for i in range(number)]
        return {f"flat_{i}": query for i, query in enumerate(made)}
    layers = [(LOWEST if layer == 0 else LAYER, layer, side) for layer in range(number // 2) for side in (0, 1)]
    return {f"layer_{layer}_{side}": text.format(below=layer - 1, side=side) for text, layer, side in layers}


def events(spark: SparkSession, first: int, rows: int, seed: int) -> DataFrame:
    """Rows of `events` from a number on."""
    return spark.range(first, first + rows, 1, 2).selectExpr(
        "id", f"CAST(abs(hash(id)) % {KEYS} AS INT) AS k", f"CAST(abs(hash(id, {seed})) % 10000 AS BIGINT) AS v",
        "CAST(id % 365 AS INT) AS day", "md5(CAST(id AS STRING)) AS note",
    )  # fmt: skip


def generate(spark: SparkSession, folder: Path, rows: int, properties: Mapping[str, str]) -> None:
    """Write both tables."""
    shutil.rmtree(folder, ignore_errors=True)
    kinds = spark.range(KINDS_OF_KEYS).selectExpr("CAST(id AS INT) AS g", "concat('kind ', id) AS name", "id AS weight")
    for name, frame in {"events": events(spark, 0, rows, 1), "kinds": kinds}.items():
        frame.write.format("delta").options(**properties).save(str(folder / name))


def change(spark: SparkSession, folder: Path, rows: int, number: int) -> None:
    """Merge added, corrected and deleted rows."""
    old = number * (CORRECTED + DELETED)
    sides = {
        "add": events(spark, rows + number * ADDED, ADDED, 1),
        "correct": events(spark, old, CORRECTED, 2 + number),
        "delete": events(spark, old + CORRECTED, DELETED, 1),
    }
    added, corrected, deleted = (frame.selectExpr("*", f"'{what}' AS what") for what, frame in sides.items())
    added.unionByName(corrected).unionByName(deleted).createOrReplaceTempView("changed_events")
    spark.sql(f"""MERGE INTO delta.`{folder / "events"}` t USING changed_events u ON t.id = u.id
        WHEN MATCHED AND u.what = 'delete' THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""")


def run(
    sizes: list[int], numbers: list[int], shapes: list[str], kinds: list[str], rounds: int, *, verify: bool
) -> None:
    """Each size, number, shape and kind of source: a first load, then rounds of a change, one run and a recompute."""
    spark = start("many-views")
    contest = Contest(spark, cache_folder("benchmarks", "many-views"))
    settings = [
        (size, number, shape, kind) for size in sizes for number in numbers for shape in shapes for kind in kinds
    ]
    for setting in settings:
        one(contest, spark, cache_folder("benchmarks", "many-views"), *setting, rounds=rounds, verify=verify)
    ratios = list[tuple[str, float, str]]()
    for setting in map(name_setting, *zip(*settings, strict=True)):
        seconds, again = (contest.median(setting, who, "change") for who in ("one run", "recompute"))
        number = int(setting.split()[0])
        ratios.append((f"{setting}, recompute / one run", again / seconds, "at least 4 at 2 M rows, 15 at 20 M"))
        ratios.append((f"{setting}, seconds a dataset", seconds / number, "at most 0.3 of 20, 0.25 of 100"))
    contest.show("many datasets", ratios, cache_folder("benchmarks") / "many_views.json")


def name_setting(size: int, number: int, shape: str, kind: str) -> str:
    """Return the name of a setting, which begins with the number of datasets."""
    return f"{number} {shape} {size} {kind}"


def one(
    contest: Contest,
    spark: SparkSession,
    folder: Path,
    size: int,
    number: int,
    shape: str,
    kind: str,
    *,
    rounds: int,
    verify: bool,
) -> None:
    """One setting, with tables in a folder."""
    setting = name_setting(size, number, shape, kind)
    generate(spark, folder, size, KINDS[kind])
    datasets = Datasets(spark, folder, queries(shape, number), ("events", "kinds"), "incremental")
    contest.lap(setting, "load", "one run", datasets.refresh)
    for done in range(rounds + 1):
        change(spark, folder, size, done)
        datasets.register()
        step = "warm-up" if done == 0 else f"change-{done}"
        contest.lap(setting, step, "one run", datasets.refresh)
        contest.lap(setting, step, "recompute", datasets.recompute)
    if verify:
        datasets.verify()
