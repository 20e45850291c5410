"""A merge by deletion vectors is what Delta's MERGE makes, and it reads the table once."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from deltafold.algebra.program import BUCKET
from deltafold.lake.delta_table import DeltaTable
from deltafold.lake.key_interval import KeyInterval
from deltafold.lake.log import direct_commit, file_lists, whole_files
from deltafold.lake.log.direct_commit import DirectCommit
from deltafold.lake.log.direct_merge import DirectMerge
from deltafold.lake.protocol import Clause, Mark
from deltafold.spark import catalyst
from deltafold.spark.catalyst import JavaError
from deltafold.spark.job_stats import Measure
from tests.local_rows import local
from tests.night import night, sampled
from tests.sandbox import DeltaSandbox

KEY = "a.b `q`"  # in a table with name mapping, in a folder whose name must be encoded
SCHEMA = f"{BUCKET} int, `a.b ``q``` int, v bigint"
SAME = f"t.{BUCKET} = u.{BUCKET} AND t.`a.b ``q``` <=> u.`a.b ``q```"
NEAR = f"{BUCKET} IN (0, 1)"
CLAUSES = [
    Clause("delete", "t.v + u.v = 0", {}),
    Clause("update", None, {"v": "t.v + u.v"}),
    Clause("insert", "u.v > 0", {name: f"u.{name}" for name in (BUCKET, "`a.b ``q```", "v")}),
]
Values = dict[int | None, int]
KEYS = st.none() | st.integers(0, 9)
CHANGES = st.dictionaries(KEYS, st.integers(-3, 3), max_size=6)


def mark(epoch: int) -> Mark:
    return Mark("a", epoch, json.dumps({"epoch": epoch}))


def rows(spark: SparkSession, values: Values) -> DataFrame:
    return local(spark, [((key or 0) % 2, key, value) for key, value in values.items()], SCHEMA).coalesce(1)


def made(spark: SparkSession, path: Path, values: Values) -> DeltaTable:
    """The first version, in two buckets."""
    table = DeltaTable(spark, str(path))
    table.append(rows(spark, values), mark(1), BUCKET, name_mapping=True)
    return table


def merge(table: DeltaTable, change: Values, epoch: int) -> bool:
    return table.merge(rows(table.spark, change), SAME, CLAUSES, mark(epoch), NEAR)


def shown(table: DeltaTable) -> Counter[tuple[Any, ...]]:
    """What a reader sees who never saw the table before."""
    catalyst.sql(table.spark).delta.DeltaLog.clearCache()
    return Counter((row[KEY], row["v"]) for row in table.spark.read.format("delta").load(table.path).collect())


def merged(values: Values, change: Values) -> Values:
    """The oracle: the clauses over a dictionary."""
    sums = {key: values[key] + change.get(key, 0) for key in values}
    kept = {key: value for key, value in sums.items() if value or key not in change}
    return kept | {key: value for key, value in change.items() if key not in values and value > 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("merges") / "a b%20ü"


@settings(max_examples=max(2, settings().max_examples // 50))
@given(
    st.dictionaries(KEYS, st.integers(1, 3), max_size=10),
    st.lists(CHANGES, min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_random_merges(
    spark: SparkSession, folder: Path, values: Values, changes: list[Values], listed: bool, whole: bool
) -> None:
    """Protects from rows that are lost, doubled or kept, whatever earlier merges left in the files."""
    table = made(spark, folder / str(len([*folder.glob("*")])), values)
    for epoch, change in enumerate(changes, 2):
        with ExitStack() as patches:
            known = file_lists.known_files if listed else lambda _: None
            patches.enter_context(mock.patch.object(direct_commit, "known_files", known))
            patches.enter_context(mock.patch.object(whole_files, "MANY_BYTES", 0 if whole else 1 << 40))
            assert merge(table, change, epoch)
        values = merged(values, change)
        assert shown(table) == Counter(values.items())
        assert table.epoch("a") == epoch and table.rows(epoch - 1) == len(values)


def test_the_table_is_read_once(delta: DeltaSandbox) -> None:
    """Protects from scans that come back; Delta's MERGE reads a large state three times."""
    table = made(delta.spark, Path(delta.path("t")), dict.fromkeys(range(1000), 1))
    measure = Measure(delta.spark)
    with measure.all("merge"):
        assert merge(table, {1: 5, 2000: 7}, 2)
    assert measure.cost.jobs <= 6 and measure.cost.rows_read <= 1010
    assert table.size()[0] == 4  # two new files, of the buckets of the two rows


