"""Intervals of a change's keys: they contain all of them, and leave out what lies far from any."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import date, timedelta
from decimal import Decimal
from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from deltafold.algebra.plan import Column, Reference
from deltafold.algebra.tuning import Tuning
from deltafold.dataflow.lowering import Lowering
from deltafold.dataflow.pruning import key_ranges, pruning
from deltafold.dataflow.pruning.intervals import align, find_intervals, range_of, runs, scale
from deltafold.dataflow.pruning.key_ranges import KeyRanges
from deltafold.lake import delta_table
from tests.night import every, night
from tests.sandbox import DeltaSandbox, checked

DAY = date(2024, 5, 1)
VALUES = {
    "tinyint": [-128, 127, 126],
    "bigint": [-(2**63), 2**63 - 1, 5, 2**53 + 1],
    "int": [7, 1_000_000, 1_000_007, 8],
    "date": [DAY, DAY + timedelta(40_000), DAY - timedelta(700_000)],
    "decimal(12,2)": [Decimal("-0.01"), Decimal("9999999999.99"), Decimal("12.34")],
    "decimal(30,4)": [Decimal("-" + "9" * 26 + ".9999"), Decimal("9" * 26 + ".9999"), Decimal("0.0001")],
}


SLICES, MOST = Tuning().range_slices, Tuning().range_intervals


@settings(max_examples=100)
@given(st.sets(st.integers(0, SLICES - 1), min_size=1))
def test_runs_contain_all_slices(slices: set[int]) -> None:
    """Few, in order, apart from each other, and tight: each ends where a slice does."""
    found = runs(list(slices), MOST)
    assert len(found) <= MOST
    assert all(any(first <= each <= last for first, last in found) for each in slices)
    assert {end for pair in found for end in pair} <= slices
    assert all(last < first for (_, last), (first, _) in pairwise(found))
    if len(found) < MOST:
        assert sum(last - first + 1 for first, last in found) == len(slices)


@pytest.mark.parametrize("type_", VALUES)
def test_every_value_lies_in_an_interval(spark: SparkSession, type_: str) -> None:
    """Protects from a rounded bound, which would lose rows of the answer: Spark itself compares here."""
    values = VALUES[type_]
    frame = spark.createDataFrame([(value,) for value in [*values, None]], f"k {type_}")
    found = range_of(F.col("k"), type_, str(min(values)), str(max(values)), SLICES)
    if type_ == "tinyint":
        assert found is None  # no more values than slices
        return
    assert found is not None
    (intervals,) = find_intervals(frame, [found], MOST)
    assert 1 < len(intervals) <= len(values)
    inside = " OR ".join(f"k BETWEEN CAST('{low}' AS {type_}) AND CAST('{high}' AS {type_})" for low, high in intervals)
    assert frame.where(f"k IS NOT NULL AND NOT ({inside})").count() == 0


@pytest.mark.parametrize("type_", VALUES)
@settings(max_examples=50)
@given(st.data())
def test_an_aligned_interval_is_little_wider(type_: str, data: st.DataObject) -> None:
    """It contains the interval, is a value of the type at both ends, and at most a quarter wider."""
    known = scale(type_)
    assert known is not None
    low, high = sorted(data.draw(st.tuples(*[st.integers(*known.ends)] * 2)))
    first, last = map(known.number, align((known.text(low), known.text(high)), type_))
    assert known.ends[0] <= first <= low <= high <= last <= known.ends[1]
    assert 4 * (last - first + 1) <= 5 * (high - low + 1)


def test_changes_at_random_have_one_condition() -> None:
    """Protects from code that Spark compiles, and Java optimises, anew in each refresh: a third of its time."""
    changes = [(53, 1_000_016), (211, 999_870), (3, 1_000_099)]
    assert len({align((str(low), str(high)), "int") for low, high in changes}) == 1


@pytest.mark.usefixtures("spark")
def test_types_without_a_scale() -> None:
    """What cannot be numbered exactly keeps its one range."""
    assert [scale(type_) for type_ in ("string", "double", "timestamp", "decimal(38,0)", "decimal(30,8)")] == [None] * 5
    assert range_of(F.col("k"), "date", "2024-05-01", "+12024-05-01", SLICES) is None


@pytest.mark.parametrize(
    ("intervals", "compared"), [((("0", "5"), ("7", "9")), 1), ((("0", "1"), ("7", "9"), ("90", "99")), 3)]
)
def test_rows_meet_few_comparisons(spark: SparkSession, intervals: tuple[tuple[str, str], ...], compared: int) -> None:
    """Protects from comparing each row of a large table with sixteen intervals that hold most rows."""
    lowering, key = Lowering(spark, {}), Column("k", "int")
    rows = lowering.leaf(spark.range(100).selectExpr("int(id) k"), [("k", key)], weighted=False)
    found = key_ranges.restrict_to_ranges(lowering, rows, [Reference(key)], KeyRanges(5, (intervals,)))
    condition = str(found.plan.condition().toString())
    assert condition.count(">=") == compared
    kept = {int(row.k) for row in lowering.frame(found, [(key, "k")]).collect()}
    assert kept >= {value for low, high in intervals for value in range(int(low), int(high) + 1)}


@contextmanager
def read_as_if_large(delta: DeltaSandbox) -> Generator[None]:
    """Small tables are met as large ones are."""
    delta.tune(prune_above_bytes=0)
    with mock.patch.object(delta_table, "WHOLE_BYTES", 0):
        yield


@pytest.mark.parametrize("join", [pytest.param("join", marks=night), "left join"])
def test_a_change_at_both_ends_reads_nothing_between(delta: DeltaSandbox, join: str) -> None:
    """Today's rows and a correction of last spring: the eight files between are not read."""
    for name in ("t", "d"):
        spread = delta.spark.range(0, 1000, 1, 10).selectExpr("int(id div 100 * 1000 + id % 100) k", "int(id % 100) v")
        writer = spread.toDF("k", f"{name}_v").write.format("delta").option("delta.enableDeletionVectors", "true")
        writer.save(delta.path(name))
        delta.declare(name)
    views = [delta.view(f"select t.k, t_v, d_v from d {join} t on t.k = d.k", name) for name in ("narrow", "wide")]
    with read_as_if_large(delta):
        for view in views:
            view.refresh()
        delta.sql("delete from {t} where k in (3, 9003)")
        narrow = checked(views[0])
        with mock.patch.object(key_ranges, "range_of", lambda *_: None):
            wide = checked(views[1])
    assert narrow.change_rows == wide.change_rows > 0
    assert narrow.rows_read < wide.rows_read - 750  # but for what Delta reads of its own logs


