"""The files of versions are found, compared, counted and looked for alike, by checksums, by commits, and in Spark."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from deltafold.lake.delta_table import DeltaTable
from deltafold.lake.files import File, Identity, as_added, commit_of, data_file, net_change
from deltafold.lake.log import file_lists
from deltafold.lake.log.file_lists import differing_by_commits, differing_by_join, differing_files
from deltafold.lake.snapshot import Snapshot
from tests.night import night

Files = dict[Identity, File]

ADD = {"path": "a", "partitionValues": {"p": None}, "size": 7, "dataChange": True, "stats": '{"numRecords":5}'}
SMALL_BYTES = 1 << 20
RESTORED = 4  # the version that RESTORE makes
VECTOR = {"storageType": "u", "pathOrInlineDv": "xy", "offset": 1, "sizeInBytes": 36, "cardinality": 2}


@contextmanager
def unlisted() -> Iterator[None]:
    """Take a small table for one whose checksums list no files."""
    with mock.patch.object(file_lists, "known_files", return_value=None):
        yield


def test_actions_are_read_as_delta_reads_them() -> None:
    """Protects from rows and deletion vectors that are counted in another way than Delta does."""
    file = data_file({**ADD, "deletionVector": VECTOR})
    assert (file.identity, file.rows, file.bytes) == (("a", "uxy@1"), 3, 7)
    assert data_file({**ADD, "deletionVector": {**VECTOR, "offset": None}}).identity == ("a", "uxy")
    assert data_file({**ADD, "stats": None}).rows is None
    again = data_file(as_added({**ADD, "deletionVector": VECTOR, "deletionTimestamp": 1}))
    assert (again.identity, again.rows) == (file.identity, file.rows)


def test_commits_that_do_not_say_enough() -> None:
    """A removed file without its size cannot be read, and files that are only described anew are no change."""
    bare = {"remove": {"path": "a", "dataChange": True}}
    described = {"add": {**ADD, "dataChange": False}}
    assert commit_of([bare], list) is None
    assert commit_of([described], list) is None
    assert commit_of([{"metaData": {"partitionColumns": ["q"]}}], lambda: ["p"]) is None
    moved = commit_of([{"remove": {**ADD, "dataChange": False}}, {"add": {**described["add"], "path": "b"}}], list)
    assert moved is not None and moved.compacts
    written = commit_of([{"commitInfo": {}}, {"add": {**ADD, "path": "c"}}, {"remove": {**ADD, "path": "b"}}], list)
    assert written is not None and not written.compacts and len(written.feed) == 2
    mixed = commit_of([{"add": {**ADD, "path": "c"}}, {"remove": {**ADD, "dataChange": False}}], list)
    assert mixed is not None and not mixed.compacts and not mixed.feed
    removed, added = net_change([moved, written])
    assert ([path for path, _ in removed], [path for path, _ in added]) == (["a"], ["c"])


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """Six versions with a NULL partition, deletion vectors, a compaction, a restored version and odd characters."""
    path = str(tmp_path_factory.mktemp("lists") / "a table+")
    rows = [(k, None if k % 3 == 0 else f"a+b %{k % 3}") for k in range(30)]
    spark.createDataFrame(rows, "k int, p string").coalesce(1).write.format("delta").partitionBy("p").option(
        "delta.enableDeletionVectors", "true"
    ).save(path)
    for statement in (
        f"insert into delta.`{path}` values (100, 'a+b %1')",
        f"delete from delta.`{path}` where k in (3, 4)",
        f"optimize delta.`{path}` where p = 'a+b %1'",
        f"restore delta.`{path}` to version as of 2",
        f"delete from delta.`{path}` where p is null",
    ):
        spark.sql(statement).collect()
    return DeltaTable(spark, path)


def shown(sides: tuple[list[File], list[File]] | None) -> list[list[tuple[object, ...]]]:
    assert sides is not None
    return [sorted((*file.identity, file.rows, file.bytes, str(values(file))) for file in side) for side in sides]


def without(files: Files, others: Files) -> list[File]:
    return [file for identity, file in files.items() if identity not in others]


def values(file: File) -> dict[str, str]:
    """The partition values of a file; Delta leaves NULL out where it removes one."""
    return {name: value for name, value in json.loads(file.action)["partitionValues"].items() if value is not None}


@night
def test_three_ways_to_compare_versions(table: DeltaTable) -> None:
    """Protects from files that one way finds and another does not, however they came; RESTORE writes no checksum."""
    spark, log, files = table.spark, table.log, [table.files(version) for version in range(6)]
    assert table.version() == 5
    for one, other in itertools.permutations(range(6), 2):
        old, new = table._snapshot_at(one), table._snapshot_at(other)
        expected = shown((without(files[one], files[other]), without(files[other], files[one])))
        by_commits = differing_by_commits(spark, log, old, new)
        assert by_commits is None if RESTORED in (one, other) else shown(by_commits) == expected, (one, other)
        if (one, other) in {(0, 5), (3, RESTORED)}:
            assert shown(differing_files(spark, log, old, new)) == expected, (one, other)
            with unlisted():
                assert shown(differing_by_join(spark, old, new)) == expected, (one, other)


def test_commits_that_do_not_account_for_the_sizes(table: DeltaTable) -> None:
    """Protects from a difference that is wrong because the log is: then the snapshots are compared."""
    old, new = table._snapshot_at(0), table._snapshot_at(1)
    with mock.patch.object(file_lists, "net_change", return_value=({}, {})):
        assert differing_by_commits(table.spark, table.log, old, new) is None
    with mock.patch.object(file_lists, "recorded_size", return_value=None):
        assert differing_by_commits(table.spark, table.log, old, new) is None


def test_a_large_table_is_counted_in_spark(table: DeltaTable) -> None:
    listed = sorted(map(repr, table.partitions(SMALL_BYTES))), table.rows(5), table.files(5)
    with unlisted():
        assert (sorted(map(repr, table.partitions(SMALL_BYTES))), table.rows(5), table.files(5)) == listed
    assert listed[1] == 20


def test_many_files_are_looked_for_in_listings(table: DeltaTable, tmp_path: Path) -> None:
    """Protects from a listing that takes a file for missing because of its name, or a missing one for present."""
    copy = DeltaTable(table.spark, shutil.copytree(table.path, str(tmp_path / "a copy+")))
    files = copy.files(2)
    with unlisted(), mock.patch.object(file_lists, "SINGLE_LOOKUPS", 0):
        assert Snapshot(copy, 2).is_readable
        assert copy.present(list(files.values()))
        (vector, *_) = Path(copy.path).rglob("deletion_vector*.bin")
        vector.rename(vector.with_suffix(".away"))
        assert not Snapshot(copy, 2).is_readable
        vector.with_suffix(".away").rename(vector)
        (path, _), *_ = sorted(files.keys() - copy.files(0).keys())
        next(Path(copy.path).rglob(Path(path).name)).unlink()
        assert not copy.present(list(files.values()))
