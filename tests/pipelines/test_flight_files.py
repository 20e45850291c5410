"""The demo's data: the flights of 2013 as one file per day."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from deltafold.demo import demo, flight_files
from deltafold.demo.flight_files import COLUMNS, Row
from deltafold.pipelines import picture


@pytest.fixture(scope="module")
def flights() -> dict[str, list[Row]]:
    return flight_files.days()


def test_all_flights_are_there(flights: dict[str, list[Row]]) -> None:
    assert len(flights) == 365
    assert next(iter(flights)) == "2013-01-01"
    assert sum(map(len, flights.values())) == 336_776
    departure = COLUMNS.index("dep_time")
    assert sum(row[departure] == "" for rows in flights.values() for row in rows) == 8_255


def test_days_are_dropped_as_partitions(flights: dict[str, list[Row]], tmp_path: Path) -> None:
    flight_files.drop(tmp_path, flights, ["2013-02-03", "2013-02-04"])
    flight_files.drop(tmp_path, {"2013-02-04": []}, ["2013-02-04"])
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert files == ["day=2013-02-03/flights.csv", "day=2013-02-04/flights.csv"]
    with (tmp_path / files[0]).open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert tuple(header) == COLUMNS
    assert [tuple(row) for row in rows] == flights["2013-02-03"]
    assert (tmp_path / files[1]).read_text().strip() == ",".join(COLUMNS)


def test_a_correction_changes_some_rows_and_removes_some(flights: dict[str, list[Row]]) -> None:
    before = flights["2013-03-05"]
    after = flight_files.correct_day(before)
    assert after == flight_files.correct_day(before)
    assert 0 < len(before) - len(after) < len(before) / 4
    assert 0 < len(set(after) - set(before)) < len(before) / 4


def test_the_rarest_destination(flights: dict[str, list[Row]]) -> None:
    """One of a single flight from which nothing departs: LGA has as few, and is an origin."""
    destination, days = demo.rarest(flights)
    assert destination == "LEX"
    assert {day: len(flights[day]) - len(rows) for day, rows in days.items()} == {"2013-11-24": 1}


def test_airlines(tmp_path: Path) -> None:
    flight_files.drop_airlines(tmp_path / "airlines")
    lines = (tmp_path / "airlines" / "airlines.csv").read_text().splitlines()
    assert lines[0] == "carrier,name"
    assert len(lines) == 17


def test_the_picture_is_a_png() -> None:
    drawn = picture.cost(["a", "b"], [10, 2], {"refresh": [3.0, 1.0], "full recompute": [2.5, 2.5]}, "flights")
    assert drawn.startswith(b"\x89PNG")
    assert picture.cost(["a"], [1], {"refresh": [1.0]}, "no recomputation").startswith(b"\x89PNG")
