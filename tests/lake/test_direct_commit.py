"""A commit through a transaction of our own is what Delta's writer makes, which gets what it cannot do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.lake import delta_table
from deltafold.lake.delta_table import DeltaTable
from deltafold.lake.log.delta_log import open_log
from deltafold.lake.log.direct_commit import ALL, DirectCommit, write_directly
from deltafold.lake.protocol import Mark
from deltafold.spark import catalyst
from deltafold.spark.catalyst import JavaError
from deltafold.spark.job_stats import Measure
from tests.night import night
from tests.sandbox import DeltaSandbox

SCHEMA = "__bucket int, k int, v string"


def mark(epoch: int) -> Mark:
    return Mark("a", epoch, json.dumps({"epoch": epoch}))


def rows(delta: DeltaSandbox, *values: tuple[Any, ...]) -> DataFrame:
    return delta.spark.createDataFrame([*values], SCHEMA).coalesce(1)


def made(delta: DeltaSandbox, name: str = "t", **options: str) -> DeltaTable:
    """A table with one row, as the first epoch wrote it."""
    if options:
        rows(delta).write.format("delta").partitionBy("__bucket").options(**options).save(delta.path(name))
    table = DeltaTable(delta.spark, delta.path(name))
    table.append(rows(delta, (0, 1, "a")), mark(1), "__bucket")
    return table


def life(delta: DeltaSandbox, name: str) -> list[tuple[Any, ...]]:
    """Every write of a table, and what it shows after each: also to somebody who never saw it before."""
    table, shown = made(delta, name), list[tuple[Any, ...]]()
    writes: tuple[Callable[[], object], ...] = (
        lambda: table.append(rows(delta, (0, 2, None), (0, 2, None)), mark(2), "__bucket"),
        lambda: table.touch(mark(3)),
        lambda: table.overwrite(rows(delta, (0, 3, "c")), mark(4), "__bucket"),
        lambda: table.overwrite(rows(delta, (0, 9, "z")), mark(4), "__bucket"),  # this epoch is there already
        lambda: table.overwrite(rows(delta), mark(5), "__bucket"),
        lambda: table.append(rows(delta, (0, 4, "d")), mark(6), "__bucket"),
    )
    written = [(write(), table.version() or 0, table.epoch("a")) for write in writes]
    catalyst.sql(delta.spark).delta.DeltaLog.clearCache()
    commits = {row["version"]: row for row in delta.spark.sql(f"describe history delta.`{table.path}`").collect()}
    versions = sorted({version for _, version, _ in written})
    bags = read_versions(table.scan, versions)
    assert bags == read_versions(table.at, versions)
    for direct, version, epoch in written:
        last = commits[version]
        counted = {name: last["operationMetrics"].get(name) for name in ("numFiles", "numOutputRows")}
        shown.append((direct, version, bags[version], epoch, last["operation"], last["userMetadata"], counted))
    return shown


def read_versions(read: Callable[[int], DataFrame], versions: list[int]) -> dict[int, Counter[tuple[Any, ...]]]:
    """Return the rows of each version, by one query."""
    bags = {version: Counter[tuple[Any, ...]]() for version in versions}
    frames = [read(version).withColumn("version", F.lit(version)) for version in versions]
    for *values, version in reduce(DataFrame.union, frames).collect():
        bags[version][tuple(values)] += 1
    return bags


def test_it_shows_what_the_writer_shows(delta: DeltaSandbox) -> None:
    """Protects from a commit that another reader of Delta reads differently."""
    direct = life(delta, "direct")
    with mock.patch.object(delta_table, "write_directly", return_value=None):
        ordinary = life(delta, "ordinary")
    assert [each[0] for each in direct] == [True] * 6 and not any(each[0] for each in ordinary)
    untouched = 1  # its metrics: the writer counts the file of no rows
    for number, (mine, theirs) in enumerate(zip(direct, ordinary, strict=True)):
        assert mine[1:6] == theirs[1:6]
        assert number == untouched or mine[6]["numOutputRows"] == theirs[6]["numOutputRows"]


@night
def test_replaced_partitions_show_what_the_writer_shows(delta: DeltaSandbox) -> None:
    """Protects from a landing that removes another partition's files, or leaves some of its own."""
    columns = "day date, v int"

    def days(*values: tuple[str | None, int]) -> DataFrame:
        return delta.spark.createDataFrame([*values], "day string, v int").selectExpr("CAST(day AS DATE) day", "v")

    def land(name: str) -> list[tuple[object, Counter[tuple[Any, ...]]]]:
        table, shown = DeltaTable(delta.spark, delta.path(name)), list[tuple[object, Counter[tuple[Any, ...]]]]()
        first = days(("2024-01-01", 1), ("2024-01-02", 2), (None, 3))
        for frame, condition in (
            (first, ALL),
            (days(("2024-01-01", 4), ("2024-01-01", 5)), "`day` IN (CAST('2024-1-1' AS date))"),
            (days((None, 6)), "`day` IN (CAST('2024-01-02' AS date)) OR `day` IS NULL"),
            (days(), "`day` IN (CAST('2024-01-01' AS date))"),
        ):
            written = table.replace_where(frame, condition, "{}", "day")
            catalyst.sql(delta.spark).delta.DeltaLog.clearCache()
            version = table.version()
            assert version is not None
            shown.append((written, Counter(tuple(map(str, row)) for row in table.scan(version).collect())))
        assert table.schema().simpleString() == delta.spark.createDataFrame([], columns).schema.simpleString()
        return shown

    direct = land("direct")
    with mock.patch.object(delta_table, "write_directly", return_value=None):
        assert direct == land("ordinary")
    assert [written for written, _ in direct] == [3, 2, 1, 0]


