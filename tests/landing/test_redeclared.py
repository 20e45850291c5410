"""A source that is declared or read otherwise than it was is landed anew, and its views follow."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from deltafold.api import Files, Landing, View, Warehouse
from tests.crash.points import Killed, watched
from tests.night import night
from tests.sandbox import confirm

pytestmark = pytest.mark.usefixtures("in_memory")

COLUMNS: list[str] = ["id", "v", "day", "hour"]
QUERIES = {
    "by_day": "select day, sum(v) s, max(v) m, count(*) n from orders group by day",
    "bag": "select id, day, hour from orders where v > 1",
    "pairs": "select a.id, b.id other from orders a join orders b on a.day = b.day and a.hour < b.hour",
}
Row = tuple[int, int, str, int]
ROWS: list[Row] = [(i, i % 4, f"2024-05-0{i % 3 + 1}", i % 2) for i in range(12)]


class Moved:
    """Rows that are dropped by one column or another, the warehouse that lands them, and views of them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.by = spark, folder, "day"

    @property
    def warehouse(self) -> Warehouse:
        made = Warehouse(self.spark, self.folder / "warehouse")
        schema = "id int, v int, day date, hour int"
        made.source("orders", Files(str(self.folder / "drop"), "csv", schema, partition_by=self.by or None))
        return made

    def put(self, by: str, rows: list[Row]) -> None:
        """All rows, by this column alone."""
        self.by = by
        shutil.rmtree(self.folder / "drop", ignore_errors=True)
        for row in rows:
            told: dict[str, object] = dict(zip(COLUMNS, row, strict=True))
            file = self.folder / "drop" / (f"{by}={told.pop(by)}" if by else "") / "a.csv"
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                file.write_text(",".join(told) + "\n")
            file.write_text(file.read_text() + ",".join(map(str, told.values())) + "\n")

    def confirm(self, rows: list[Row]) -> None:
        """The landed table has these rows and is partitioned as declared."""
        table = self.warehouse.tables()["orders"]
        version = table.version()
        assert version is not None
        assert table.metadata(version).partition_columns == ((self.by,) if self.by else ())
        found = table.at(version).selectExpr("id", "v", "string(day)", "hour").collect()
        assert sorted(tuple(row) for row in found) == sorted(rows)

    def view(self, name: str) -> View:
        return self.warehouse.view(name, QUERIES[name])


@pytest.fixture
def moved(spark: SparkSession, tmp_path: Path) -> Moved:
    return Moved(spark, tmp_path)


def test_another_partition_column(moved: Moved) -> None:
    """Protects from a source that can never be landed again, and from views that miss or double what moved.

    Some rows change with the move; `bag` sleeps through the first moves, and takes all in at once, in parts.
    """
    moved.put("day", ROWS)
    moved.warehouse.land("orders")
    for name in QUERIES:
        moved.view(name).refresh()
    for number, by in enumerate(("hour", "", "day")):
        rows = [(100 + number, 3, "2024-05-09", 7), *ROWS[number:]]
        moved.put(by, rows)
        named = {"hour": ["1"], "": None, "day": ["2024-05-09"]}[by]
        done = moved.warehouse.land("orders", named)
        assert (done.rows, done.removed) == (len(rows), ())
        moved.confirm(rows)
        assert moved.warehouse.land("orders").landed == ()
        for name in QUERIES:
            if name != "bag" or by == "day":
                moved.view(name).refresh(chunk=600 if name == "bag" else None)
                confirm(moved.view(name))
    assert {report.epoch for report in moved.view("bag").history()} >= {2, 3}


@night
def test_another_partition_column_whose_landing_is_killed(moved: Moved) -> None:
    """Protects from a crash between the two ways to partition."""
    moved.put("day", ROWS)
    moved.warehouse.land("orders")
    for number in range(6):
        moved.put(("hour", "day")[number % 2], ROWS[number:])
        with watched(number) as run, pytest.raises(Killed):
            moved.warehouse.land("orders")
        assert len(run.passed) == number + 1
        moved.warehouse.land("orders")
        moved.confirm(ROWS[number:])