def test_few_rows_that_an_input_leaves_read_few_of_the_next(delta: DeltaSandbox) -> None:
    """Protects from reading, or moving, all of a large input for the few rows that a small one left of a change."""
    spread = delta.spark.range(0, 10_000, 1, 10).selectExpr("int(id) k", "int(id % 100) v")
    spread.write.format("delta").save(delta.path("d"))
    delta.declare("d")
    delta.source("g", "g int, kept boolean", [(i, i == 1) for i in range(10)])
    delta.source("t", "k int, g int", [(5, 1)])
    view = delta.view("select t.k, d.v from t join g on t.g = g.g join d on t.k = d.k where kept", "few")
    with read_as_if_large(delta):
        delta.tune(broadcast_rows=2, broadcast_bytes=0)
        checked(view)
        delta.sql("insert into {t} values " + ", ".join(f"({1000 * i}, {i})" for i in range(10)))
        report = checked(view)
    assert report.change_rows == 1
    assert report.rows_read < 5000


QUERIES = {
    "left": "select d.k, t_v, d_v from d left join t on d.k = t.k",
    "window": "select k, t_v, sum(t_v) over (partition by k) s from t",
}


@night
@pytest.mark.parametrize("query", every(2, [*QUERIES.values()][::-1]))
def test_what_was_follows_from_what_is(delta: DeltaSandbox, query: str) -> None:
    """The rows that a few changed ones meet are read once, after; what they were is that less the change."""
    for name in ("t", "d"):
        frame = delta.spark.range(0, 5000, 1, 1).selectExpr("int(id % 2000) k", "int(id % 7) v").toDF("k", f"{name}_v")
        writer = frame.write.format("delta").option("delta.enableDeletionVectors", "true")
        writer.save(delta.path(name))
        delta.declare(name)
    views = [delta.view(query, name) for name in ("once", "twice")]
    with read_as_if_large(delta):
        for view in views:
            view.refresh()
        delta.sql("delete from {t} where k in (3, 1900) and t_v = 3")
        delta.sql("insert into {t} values (3, 1), (3, 1), (1950, 0), (null, 5)")
        once = checked(views[0])
        with mock.patch.object(pruning, "is_rewindable", lambda _: False):
            twice = checked(views[1])
    assert once.change_rows == twice.change_rows > 0
    assert once.rows_read < twice.rows_read - 3000


@night
def test_floats_are_read_as_they_were(delta: DeltaSandbox) -> None:
    """Protects from 0.0 where there was -0.0: they count as equal, but not everything makes the same of both."""
    delta.source("d", "k int", [(1,), (2,)])
    delta.source("t", "k int, x double", [(1, -0.0), (1, -0.0), (2, 0.0)])
    view = delta.view("select d.k, cast(x as string) x from d left join t on d.k = t.k")
    delta.tune(prune_above_bytes=0)
    checked(view)
    delta.insert("t", "k int, x double", [(1, 0.0), (2, -0.0)])
    checked(view)
    delta.sql("delete from {t} where k = 1")
    checked(view)