def test_a_measured_source_is_not_measured_again(delta: DeltaSandbox) -> None:
    """Protects from a job and a copy in the driver for each published change (D-226); rows beside the interval stay."""
    table = made(delta.spark, Path(delta.path("t")), {None: 1, **dict.fromkeys(range(1000), 1)})
    measure, interval = Measure(delta.spark), KeyInterval(column=KEY, type="int", least=1, greatest=3)
    with measure.all("merge"):
        change = rows(delta.spark, {1: 5, 3: -1, 2000: 7})
        assert table.merge(change, SAME, CLAUSES, mark(2), NEAR, interval=interval)
    assert measure.cost.jobs <= 5
    assert shown(table) == Counter({None: 1, **dict.fromkeys(range(1000), 1), 1: 6, 2000: 7}.items()) - Counter(
        {(3, 1): 1}
    )


SPREAD = 100_000  # keys of a table, of some pages each file
TYPED = {  # SQL of a key by its number, and numbers of keys: beside each other, and as far from each other as can be
    "int": ("CAST({} AS INT)", (-(2**31), 2**31 - 1)),
    "bigint": ("{}", (-(2**63), 2**63 - 1)),
    "date": ("date_from_unix_date(CAST({} - 50000 AS INT))", (-700_000, 3_000_000)),
    "timestamp": ("timestamp_micros(({} - 50000) * 3600000001)", (-17_000_000, 60_000_000)),
    "string": ("CAST({} AS STRING)", (-1, SPREAD)),
}


@night
@pytest.mark.parametrize("type_", sampled(TYPED, lambda type_: type_ == "timestamp"))
def test_only_pages_near_the_keys_are_read(delta: DeltaSandbox, type_: str) -> None:
    """Protects from a refresh whose cost grows with closed windows, and from rows that are skipped wrongly."""
    key, far = TYPED[type_]
    spark, table = delta.spark, DeltaTable(delta.spark, delta.path("t"))

    def source(numbers: DataFrame) -> DataFrame:
        named = numbers.selectExpr(f"0 AS {BUCKET}", f"{key.format('id')} AS k", "1L AS v")
        return named.repartition(1).sortWithinPartitions("k")

    table.append(source(spark.range(SPREAD)), mark(1), BUCKET, name_mapping=True)
    clauses = [
        Clause("update", None, {"v": "t.v + u.v"}),
        Clause("insert", None, {name: f"u.{name}" for name in (BUCKET, "k", "v")}),
    ]
    rows_of_all = spark.range(SPREAD)
    for epoch, numbers in enumerate((range(70_000, 70_010), (70_005, *far), range(0, SPREAD, 9_999)), 2):
        added = local(spark, [(number,) for number in numbers], "id bigint")
        change, rows_of_all = source(added), rows_of_all.union(added)
        measure = Measure(spark)
        with measure.all("merge"):
            assert table.merge(change, f"t.{BUCKET} IN (0) AND t.k <=> u.k", clauses, mark(epoch), f"{BUCKET} IN (0)")
        if epoch == 2:
            assert (measure.cost.rows_read < SPREAD / 2) == (type_ != "string")
    wanted = rows_of_all.groupBy("id").count().selectExpr(f"{key.format('id')} AS k", "count AS v")
    stored = spark.read.format("delta").load(table.path).select("k", "v")
    assert stored.exceptAll(wanted).isEmpty() and wanted.exceptAll(stored).isEmpty()