@night
def test_a_landing_takes_one_job(delta: DeltaSandbox) -> None:
    """Protects from jobs of a landing that replay the log or count what was written."""
    table = DeltaTable(delta.spark, delta.path("t"))
    table.replace_where(rows(delta, (0, 1, "a"), (1, 2, "b")), ALL, "{}", "__bucket")
    measure = Measure(delta.spark)
    with measure.all("landing"):
        assert table.replace_where(rows(delta, (1, 3, "c")), "`__bucket` IN (1)", "{}", "__bucket") == 1
    assert measure.cost.jobs == 1


@pytest.mark.parametrize("options", [{"delta.columnMapping.mode": "name"}, {"delta.enableChangeDataFeed": "true"}])
def test_features_of_the_table(delta: DeltaSandbox, options: dict[str, str]) -> None:
    """Protects from files without the physical names of columns, and from a change feed that misses a commit."""
    table = made(delta, **options)
    assert table.overwrite(rows(delta, (0, 5, "e")), mark(2), "__bucket")
    version = table.version()
    assert version is not None
    assert [tuple(row) for row in table.scan(version).collect()] == [(0, 5, "e")]
    if "delta.enableChangeDataFeed" in options:
        reader = delta.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version)
        feed = reader.load(table.path).select("k", "_change_type")
        assert Counter(tuple(row) for row in feed.collect()) == Counter([(1, "delete"), (5, "insert")])


def test_deleted_rows_stay_deleted(delta: DeltaSandbox) -> None:
    """Protects from removed files that keep a deletion vector apart."""
    table = made(delta)
    table.append(rows(delta, (0, 2, "b"), (0, 3, "c")), mark(2), "__bucket")
    delta.spark.sql(f"delete from delta.`{table.path}` where k = 2")
    assert table.overwrite(rows(delta, (0, 4, "d")), mark(3), "__bucket")
    assert [row["k"] for row in delta.spark.read.format("delta").load(table.path).collect()] == [4]


@night
def test_what_it_leaves_to_the_writer(delta: DeltaSandbox) -> None:
    """Protects from a commit that goes by a log which does not tell enough."""
    absent = DeltaTable(delta.spark, delta.path("absent"))
    assert write_directly(absent, rows(delta), mark(1), "__bucket") is None
    table = made(delta)
    other = rows(delta, (0, 1, "a")).withColumn("more", F.lit(1))
    assert write_directly(table, other, mark(2), "__bucket", ALL) is None
    assert write_directly(table, rows(delta), mark(2), "k") is None
    for checksum in Path(table.path).glob("_delta_log/*.crc"):
        checksum.unlink()
    catalyst.sql(delta.spark).delta.DeltaLog.clearCache()
    assert write_directly(table, rows(delta, (0, 2, "b")), mark(2), "__bucket", ALL) is None
    assert not table.overwrite(rows(delta, (0, 2, "b")), mark(2), "__bucket")  # and the table writes it nevertheless
    assert [row["k"] for row in delta.spark.read.format("delta").load(table.path).collect()] == [2]


def test_a_constraint_of_the_table_is_kept(delta: DeltaSandbox) -> None:
    """Protects from rows that the table's owner has forbidden."""
    table = made(delta)
    delta.spark.sql(f"alter table delta.`{table.path}` add constraint small check (k < 10)")
    with pytest.raises(JavaError, match=r"(?i)check constraint"):
        table.overwrite(rows(delta, (0, 11, "x")), mark(2), "__bucket")
    assert [row["k"] for row in delta.spark.read.format("delta").load(table.path).collect()] == [1]


@night
def test_two_processes_at_one_epoch(delta: DeltaSandbox) -> None:
    """Protects from two commits of one mark where both began before either had ended."""
    table = made(delta)
    begun = [
        DirectCommit.begin(delta.spark, table.path, open_log(delta.spark, table.path, "t"), mark(2)) for _ in range(2)
    ]
    first, second = (each for each in begun if each is not None)
    first.finish(first.write_files(rows(delta, (0, 2, "b"))), overwrites=False)
    with pytest.raises(JavaError, match=r"(?i)concurrent"):
        second.finish(second.write_files(rows(delta, (0, 2, "b"))), overwrites=False)
    assert sorted(row["k"] for row in delta.spark.read.format("delta").load(table.path).collect()) == [1, 2]


def test_a_small_change_takes_two_jobs(delta: DeltaSandbox) -> None:
    """Protects from jobs that come back: one for the change, one for the state."""
    delta.source("t", "k int, v int", [(1, 1), (2, 5)])
    view = delta.view("select k, sum(v) s, count(*) n from t group by k")
    view.refresh()
    for _ in range(2):
        delta.insert("t", "k int, v int", [(2, 7), (3, 1)])
        with mock.patch.object(delta_table, "WHOLE_BYTES", 1 << 20):
            report = view.refresh()
        assert (report.jobs, report.paths) == (2, {"state_1": "rewrite"})
    assert view.verify().ok