class Told:
    """Times of day that are dropped as texts, and the warehouse that lands them."""

    def __init__(self, spark: SparkSession, folder: Path, schema: str, form: str = "csv") -> None:
        self.spark, self.folder, self.schema, self.form = spark, folder, schema, form

    def put(self, key: str, time: str) -> None:
        file = self.folder / "drop" / f"day={key}" / f"a.{self.form}"
        file.parent.mkdir(parents=True, exist_ok=True)
        if self.form == "parquet":
            parquet.write_table(pa.table({"t": pa.array([time])}), file)
        else:
            file.write_text(f"t\n{time}\n" if self.form == "csv" else f'{{"t":{time}}}\n')

    @property
    def warehouse(self) -> Warehouse:
        made = Warehouse(self.spark, self.folder / "warehouse")
        made.source("times", Files(str(self.folder / "drop"), self.form, self.schema, partition_by="day"))  # type: ignore[arg-type]
        return made

    def land(self, zone: str) -> Landing:
        with session(self.spark, zone):
            return self.warehouse.land("times")

    def rows(self, zone: str, column: str) -> Counter[str]:
        """A landed column as a session of this zone shows it."""
        with session(self.spark, zone):
            table = self.warehouse.tables()["times"]
            landed = table.at(table.version() or 0)
            return Counter(row[0] for row in landed.selectExpr(f"string({column})").collect())


@contextmanager
def session(spark: SparkSession, zone: str) -> Generator[None]:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize(
    ("form", "schema", "wrap"),
    [
        ("csv", "t timestamp, day int", "{}"),
        ("json", "t timestamp, day int", '"{}"'),
        ("json", "t struct<at: array<timestamp>>, day int", '{{"at":["{}"]}}'),
        ("csv", "t variant, day int", "{}"),
    ],
)
def test_another_time_zone(spark: SparkSession, tmp_path: Path, form: str, schema: str, wrap: str) -> None:
    """Protects from instants of two time zones in one table."""
    drop, zone = Told(spark, tmp_path, schema, form), "Asia/Tokyo"
    for key in ("1", "2"):
        drop.put(key, wrap.format(f"2024-05-0{key} 10:00:00"))
    drop.land("UTC")
    drop.put("1", wrap.format("2024-05-03 10:00:00"))
    assert drop.land(zone).landed == ("1", "2")
    shown = drop.rows(zone, "t")
    assert sum("2024-05-03 10:00:00" in text for text in shown) == 1
    assert sum("2024-05-02 10:00:00" in text for text in shown) == 1
    assert drop.land(zone).landed == ()


def test_another_time_zone_of_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from rows doubled, where a folder's name has become another instant."""
    drop = Told(spark, tmp_path, "t string, day timestamp", "parquet")
    for key in ("2024-05-01", "2024-05-02"):
        drop.put(key, key)
    drop.land("UTC")
    drop.put("2024-05-01", "other")
    drop.land("Asia/Tokyo")
    assert drop.rows("Asia/Tokyo", "day") == Counter(["2024-05-01 00:00:00", "2024-05-02 00:00:00"])
    assert drop.rows("UTC", "t") == Counter(["other", "2024-05-02"])


@pytest.mark.parametrize(("form", "type_"), [("csv", "timestamp_ntz"), ("csv", "date"), ("parquet", "string")])
def test_another_time_zone_that_nothing_depends_on(spark: SparkSession, tmp_path: Path, form: str, type_: str) -> None:
    """Protects from landing all anew for nothing."""
    drop = Told(spark, tmp_path, f"t {type_}, day int", form)
    drop.put("1", "2024-05-01")
    drop.land("UTC")
    assert drop.land("Asia/Tokyo").landed == ()


def test_a_manifest_that_knows_no_settings(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from landing all anew where an earlier release remembered less; from then on a change is seen."""
    drop = Told(spark, tmp_path, "t timestamp, day int")
    drop.put("1", "2024-05-01 10:00:00")
    drop.land("UTC")
    manifest = tmp_path / "warehouse/landed/times/manifest.json"
    content = json.loads(manifest.read_text())
    del content["settings"]
    manifest.write_text(json.dumps(content))
    assert drop.land("UTC").unchanged == ("1",)
    assert drop.land("Asia/Tokyo").landed == ("1",)
