"""Rows that the driver holds are the rows of the frame, whatever their types, and measured in the same job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from deltafold.dataflow.pruning.intervals import find_intervals, range_of
from deltafold.spark import catalyst
from deltafold.spark.catalyst import isolate_session
from deltafold.spark.checkpoint import Checkpoints, collect_rows, compute_measures, computed_once, measured_once
from deltafold.spark.job_stats import Measure

VALUES = (
    "id", "cast(null as int)", "cast(id / 7 as decimal(38, 18))", "double('NaN')", "-0.0D", "binary('x')", "'ä\\'`'",
    "date'2024-02-29'", "timestamp'2024-01-01 01:02:03.000004'", "timestamp_ntz'2024-01-01 01:02:03'",
    "interval '1' day", "array(1, null)", "named_struct('a', map('k', array(id)))",
    "parse_json('{\"a\": [1]}')", "cast(null as map<string, int>)",
)  # fmt: skip


def measures() -> list[Column]:
    return [
        F.count(F.lit(1)).alias("rows"),
        F.collect_set(F.expr("cast(c0 % 3 as int)")).alias("kinds"),
        F.expr("coalesce(bool_or(c0 > 5), false)").alias("large"),
        F.lit(None).cast("array<string>").alias("unknown"),
    ]


@pytest.mark.parametrize("count", [0, 1, 9])
def test_rows_and_measures(spark: SparkSession, count: int) -> None:
    """Protects from a type that does not survive the driver, and from measures of rows that were never read."""
    frame = spark.range(0, count, 1, 3).selectExpr(*(f"{value} AS c{i}" for i, value in enumerate(VALUES)))
    local = collect_rows(frame.coalesce(1), measures(), 9)
    assert local is not None
    rows, found = local
    assert Counter(map(repr, rows.collect())) == Counter(map(repr, frame.collect()))
    assert [(f.name, f.dataType) for f in rows.schema] == [(f.name, f.dataType) for f in frame.schema]
    expected = compute_measures(frame, measures())
    assert {**found, "kinds": sorted(found["kinds"])} == {**expected, "kinds": sorted(expected["kinds"])}
    assert rows.alias("a").join(rows.alias("b"), F.expr("a.c0 = b.c0")).count() == count


def test_too_many_rows(spark: SparkSession) -> None:
    """Protects from a driver that holds more than it was told."""
    frame = spark.range(0, 10, 1, 3).selectExpr("id c0")
    assert collect_rows(frame.coalesce(1), measures(), 9) is None


def test_one_job(spark: SparkSession) -> None:
    """Protects from measures that are a second pass."""
    measure = Measure(spark)
    with measure.all("one"):
        assert collect_rows(spark.range(5).selectExpr("id c0").coalesce(1), measures(), 9) is not None
    assert measure.cost.jobs == 1


def test_measures_of_computed_rows_take_one_job(spark: SparkSession) -> None:
    """Adaptive execution, which sessions have outside of tests, made two of it: every change of a large join waited."""
    adaptive = isolate_session(spark)
    adaptive.conf.set("spark.sql.adaptive.enabled", "true")
    rows = adaptive.range(0, 99, 1, 3).selectExpr("id c0").localCheckpoint()
    measure = Measure(spark)
    with measure.all("measures"):
        found = compute_measures(rows, measures())
    assert (found["rows"], found["large"], measure.cost.jobs) == (99, True, 1)
    measure = Measure(spark)
    with measure.all("intervals"):
        assert (known := range_of(F.col("c0"), "bigint", "0", "98", 9)) is not None
        assert find_intervals(rows, [known], 4) == [(("0", "98"),)]
    assert measure.cost.jobs == 1


@pytest.mark.parametrize("compiled", [True, False])
def test_tasks_see_the_settings_of_the_frames_session(spark: SparkSession, compiled: bool) -> None:
    """As in Spark's own actions, whichever session is active; the rows were parsed under the default policy."""
    other = isolate_session(spark)
    settings = {"spark.sql.legacy.timeParserPolicy": "LEGACY", "spark.sql.codegen.wholeStage": str(compiled)}
    settings["spark.sql.codegen.factoryMode"] = "FALLBACK" if compiled else "NO_CODEGEN"
    for name, value in settings.items():
        other.conf.set(name, value)
    days = other.range(1, 3, 1, 1).selectExpr("to_date(concat('2024-1-', id), 'yyyy-MM-dd') AS day")
    catalyst.activate(spark)
    context = catalyst.context(spark)
    before = context.getLocalProperties()
    assert (local := collect_rows(days, [F.count("day").alias("days")], 9)) is not None
    assert ([str(row.day) for row in local[0].collect()], local[1]) == (["2024-01-01", "2024-01-02"], {"days": 2})
    assert before.equals(context.getLocalProperties())
    assert catalyst.sql(spark).classic.SparkSession.active().equals(catalyst.session(spark))


