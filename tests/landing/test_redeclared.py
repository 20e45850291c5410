"""A source that is declared or read otherwise than it was is landed anew, and its views follow."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from incremental.api import Files, View, Warehouse
from tests.crash.points import Killed, watched
from tests.examples.scene import confirm

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
        made.source("orders", Files(str(self.folder / "drop"), "csv", schema, self.by or None))
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
        assert table.partitioned_by(version) == ([self.by] if self.by else [])
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
                moved.view(name).refresh(chunk=4000 if name == "bag" else None)
                confirm(moved.view(name))
    assert {report.epoch for report in moved.view("bag").history()} >= {2, 3}


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
