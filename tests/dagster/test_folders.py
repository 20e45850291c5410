"""What sensors and observations see of folders and of Delta logs, without Spark."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from deltafold.dagster.folders import changed_version, delta_version, partition_signatures
from deltafold.landing.folder import UNPARTITIONED
from tests.dagster import sales


def test_a_folder_that_is_not_there_has_no_partitions(tmp_path: Path) -> None:
    assert partition_signatures(str(tmp_path / "data"), "day") == {}
    assert partition_signatures(str(tmp_path / "data"), None) == {}


def test_partitions_are_the_subfolders_of_the_column(tmp_path: Path) -> None:
    pipeline = sales.declare(tmp_path)
    sales.drop(pipeline, "2013-01-02", [(2, "b", 5)])
    sales.drop(pipeline, "2013-01-01", [(1, "a", 5)])
    (pipeline.folder / "data" / "hour=7").mkdir()
    (pipeline.folder / "data" / "day=2013-01-03").mkdir()
    assert list(partition_signatures(str(pipeline.folder / "data"), "day")) == ["2013-01-01", "2013-01-02"]


def test_keys_are_unescaped(tmp_path: Path) -> None:
    (tmp_path / "shop=a%2Fb").mkdir()
    (tmp_path / "shop=a%2Fb" / "x.csv").write_text("x")
    assert list(partition_signatures(str(tmp_path), "shop")) == ["a/b"]


@pytest.mark.parametrize("act", ["add", "remove", "rewrite"])
def test_a_signature_changes_with_the_files(tmp_path: Path, act: str) -> None:
    (tmp_path / "one.csv").write_text("1")
    (tmp_path / "two.csv").write_text("2")
    before = partition_signatures(str(tmp_path), None)[UNPARTITIONED]
    assert partition_signatures(str(tmp_path), None)[UNPARTITIONED] == before
    match act:
        case "add":
            (tmp_path / "three.csv").write_text("3")
        case "remove":
            (tmp_path / "two.csv").unlink()
        case "rewrite":
            (tmp_path / "two.csv").write_text("7")
            os.utime(tmp_path / "two.csv", (1, 1))
    assert partition_signatures(str(tmp_path), None)[UNPARTITIONED] != before


def test_names_that_spark_skips_are_no_files(tmp_path: Path) -> None:
    for name in ("_SUCCESS", ".part-0.crc"):
        (tmp_path / name).write_text("x")
    assert partition_signatures(str(tmp_path), None) == {}


def test_the_version_of_a_delta_table_is_the_newest_name_in_its_log(tmp_path: Path) -> None:
    assert delta_version(str(tmp_path)) is None
    sales.commit(tmp_path, 9)
    sales.commit(tmp_path, 10)
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text("{}")
    (tmp_path / "_delta_log" / f"{11:020}.json.tmp").write_text("{}")
    assert delta_version(str(tmp_path)) == 10
    assert delta_version(tmp_path.as_uri()) == 10


def test_a_version_with_the_same_rows_is_no_change(tmp_path: Path) -> None:
    """Protects from a refresh after each OPTIMIZE; what the log does not show counts as a change."""
    log = tmp_path / "_delta_log"

    def commit(version: int, *actions: Mapping[str, Any]) -> int | None:
        log.mkdir(exist_ok=True)
        text = "\n".join(map(json.dumps, ({"commitInfo": {}}, *actions)))
        (log / f"{version:020}.json").write_text(text)
        return changed_version(str(tmp_path))

    assert changed_version(str(tmp_path)) is None
    compacted = [{kind: {"path": kind, "dataChange": False}} for kind in ("add", "remove")]
    assert [commit(0, {"metaData": {}}), commit(1, {"add": {"path": "a", "dataChange": True}})] == [0, 1]
    assert [commit(2, *compacted), commit(3, {"protocol": {}}), commit(4, {"remove": {"path": "a"}})] == [1, 1, 4]
    assert [commit(5, *compacted), commit(6, {"metaData": {}}), commit(7)] == [4, 6, 6]
    assert commit(8, {"commitInfo": {"operation": "SET TBLPROPERTIES"}}, {"metaData": {}}) == 6
    (log / f"{6:020}.json").unlink()
    assert changed_version(str(tmp_path)) == 8


def test_a_checkpoint_tells_the_version_when_the_log_was_cleaned(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{20:020}.checkpoint.parquet").write_text("")
    assert delta_version(str(tmp_path)) == 20


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryFileSystem]:
    """A file system that remembers what it listed, as that of S3 does, until it is told to forget."""
    listed, ls = dict[tuple[str, bool], Any](), MemoryFileSystem.ls

    def remember(self: MemoryFileSystem, path: str, detail: bool = True, **options: Any) -> Any:
        key = path.strip("/"), detail
        if key not in listed:
            listed[key] = ls(self, path, detail, **options)
        return listed[key]

    monkeypatch.setattr(MemoryFileSystem, "ls", remember)
    monkeypatch.setattr(MemoryFileSystem, "invalidate_cache", lambda *_: listed.clear())
    system = MemoryFileSystem()
    yield system
    system.rm("/lake", recursive=True)


def test_a_store_is_listed_anew_at_each_tick(store: MemoryFileSystem) -> None:
    """Protects from a sensor that sees what was there when its process started, and never anything else."""
    store.pipe({"/lake/drop/day=1/a.csv": b"1", "/lake/drop/day=2/_note": b"", "/lake/drop/stray.csv": b"1"})
    store.pipe("/lake/table/_delta_log/00000000000000000000.json", b"{}")
    before = partition_signatures("memory:///lake/drop", "day")
    assert (list(before), delta_version("memory:///lake/table")) == (["1"], 0)
    store.pipe({"/lake/drop/day=1/a.csv": b"12", "/lake/drop/day=a%2Fb/c.csv": b"1"})
    store.pipe("/lake/table/_delta_log/00000000000000000001.json", b"{}")
    after = partition_signatures("memory:///lake/drop", "day")
    assert (sorted(after), delta_version("memory:///lake/table")) == (["1", "a/b"], 1)
    assert after["1"] != before["1"]
    assert list(partition_signatures("memory:///lake/drop", None)) == [UNPARTITIONED]
    assert partition_signatures("memory:///lake/nowhere", None) == {}