@night
def test_what_it_leaves_to_delta(delta: DeltaSandbox) -> None:
    """Protects from a commit that the table's readers cannot read, and from one that goes by too little."""
    for name, options in (("plain", {"delta.enableDeletionVectors": "false"}), ("uncounted", {}), ("many", {})):
        counted = "spark.databricks.delta.stats.collect"
        delta.spark.conf.set(counted, str(name != "uncounted").lower())
        writer = rows(delta.spark, {1: 1, 2: 2}).write.format("delta").partitionBy(BUCKET)
        columns = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
        writer.options(**columns | options).save(delta.path(name))
        delta.spark.conf.unset(counted)
        table = DeltaTable(delta.spark, delta.path(name))
        with mock.patch.object(direct_commit, "MOST_FILES", 1 if name == "many" else 1000):
            assert not merge(table, {1: 1, 2: -2, 3: 4}, 1)
        assert shown(table) == Counter([(1, 2), (3, 4)])


def test_two_rows_of_the_source_for_one_of_the_table(delta: DeltaSandbox) -> None:
    """Protects from a merge that takes one of them, or both: Delta refuses it."""
    table = made(delta.spark, Path(delta.path("t")), {1: 5})
    twice = rows(delta.spark, {1: 2}).union(rows(delta.spark, {1: 3}))
    with pytest.raises(JavaError, match="MULTIPLE_SOURCE_ROW_MATCHING"):
        table.merge(twice, SAME, CLAUSES, mark(2), NEAR)
    assert shown(table) == Counter([(1, 5)])


def test_the_change_feed_shows_it(delta: DeltaSandbox) -> None:
    """Protects from other readers of the table that miss a row."""
    table = made(delta.spark, Path(delta.path("t")), {1: 5, 3: 1, 5: 2})
    delta.spark.sql(f"alter table delta.`{table.path}` set tblproperties (delta.enableChangeDataFeed = true)")
    merge(table, {1: 2, 3: -1, 7: 4}, 2)
    reader = delta.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2)
    feed = Counter((row[KEY], row["v"], row["_change_type"]) for row in reader.load(table.path).collect())
    assert feed == Counter([(1, 5, "delete"), (1, 7, "insert"), (3, 1, "delete"), (7, 4, "insert")])


def test_a_constraint_of_the_table_is_kept(delta: DeltaSandbox) -> None:
    """Protects from rows that the table's owner has forbidden."""
    table = made(delta.spark, Path(delta.path("t")), {1: 5})
    delta.spark.sql(f"alter table delta.`{table.path}` add constraint small check (v < 10)")
    with pytest.raises(JavaError, match=r"(?i)check constraint"):
        merge(table, {1: 7}, 2)
    assert shown(table) == Counter([(1, 5)])


def test_a_row_that_somebody_deletes_meanwhile(delta: DeltaSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a row that comes back, as its file had no deletion vector when the merge began."""
    table, finish = made(delta.spark, Path(delta.path("t")), {1: 5, 3: 6}), DirectCommit.finish

    def beside(commit: DirectCommit, actions: list[Any], *, overwrites: bool) -> None:
        monkeypatch.undo()
        delta.spark.sql(f"delete from delta.`{table.path}` where v = 6")
        finish(commit, actions, overwrites=overwrites)

    monkeypatch.setattr(DirectCommit, "finish", beside)
    with pytest.raises(JavaError, match=r"(?i)concurrent"):
        merge(table, {1: 2}, 2)
    assert shown(table) == Counter([(1, 5)])


def test_vectors_without_a_commit_change_nothing(delta: DeltaSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a merge that dies after it wrote deletion vectors: the next attempt makes its own."""
    table, write = made(delta.spark, Path(delta.path("t")), {1: 5, 3: 6}), DirectMerge.write_vectors

    def died(merge: DirectMerge, matched: DataFrame) -> Any:
        write(merge, matched)
        raise KeyboardInterrupt

    monkeypatch.setattr(DirectMerge, "write_vectors", died)
    with pytest.raises(KeyboardInterrupt):
        merge(table, {1: 2}, 2)
    monkeypatch.undo()
    assert shown(table) == Counter([(1, 5), (3, 6)])
    assert merge(table, {1: 2}, 2) and shown(table) == Counter([(1, 7), (3, 6)])