def test_a_change_that_meets_large_tables_is_expected_to_stay_small(spark: SparkSession) -> None:
    """Protects from Spark's estimate, which multiplies the sizes: above three tables, nothing was skipped."""
    with ExitStack() as cached:
        checkpoints = Checkpoints(cached, 10)
        few, many = (spark.range(rows).withColumnRenamed("id", f"n{rows}") for rows in (100, 10**6))
        joined = few.join(many, F.expr("n100 = n1000000")).join(spark.range(10**6), F.expr("id = n100"))
        assert checkpoints.estimate_bytes(joined) == 10**6 * 8
        joined = F.broadcast(few).join(many, F.expr("n100 = n1000000")).join(spark.range(10), F.expr("id = n100"))
        assert checkpoints.estimate_bytes(joined) == 100 * 8
        assert checkpoints.estimate_bytes(many.join(few, F.expr("n100 = n1000000"), "left_semi")) == 10**6 * 8
        assert checkpoints.estimate_bytes(few.join(many, F.expr("n100 < n1000000"))) == 800 * 8 * 10**6
        kept = checkpoints.keep(joined)
        assert checkpoints.estimate_bytes(kept.unionAll(kept)) == 2 * 100 * 8
        checkpoints.learn(kept, 7)
        assert checkpoints.estimate_bytes(kept.where("id > 3")) == 7 * 3 * 8


@pytest.mark.parametrize("rows", [0, 9])
def test_a_frame_is_computed_and_measured_by_the_same_job(spark: SparkSession, rows: int) -> None:
    """Protects from a second pass over a change, and from measures that lack some of its partitions."""
    measure = Measure(spark)
    with ExitStack() as cached, measure.all("one"):
        frame = spark.range(0, rows, 1, 3).selectExpr("id c0") if rows else spark.range(0).selectExpr("id c0")
        kept, found = Checkpoints(cached, 10).measure(frame, measures(), small=False)
        assert measure.cost.jobs <= 1
        assert {**found, "kinds": sorted(found["kinds"])} == {
            "rows": rows, "kinds": [0, 1, 2] if rows else [], "large": rows > 6, "unknown": None,
        }  # fmt: skip
        assert sorted(row.c0 for row in kept.collect()) == list(range(rows))


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """The folder of checkpoints, set for one test."""
    spark.sparkContext.setCheckpointDir(str(tmp_path / "kept"))
    yield tmp_path / "kept"
    getattr(catalyst.context(spark), "checkpointDir_$eq")(catalyst.none(spark))


@pytest.mark.parametrize("now", [True, False])
def test_rows_are_kept_in_the_folder_of_checkpoints(spark: SparkSession, folder: Path, now: bool) -> None:
    """Protects from rows that are lost with an executor, that are computed twice, and from files that stay."""
    with computed_once(spark.range(0, 9, 1, 3).selectExpr("id", "uuid() AS u"), now=now) as kept:
        rows = kept.collect()
        assert list(folder.rglob("part-*"))
        catalyst.analysed_plan(kept).rdd().unpersist(True)  # as a lost executor does
        assert kept.collect() == rows
    assert not list(folder.rglob("part-*"))


def test_measures_of_rows_in_the_folder(spark: SparkSession, folder: Path) -> None:
    frame = spark.range(0, 9, 1, 3).selectExpr("id c0")
    with measured_once(frame, measures(), F.col("c0") > 6) as (kept, found):
        assert found["rows"] == 9
        assert sorted(row.c0 for row in kept.collect()) == [7, 8]
        assert list(folder.rglob("part-*"))
