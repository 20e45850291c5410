"""Event time that is closed: what is landed there stays, and what comes too late is refused or quarantined."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.api import Expire, Files, Landing, Warehouse
from deltafold.cli import rendering
from deltafold.lake.delta_table import DELTA
from deltafold.lake.protocol import Lake
from tests.lake.memory.table import MemoryLake

OLD, NEW = "2024-05-01", "2024-06-30"


class Drop:
    """A folder of CSV files by day, whose event time closes after 30 days."""

    def __init__(self, spark: SparkSession, folder: Path, lake: Lake | None = None, **options: Any) -> None:
        self.spark, self.folder, self.lake = spark, folder, lake or MemoryLake()
        self.options: dict[str, Any] = {"expire": Expire("day", "30 days"), "partition_by": "day", **options}

    @property
    def warehouse(self) -> Warehouse:
        made = Warehouse(self.spark, self.folder / "warehouse", lake=self.lake)
        schema = "id INT, at TIMESTAMP, day DATE" if self.options["partition_by"] else "id INT, at TIMESTAMP"
        made.source("t", Files(str(self.folder / "drop"), "csv", schema, **self.options))
        return made

    def put(self, day: str, *ids: object, file: str = "a.csv") -> Path:
        path = self.folder / "drop" / (f"day={day}" if self.options["partition_by"] else "") / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("id,at\n" + "".join(f"{id_},{day} 12:00:00\n" for id_ in ids))
        return path

    def land(self, *rows: tuple[int, str]) -> Landing:
        """Land, and check the rows of the table."""
        done = self.warehouse.land("t")
        table = self.warehouse.tables()["t"]
        version = table.version()
        assert version is not None
        assert sorted((row["id"], str(row["at"])[:10]) for row in table.at(version).collect()) == sorted(rows)
        return done


def test_late_rows_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The first landing closes nothing; then a late row stops the landing, and open days are corrected as ever."""
    drop = Drop(spark, tmp_path)
    path, new = drop.put(OLD, 1, 2), drop.put(NEW, 3)
    assert drop.land((1, OLD), (2, OLD), (3, NEW)).late == 0
    drop.put(OLD, 1, 2, 2, 5)
    new.write_text("id,at\n4,2024-06-30 12:00:00\n")
    with pytest.raises(SourceError) as error:
        drop.warehouse.land("t")
    said = str(error.value)
    assert f"2 of its rows are late, the first one in {path}: its day is before 2024-05-31, 30 days before the" in said
    assert '"id":2' in said and '"id"' not in error.value.logged
    drop.put(OLD, 2, 1)
    done = drop.land((1, OLD), (2, OLD), (4, NEW))
    assert (done.landed, done.late, done.kept) == ((OLD, NEW), 0, 0)


def test_late_rows_are_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    """With the reason, beside malformed ones; a correction takes them out again."""
    drop = Drop(spark, tmp_path, malformed="quarantine")
    drop.put(OLD, 1, 1)
    drop.put(NEW, 3)
    drop.land((1, OLD), (1, OLD), (3, NEW))
    path = drop.put(OLD, 1, 1, 1, 7, "x")
    done = drop.land((1, OLD), (1, OLD), (3, NEW))
    assert (done.late, done.kept, done.quarantined) == (2, 0, {OLD: 3})
    assert "2 late rows left out, 1 malformed row left out" in rendering.render_landing(done)
    rows = [
        (row["row"][:7], row["reason"].startswith("its day is before"))
        for row in drop.warehouse.quarantine("t").collect()
    ]
    assert sorted(rows) == [("x,2024-", False), ('{"id":1', True), ('{"id":7', True)]
    assert {row["file"] for row in drop.warehouse.quarantine("t").collect()} == {str(path)}
    drop.put(OLD, 1)
    done = drop.land((1, OLD), (1, OLD), (3, NEW))
    assert (done.late, done.kept, done.quarantined) == (0, 1, {})


