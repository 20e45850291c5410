"""Files that are read as a whole give the rows that any reader sees, and only where nothing could be skipped."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.dataflow.lowering import Lowering
from deltafold.dataflow.pruning.key_ranges import read_whole_files, restrict_scans
from deltafold.lake.delta_table import DeltaTable
from deltafold.lake.log import whole_files
from deltafold.lake.log.file_lists import known_files, rows_of_files
from deltafold.lake.log.whole_files import is_read_whole, read_whole, rows_with_places, stay_whole
from deltafold.lake.version_diff import file_difference
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J
from tests.night import night
from tests.sandbox import DeltaSandbox, checked

MB = 1024 * 1024
KEY = "a.b `q`"


@pytest.fixture(autouse=True)
def any_size() -> Generator[None]:
    with mock.patch.object(whole_files, "MANY_BYTES", 0):
        yield


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """Six files of two partitions, sorted by key, renamed columns; rows of five are deleted, in two commits."""
    path = tmp_path_factory.mktemp("whole") / "t ü"
    spread = spark.range(0, 600, 1, 3).selectExpr("int(id) k", f"int(id) `{KEY.replace('`', '``')}`", "id % 2 part")
    options = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
    spread.write.format("delta").partitionBy("part").options(**options).save(str(path))
    spark.sql(f"alter table delta.`{path}` rename column k to key")
    for condition in ("key % 7 = 0 and key < 500", "key % 11 = 0"):
        spark.sql(f"delete from delta.`{path}` where {condition}")
    return DeltaTable(spark, str(path))


def scan(table: DeltaTable, files: J | None = None) -> J:
    """Spark's scan of the last version, whose files are fixed."""
    snapshot = table.log.unsafeVolatileSnapshot()
    return catalyst.analysed_plan(rows_of_files(table.spark, table.log, snapshot, files or known_files(snapshot)))


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select("key", F.col(f"`{KEY.replace('`', '``')}`"), "part").collect())


def expected(table: DeltaTable) -> list[tuple[Any, ...]]:
    gone = {k for k in range(600) if (k % 7 == 0 and k < 500) or k % 11 == 0}
    return [(k, k, k % 2) for k in range(600) if k not in gone]


def test_deleted_rows_are_not_read(table: DeltaTable) -> None:
    """Protects from rows that come back, whatever the columns are called in the files."""
    plan = read_whole(table.spark, scan(table))
    assert catalyst.kind(plan) == "Project"
    read = catalyst.frame(table.spark, plan)
    assert rows(read) == expected(table)
    assert rows(read.where("key between 100 and 120")) == [
        row for row in expected(table) if 100 <= int(str(row[0])) <= 120
    ]
    assert "row_index" not in catalyst.execution(read).executedPlan().toString()


def test_places_are_those_of_delta(table: DeltaTable) -> None:
    """Protects from deletion vectors that hide another row than the one that was merged."""
    snapshot = table.log.unsafeVolatileSnapshot()
    files = known_files(snapshot)
    assert files is not None
    stored = rows_of_files(table.spark, table.log, snapshot, files)
    usual = stored.select("*", F.col("_metadata.file_path").alias("f"), F.col("_metadata.row_index").alias("r"))
    placed = rows_with_places(table.spark, stored, files, "f", "r")
    assert placed.columns == usual.columns
    assert sorted(placed.collect()) == sorted(usual.collect())
    assert "row_index#" not in catalyst.execution(placed).executedPlan().toString().replace("internal_row_index", "")


def test_a_restriction_after_it_skips_nothing(table: DeltaTable) -> None:
    """Protects from a scan that loses its deletion vectors when a second key restricts it."""
    lowering, plan = Lowering(table.spark, {}), read_whole_files(Lowering(table.spark, {}), scan(table))
    key = next(a for a in catalyst.sequence(plan.output()) if str(a.name()) == "key")
    again = restrict_scans(lowering, plan, key, [("0", "10")], "int")
    assert rows(catalyst.frame(table.spark, again)) == expected(table)


def test_not_where_something_can_be_skipped(table: DeltaTable) -> None:
    """Protects from whole reads of files of which Spark could skip parts: below a condition, after other files."""
    lowering, whole = Lowering(table.spark, {}), scan(table)
    condition = catalyst.analysed_plan(catalyst.frame(table.spark, whole).where("key > 3"))
    assert read_whole_files(lowering, condition) is condition
    some = known_files(table.log.unsafeVolatileSnapshot())
    assert some is not None
    few = scan(table, some.take(2))
    assert read_whole(table.spark, few) is few
    untouched = catalyst.analysed_plan(table.at(0))
    assert read_whole(table.spark, untouched) is untouched  # no deletion vector


def test_not_where_spark_splits_files(spark: SparkSession) -> None:
    """Protects from one task that reads a file which several would."""
    with mock.patch.object(whole_files, "MANY_BYTES", 8 * MB):
        assert stay_whole(spark, [14 * MB] * 16)
        assert not stay_whole(spark, [])
        assert not stay_whole(spark, [14 * MB])
        assert not stay_whole(spark, [1 * MB] * 7)
        assert not stay_whole(spark, [200 * MB] * 16)


def test_changes_are_those_of_delta(table: DeltaTable) -> None:
    """The rows between two vectors, by both readers."""
    found = [file_difference(table, 2, 3).frame(["key", "part"], consolidate=False)]
    with mock.patch.object(whole_files, "MANY_BYTES", 1 << 40):
        found.append(file_difference(table, 2, 3).frame(["key", "part"], consolidate=False))
    plans = [catalyst.execution(frame).executedPlan().toString() for frame in found]
    assert ["_tmp_metadata_row_index" in plan for plan in plans] == [False, True]
    one, other = (sorted(tuple(row) for row in frame.collect()) for frame in found)
    assert one == other == [(k, k % 2, -1) for k in range(0, 600, 11) if k % 7 or k >= 500]


@night
def test_joins_of_large_tables(delta: DeltaSandbox) -> None:
    """Both sides change in all files, and both have deletion vectors."""
    delta.source("l", "k int, v int", [(k, k % 13) for k in range(200)])
    delta.source("r", "k int, w int", [(k % 50, k) for k in range(200)])
    views = [
        delta.view("select v, count(*) n, sum(w) s from l join r on l.k = r.k group by v", "one"),
        delta.view("select l.k, v, w from l left join r on l.k = r.k and l.v = r.w", "other"),
    ]
    delta.tune(prune_above_bytes=0)
    for view in views:
        checked(view)
    with mock.patch.object(whole_files, "apply_vectors", wraps=whole_files.apply_vectors) as built:
        for name, column in (("l", "v"), ("r", "w")):
            delta.sql(f"delete from {{{name}}} where k % 17 = 1")
            delta.insert(name, f"k int, {column} int", [(1, 5)])
        for view in views:
            checked(view)
    assert built.call_count >= 2


def test_only_scans_of_the_other_reader_are_told_apart(table: DeltaTable) -> None:
    usual = scan(table)
    (whole,) = catalyst.relations_read(read_whole(table.spark, usual))
    assert (is_read_whole(usual), is_read_whole(whole)) == (False, True)
