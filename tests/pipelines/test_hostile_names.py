"""Names that mean something to SQL, shells, URIs or wildcards, through the whole life of a pipeline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.sqltext import quoted
from deltafold.api import Files, Tuning, Warehouse
from tests.night import night
from tests.sandbox import confirm

FOLDERS = [
    "`a`; DROP TABLE t -- '\" %20 50% *[]{}?#:=&$~ é日\\", "plain", "line\nbreak", "_hidden", ".dot", "..two", "%2F",
    "x" * 200,
]  # fmt: skip
COLUMNS = ["k`; --'\" %20 *[]{}?#:=. é日\\", "x" * 150]
PARTITION = "d`y'; --"


def drop(folder: Path, value: str, *rows: tuple[int, int]) -> None:
    """A JSON file of rows whose first column has one of the names."""
    place = folder / "drop" / f"{PARTITION}={value}"
    place.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({column: k, "v": v}) for column in COLUMNS for k, v in rows)
    (place / "a [1]*`';%20.json").write_text("\n".join(lines))


@night
@pytest.mark.parametrize("number", range(len(FOLDERS)))
def test_a_life_in_a_folder(spark: SparkSession, tmp_path: Path, number: int) -> None:
    """Protects from paths and names that are taken for something else somewhere between landing and clone."""
    folder, column = tmp_path / FOLDERS[number], COLUMNS[number % 2]
    drop(folder, "x'; --", (1, 1), (2, 2))
    drop(folder, "y", (1, 5), (3, 3))
    warehouse = Warehouse(
        spark, folder / "warehouse", Tuning(rewrite_files=0, rewrite_touched_bytes=0, small_files=1)
    )  # a MERGE
    schema = f"{quoted(column)} INT, v INT, {quoted(PARTITION)} STRING"
    warehouse.source("s", Files(str(folder / "drop"), "json", schema, partition_by=PARTITION))
    warehouse.land("s")
    view = warehouse.view("v", f"SELECT {quoted(column)}, sum(v), count(*) FROM s GROUP BY {quoted(column)}")
    view.refresh()
    drop(folder, "x'; --", (1, 2), (9, 9))
    warehouse.land("s")
    assert view.refresh().paths == {"state_1": "merge"}
    done = view.maintain(0)
    assert {name: table.work for name, table in done.tables.items()} == {"state_1": "sorted", "landed/s": "compacted"}
    assert view.status().current
    confirm(view)
    branch = view.branch("b")
    drop(folder, "y", (3, 4))
    warehouse.land("s")
    assert branch.refresh().verdict == view.refresh().verdict == "applied"
    confirm(branch)
    view.rollback(2)
    view.refresh()
    confirm(view)