def test_landed_rows_stay_without_their_files(spark: SparkSession, tmp_path: Path) -> None:
    """Old files may be deleted; also where everything is landed again."""
    drop = Drop(spark, tmp_path)
    path, other = drop.put(OLD, 1, 2), drop.put(NEW, 3)
    drop.put("2024-07-01", 4)
    drop.land((1, OLD), (2, OLD), (3, NEW), (4, "2024-07-01"))
    path.unlink()
    other.unlink()
    done = drop.land((1, OLD), (2, OLD), (4, "2024-07-01"))
    assert (done.removed, done.kept) == ((OLD, NEW), 2)
    assert "2 closed rows kept" in rendering.render_landing(done)
    (tmp_path / "warehouse" / "landed" / "t" / "manifest.json").unlink()
    assert drop.land((1, OLD), (2, OLD), (4, "2024-07-01")).kept == 2


def test_on_delta(spark: SparkSession, tmp_path: Path) -> None:
    """A commit that replaces the rows that it reads."""
    drop = Drop(spark, tmp_path, DELTA)
    path = drop.put(OLD, 1)
    drop.put(NEW, 3)
    drop.land((1, OLD), (3, NEW))
    path.unlink()
    drop.put(NEW, 4)
    assert drop.land((1, OLD), (4, NEW)).kept == 1


def test_a_timestamp_without_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """The horizon lies within a file."""
    drop = Drop(spark, tmp_path, partition_by=None, expire=Expire("at", "12 hours"))
    path = drop.put("2024-05-01", 1)
    drop.land((1, "2024-05-01"))
    path.write_text("id,at\n1,2024-05-01 12:00:00\n2,2024-05-01 00:00:00\n3,\n4,2024-05-03 00:00:00\n")
    drop.warehouse.land("t")
    path.write_text("id,at\n2,2024-05-01 00:00:00\n4,2024-05-03 00:00:00\n5,2024-05-02 11:59:59\n")
    with pytest.raises(SourceError, match=r"1 of its rows is late, in .*its at is before 2024-05-02 12:00:00"):
        drop.warehouse.land("t")


def test_late_rows_of_a_format_without_quarantine(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from advice that the declaration refuses."""
    (tmp_path / "drop").mkdir()
    warehouse = Warehouse(spark, tmp_path / "warehouse", lake=MemoryLake())
    expire = Expire("at", "1 day")
    warehouse.source("t", Files(str(tmp_path / "drop"), "parquet", "at TIMESTAMP", expire=expire))
    path = tmp_path / "drop" / "a.parquet"
    for days in (["2024-05-09"], ["2024-05-01", "2024-05-09"]):
        parquet.write_table(pa.table({"at": pa.array([datetime.fromisoformat(day) for day in days])}), path)
        if len(days) == 1:
            warehouse.land("t")
    with pytest.raises(SourceError, match=r"Correct the file, or declare a longer `expire`, and land again\."):
        warehouse.land("t")


def test_another_schema_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A landed row of closed time may be in no file any more."""
    drop = Drop(spark, tmp_path)
    drop.put(OLD, 1)
    drop.land((1, OLD))
    changed = Warehouse(spark, tmp_path / "warehouse", lake=drop.lake)
    changed.source("t", Files(str(tmp_path / "drop"), "csv", "id BIGINT, at TIMESTAMP, day DATE", **drop.options))
    with pytest.raises(SourceError, match="the schema or the partition column changed"):
        changed.replay("t")


@pytest.mark.parametrize("column", ["id", "gone"])
def test_no_event_time(spark: SparkSession, tmp_path: Path, column: str) -> None:
    drop = Drop(spark, tmp_path, expire=Expire(column, "1 day"))
    drop.put(OLD, 1)
    with pytest.raises(SourceError, match=f"`expire` needs a DATE or TIMESTAMP of the schema, not {column}"):
        drop.warehouse.land("t")


@pytest.mark.parametrize("after", ["soon", "0 days", "1 month", "-1 day", "1.5 hours"])
def test_durations(after: str) -> None:
    with pytest.raises(SourceError, match="not a duration"):
        Expire("at", after)
