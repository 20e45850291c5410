"""A file that only got another deletion vector is not read whole twice: only the rows between the two vectors count."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from deltafold.lake.version_diff import file_difference
from deltafold.spark import catalyst
from deltafold.spark.job_stats import Measure
from tests.night import night
from tests.sandbox import DeltaSandbox, checked

ROWS = [(k, "a" if k % 2 else "b") for k in range(1000)]
SCHEMA = "k int, kind string"


def change(delta: DeltaSandbox, before: int) -> list[tuple[Any, ...]]:
    table = delta.warehouse.tables()["t"]
    version = table.version()
    assert version is not None
    found = file_difference(table, before, version).frame(["k", "kind"], consolidate=False)
    return sorted(tuple(row) for row in found.collect())


def test_only_deleted_rows_are_in_the_change(delta: DeltaSandbox) -> None:
    delta.source("t", SCHEMA, ROWS)
    delta.sql("delete from {t} where k in (3, 4)")
    measure = Measure(delta.spark)
    with measure.all("the change"):
        assert change(delta, 0) == [(3, "a", -1), (4, "b", -1)]
    assert measure.cost.rows_read < 1.5 * len(ROWS)  # the file is decoded once


def test_update_is_a_deletion_and_an_insertion(delta: DeltaSandbox) -> None:
    delta.source("t", SCHEMA, ROWS)
    delta.sql("delete from {t} where k = 3")
    delta.sql("update {t} set kind = 'c' where k = 5")
    assert change(delta, 1) == [(5, "a", -1), (5, "c", 1)]


def test_files_without_vectors_are_not_searched_for_them(delta: DeltaSandbox) -> None:
    """Protects from scans whose files Delta lists twice, and from deleted rows in those that have vectors."""
    delta.source("t", SCHEMA, ROWS)
    delta.sql("delete from {t} where k = 3")
    table = delta.warehouse.tables()["t"]
    changed = file_difference(table, 0, 1)
    assert not may_have_vectors(table.at(0))
    assert may_have_vectors(table.at(1)) and table.at(1).count() == len(ROWS) - 1
    assert not may_have_vectors(table.rows_of(0, changed.removed))
    rest = table.rows_of(1, changed.added)
    assert may_have_vectors(rest) and rest.count() == len(ROWS) - 1


def may_have_vectors(frame: DataFrame) -> bool:
    """Whether Delta's planner takes the table that a scan reads for one that can have deletion vectors."""
    index, delta = catalyst.analysed_plan(frame).relation().location(), catalyst.sql(frame.sparkSession).delta
    vectors = catalyst.module(delta.commands, "DeletionVectorUtils")
    return bool(vectors.deletionVectorsReadable(index.protocol(), index.metadata()))


@night
def test_rows_that_come_back(delta: DeltaSandbox) -> None:
    """RESTORE takes a deletion vector away: the rows of the vector come again."""
    delta.source("t", SCHEMA, ROWS)
    view = delta.view("select kind, count(*) n, sum(k) s from t group by kind")
    checked(view)
    delta.sql("delete from {t} where k in (3, 4)")
    checked(view)
    delta.sql("delete from {t} where k in (5, 6)")
    delta.sql("restore {t} to version as of 0")
    assert change(delta, 1) == [(3, "a", 1), (4, "b", 1)]
    checked(view)


@night
def test_partitioned_and_renamed(delta: DeltaSandbox) -> None:
    """The rows between two vectors are read under the names and partitions of the table as it is now."""
    delta.spark.createDataFrame(ROWS, SCHEMA).write.format("delta").partitionBy("kind").options(
        **{"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}
    ).save(delta.path("t"))
    delta.declare("t")
    delta.sql("alter table {t} add column note string")
    delta.sql("delete from {t} where k = 3")
    assert change(delta, 0) == [(3, "a", -1)]
    delta.sql("alter table {t} rename column note to remark")
    delta.sql("delete from {t} where k in (4, 5)")
    assert change(delta, 2) == [(4, "b", -1), (5, "a", -1)]
