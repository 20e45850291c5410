"""Files without values in some intervals are not read, and no row in them is lost, whatever the files say of it."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from deltafold.lake.log import file_skipping
from deltafold.lake.log.file_lists import known_files
from deltafold.lake.log.file_skipping import skip_files
from deltafold.spark import catalyst

FIRST = date(2024, 1, 1)
COLUMNS = {
    "k": ("int", lambda n: n),
    "big": ("bigint", lambda n: n * 10**15),
    "wide": ("decimal(38,4)", lambda n: Decimal(n) * Decimal("99999999999999999999999.0001")),
    "day": ("date", lambda n: FIRST + timedelta(n)),
    "a.b `q`": ("int", lambda n: n),
}
NUMBER = st.integers(-60, 60)
LAST = 13  # the version after thirteen files and a deletion


def read(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format("delta").option("versionAsOf", LAST).load(str(path))


def skipped(rows: DataFrame, column: str, *intervals: tuple[Any, Any]) -> DataFrame:
    """The same scan without files; the values of the intervals are text in SQL."""
    type_ = dict(rows.dtypes)[column]
    texts = [(str(low), str(high)) for low, high in intervals]
    scan = skip_files(rows.sparkSession, catalyst.analysed_plan(rows), column, texts, type_)
    return catalyst.frame(rows.sparkSession, scan)


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten files of ten rows with the keys of a range each, one of NULLs, one without statistics, one of everything."""
    path = tmp_path_factory.mktemp("skipping") / "t"
    schema = ", ".join(f"`{name.replace('`', '``')}` {type_}" for name, (type_, _) in COLUMNS.items())
    by_file = [list(range(start, start + 10)) for start in range(-50, 50, 10)] + [[None] * 3, [7, -8], [-55, None, 55]]
    for number, values in enumerate(by_file):
        made = [tuple(None if n is None else of(n) for _, of in COLUMNS.values()) for n in values]
        spark.conf.set("spark.databricks.delta.stats.collect", str(number != 11).lower())
        writer = spark.createDataFrame(made, schema).coalesce(1).write.format("delta").mode("append")
        mapped = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
        writer.options(**mapped if not number else {}).save(str(path))
    spark.conf.unset("spark.databricks.delta.stats.collect")
    spark.sql(f"delete from delta.`{path}` where k in (-50, 3, 9)")
    return path


@settings(max_examples=max(3, settings().max_examples // 5))
@given(data=st.data())
def test_no_row_in_an_interval_is_lost(spark: SparkSession, table: Path, data: st.DataObject) -> None:
    """Spark filters the rows of all files, and of those that were left."""
    column, (type_, of) = data.draw(st.sampled_from([*COLUMNS.items()]))
    ends = data.draw(st.lists(st.tuples(NUMBER, NUMBER).map(sorted), min_size=1, max_size=3))
    intervals = [(of(low), of(high)) for low, high in ends]
    inside = " OR ".join(
        f"`{column.replace('`', '``')}` BETWEEN CAST('{low}' AS {type_}) AND CAST('{high}' AS {type_})"
        for low, high in intervals
    )
    rows = read(spark, table)
    listed = None if data.draw(st.booleans(), label="large") else known_files
    with mock.patch.object(file_skipping, "known_files", listed or (lambda _: None)):
        fewer = skipped(rows, column, *intervals)
    assert sorted(fewer.where(inside).collect()) == sorted(rows.where(inside).collect())
    touched = [f for f in range(-50, 50, 10) if any(low < f + 10 and high >= f for low, high in ends)]
    assert len(fewer.inputFiles()) <= len(touched) + 3  # NULLs, no statistics, everything


@settings(max_examples=max(3, settings().max_examples // 5))
@given(data=st.data())
def test_no_row_that_fulfils_a_condition_is_lost(spark: SparkSession, table: Path, data: st.DataObject) -> None:
    """Comparisons either way around, of columns of every type, NULL among the constants."""
    rows, texts = read(spark, table), list[str]()
    for _ in range(data.draw(st.integers(1, 2))):
        column, (type_, of) = data.draw(st.sampled_from([*COLUMNS.items()]))
        constant = data.draw(st.sampled_from(["NULL", *(f"CAST('{of(n)}' AS {type_})" for n in range(-60, 61, 5))]))
        sides = [f"`{column.replace('`', '``')}`", constant]
        if data.draw(st.booleans()):
            sides.reverse()
        texts.append(data.draw(st.sampled_from(["=", "<", "<=", ">", ">=", "<=>", "<>"])).join(sides))
    condition = catalyst.analysed_plan(rows.where(" AND ".join(texts))).condition()
    scan = catalyst.analysed_plan(rows)
    plan = skip_files(spark, scan, "k", [("-60", "60")], "int", catalyst.split_conjuncts(condition))
    fewer = catalyst.frame(spark, plan)
    found, expected = (each.where(" AND ".join(texts)).collect() for each in (fewer, rows.where("k is not null")))
    assert sorted(found) == sorted(expected)


def test_a_condition_skips_files(spark: SparkSession, table: Path) -> None:
    """Protects from a scan of the whole range of a key, where the query asks for a few days."""
    rows = read(spark, table)
    condition = catalyst.analysed_plan(rows.where("day > date'2024-01-20' and date'2024-02-03' >= day")).condition()
    plan = skip_files(
        spark, catalyst.analysed_plan(rows), "k", [("-60", "60")], "int", catalyst.split_conjuncts(condition)
    )
    assert len(catalyst.frame(spark, plan).inputFiles()) == 5  # two of ten files, NULLs, no statistics, everything


def test_no_job_finds_the_files(spark: SparkSession, table: Path) -> None:
    """Protects from Delta's own search, which takes several jobs for each scan; twice skipped is skipped by both."""
    rows = read(spark, table)
    jobs = catalyst.context(spark).statusStore()
    before = jobs.jobsList(None).size()
    fewer = skipped(skipped(rows, "k", (12, 38)), "day", (FIRST + timedelta(22), FIRST + timedelta(28)))
    assert len(fewer.inputFiles()) == 4
    assert jobs.jobsList(None).size() == before
    assert fewer.columns == rows.columns


def test_a_large_table_takes_one_job(spark: SparkSession, table: Path) -> None:
    """Protects from a driver that holds all files of a scan, and from Delta's jobs after that one."""
    rows, jobs = read(spark, table), catalyst.context(spark).statusStore()
    skipped(rows, "k", (12, 38))  # Delta has the version's files in Spark now
    before = jobs.jobsList(None).size()
    with mock.patch.object(file_skipping, "known_files", return_value=None):
        fewer = skipped(rows, "k", (12, 38))
        assert jobs.jobsList(None).size() <= before + 1
        assert len(fewer.inputFiles()) == 6
        with mock.patch.object(file_skipping, "MOST_FILES", 3):
            assert len(skipped(rows, "k", (12, 38)).inputFiles()) == 13
    assert jobs.jobsList(None).size() <= before + 4


def test_what_cannot_be_skipped_is_left(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    """Files of other formats, and a column that a table does not have."""
    spark.range(3).write.parquet(str(tmp_path / "p"))
    other = spark.read.parquet(str(tmp_path / "p"))
    assert len(skipped(other, "id", (7, 8)).inputFiles()) == len(other.inputFiles())
    rows = read(spark, table)
    scan = catalyst.analysed_plan(rows)
    assert skip_files(spark, scan, "absent", [("1", "2")], "int") is scan
