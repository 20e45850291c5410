"""A source that quarantines lands all rows that fit, and the others stand beside it: file, line, row and reason."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.api import Files, Warehouse
from deltafold.landing.formats import FORMAT_DEFAULTS
from deltafold.landing.malformed import BARE_QUOTE
from tests.crash.points import Killed, Stop, watched
from tests.landing.test_malformed import BAD_CSV, BAD_JSON, HEADER, SCHEMA
from tests.night import night

CSV_REASONS = {
    "no number": "one in id is not a valid INT",
    "no whole number": "1.5 in id is not a valid INT",
    "too big a number": "99999999999 in id is not a valid INT",
    "blanks around a number": " 1 in id is not a valid INT",
    "no date": "2013-13-45 in d is not a valid DATE",
    "another way to write dates": "31/12/2013 in d is not a valid DATE",
    "no time": "noon in t is not a valid TIMESTAMP",
    "no boolean": "yes in b is not a valid BOOLEAN",
    "too big a decimal": "12345.25 in m is not a valid DECIMAL(5,2)",
}
JSON_REASONS = {
    "text for a number": '"2" in id is not a valid INT',
    "a fraction for a whole number": "1.5 in id is not a valid INT",
    "too big a number": "99999999999 in id is not a valid INT",
    "no date": '"2013-13-45" in d is not a valid DATE',
}
Rows = Counter[tuple[object, ...]]


class Dropped:
    """A folder of input files, and the warehouse that lands them and quarantines what does not fit."""

    def __init__(self, spark: SparkSession, folder: Path, schema: str = "id int, v int", **declared: Any) -> None:
        self.spark, self.folder, self.schema = spark, folder, schema
        self.declared: dict[str, Any] = {"format": "csv", "malformed": "quarantine", "partition_by": "day"} | declared

    @property
    def warehouse(self) -> Warehouse:
        made = Warehouse(self.spark, self.folder / "warehouse")
        made.source("orders", Files(str(self.folder / "drop"), schema=self.whole_schema, **self.declared))
        return made

    def put(self, name: str, *rows: str, header: str = "id,v") -> None:
        """Rows after a header, or without one."""
        file = self.folder / "drop" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{row}\n" for row in ([header] if header else []) + list(rows)))

    def landed(self) -> Rows:
        table = self.warehouse.tables()["orders"]
        return counted(table.at(version).select(*self._columns)) if (version := table.version()) is not None else Rows()

    def fitting(self) -> Rows:
        """What Spark itself reads of the files where it may drop what does not fit."""
        options = {**FORMAT_DEFAULTS.get(self.declared["format"], {}), "mode": "DROPMALFORMED"}
        reader = self.spark.read.format(self.declared["format"]).schema(self.whole_schema).options(**options)
        return counted(reader.load(str(self.folder / "drop")).select(*self._columns))

    def quarantined(self) -> Rows:
        """Partition, file, line and row."""
        rows = self.warehouse.quarantine("orders").collect()
        return Rows((row.partition, Path(row.file).name, row.line, row.row) for row in rows)

    @property
    def whole_schema(self) -> str:
        """The schema with the partition column."""
        return self.schema + (", day int" if self.declared["partition_by"] else "")

    @property
    def _columns(self) -> list[str]:
        return [part.split()[0] for part in re.split(r", (?=\w+ \w)", self.whole_schema)]


def counted(frame: Any) -> Rows:
    return Rows(tuple(row) for row in frame.collect())


@pytest.mark.usefixtures("in_memory")
def test_bad_csv_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from good rows that go with bad ones, from lines that are told wrong, and from reasons of other rows."""
    drop = Dropped(spark, tmp_path, SCHEMA)
    cases = {name: case for name, case in BAD_CSV.items() if case[1] is not None and BARE_QUOTE not in case[2]}
    for name, (text, _, _) in cases.items():
        drop.put(f"day=1/{name}.csv", text[:-1], header="")
    again, bad = HEADER[:-1], "2,x,,,a,true,1"
    drop.put("day=2/twice [1]+%20é.csv", f'1,1,,,"x\n{bad}\n",true,1', bad, "", again, header=again)
    report = drop.warehouse.land("orders")
    assert drop.landed() == drop.fitting()
    assert (report.quarantined, report.rows) == ({"1": len(cases), "2": 2}, drop.landed().total())
    rows = drop.warehouse.quarantine("orders").collect()
    found = {(Path(row.file).stem, row.line): row.reason for row in rows}
    other = "it has another number of values than the declared schema has columns"
    expected = {(name, line): CSV_REASONS.get(name, other) for name, (_, line, _) in cases.items()}
    # a line within quotes says the same as the bad row, so nobody knows which of the two it is
    expected |= {
        ("twice [1]+%20é", None): "x in v is not a valid DOUBLE",
        ("twice [1]+%20é", 7): "id in id is not a valid INT",
    }
    assert found == expected


def test_bad_json_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from the same for JSON, where Spark cuts a file into blocks that are read apart."""
    drop = Dropped(spark, tmp_path, "id int, v double, d date", format="json", partition_by=None)
    text = "".join(text for text, _, _ in BAD_JSON.values()) * 2 + '{"id":7}\n'
    drop.put("a.json", text[:-1], header="")
    blocks = "spark.sql.files.maxPartitionBytes"
    spark.conf.set(blocks, "64b")
    try:
        drop.warehouse.land("orders")
    finally:
        spark.conf.unset(blocks)
    assert drop.landed() == drop.fitting()
    lines = text.splitlines()
    bad = [number for number, line in enumerate(lines, 1) if line not in ('{"id":1}', '{"id":7}')]
    assert drop.quarantined() == Rows(("*", "a.json", number, lines[number - 1]) for number in bad)
    reasons = {row.reason for row in drop.warehouse.quarantine("orders").collect()}
    assert reasons == {*JSON_REASONS.values(), "it is not a record"}
    drop.put("b.json", '[{"id":1},{"id":"x"}]', header="")
    with pytest.raises(SourceError, match=r"and a line with several rows is not quarantined, as in \S*drop/b\.json\. "):
        drop.warehouse.land("orders")
    assert len(drop.quarantined()) == len(bad)


@night
def test_a_partition_takes_its_quarantine_with_it(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from rows that stay in quarantine after their file was repaired, and from more than may be there."""
    drop = Dropped(spark, tmp_path, quarantine_limit=3)
    drop.put("day=1/a.csv", "1,1", "2,x", "3,y")
    drop.put("day=2/b.csv", "1,1", "x,2")
    assert drop.warehouse.land("orders").quarantined == {"1": 2, "2": 1}
    drop.put("day=3/c.csv", "1,1", "x,2")
    with pytest.raises(SourceError, match=r"c\.csv, line 3, .* x,2: .* more than the 3 rows that its"):
        drop.warehouse.land("orders")
    drop.put("day=1/a.csv", "1,1", "2,2", "3,y")
    repaired = drop.warehouse.land("orders")
    assert (repaired.landed, repaired.left_out, repaired.quarantined) == (("1", "3"), 2, {"1": 1, "2": 1, "3": 1})
    assert drop.landed() == drop.fitting()
    strict = Dropped(spark, tmp_path, malformed="fail").warehouse
    with pytest.raises(SourceError, match=r"was not landed: .* does not fit the declared schema"):
        strict.land("orders")
    shutil.rmtree(tmp_path / "drop" / "day=2")
    drop.put("day=1/a.csv", "1,1", "2,2", "3,3")
    drop.put("day=3/c.csv", "1,1", "2,2")
    assert strict.land("orders").quarantined == {}
    assert drop.landed() == drop.fitting()
    assert drop.quarantined() == Rows()


@pytest.mark.usefixtures("in_memory")
def test_a_replay_lands_what_fits_now(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from rows that were left out for ever, or doubled, once the schema was repaired."""
    drop = Dropped(spark, tmp_path)
    drop.put("day=1/a.csv", "1,1", "2,99999999999", "3,x")
    drop.put("day=2/b.csv", "4,4")

    def view() -> Any:
        return drop.warehouse.view("total", "select day, count(*) n, sum(v) s from orders group by day")

    drop.warehouse.land("orders")
    view().refresh()
    unrepaired = drop.warehouse.replay("orders")
    assert (unrepaired.landed, unrepaired.quarantined) == (("1",), {"1": 2})
    drop.schema = "id int, v bigint"
    with pytest.raises(SourceError, match=r"another schema is declared than its landed table has .* Replay it"):
        drop.warehouse.land("orders")
    replayed = drop.warehouse.replay("orders")
    assert (replayed.landed, replayed.quarantined) == (("1", "2"), {"1": 1})
    assert drop.landed() == drop.fitting()
    assert drop.quarantined() == Rows([("1", "a.csv", 4, "3,x")])
    view().refresh()  # a wider type of a summed column goes on
    assert view().verify().ok
    assert view().status().quarantined == {"orders": 1}
    assert drop.warehouse.land("orders").landed == ()
    assert view().maintain(0).tables["quarantine/orders"].removed > 0
    assert drop.quarantined().total() == 1


# of a landing that leaves rows out, and of one after which none is
POINTS: dict[tuple[str, ...], int] = {("1,1", "2,x"): 9, ("1,1", "2,2"): 8}


@pytest.mark.parametrize(
    ("rows", "reverted"), [(("1,1", "2,x"), False), pytest.param(("1,1", "2,2"), True, marks=night)]
)
def test_a_landing_that_is_killed(
    spark: SparkSession, tmp_path: Path, long: bool, rows: tuple[str, ...], reverted: bool
) -> None:
    """Protects from rows in both tables or in none, also where the files are back to what they were meanwhile."""
    drop, before = Dropped(spark, tmp_path), ("3,y", "3,3")
    between: list[Stop] = [("after DeltaTable.replace_where", 1)]  # one table is written, the other is not
    for stop in range(POINTS[rows]) if long else between:
        for after in (before, rows) if long else (before if reverted else rows,):
            drop.put("day=1/a.csv", *before)
            drop.warehouse.land("orders")
            drop.put("day=1/a.csv", *rows)
            with watched(stop) as run, pytest.raises(Killed):
                drop.warehouse.land("orders")
            assert len(run.passed) <= POINTS[rows]
            drop.put("day=1/a.csv", *after)
            drop.warehouse.land("orders")
            assert drop.landed() == drop.fitting()
            left_out = [(line, row) for line, row in enumerate(after, 2) if row[-1] in "xy"]
            assert drop.quarantined() == Rows(("1", "a.csv", *told) for told in left_out)


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ({"malformed": "drop"}, "malformed is `fail` or `quarantine`"),
        ({"format": "parquet"}, "rows of parquet files cannot be quarantined"),
        ({"format": "json", "options": {"multiLine": "TRUE"}}, "JSON over several lines is read whole"),
        ({"quarantine_limit": 0}, "invalid quarantine_limit 0"),
    ],
)
def test_what_cannot_be_quarantined(declared: dict[str, Any], says: str) -> None:
    """Protects from a quarantine that nothing would ever come to, and from rows that would be left out unseen."""
    told: dict[str, Any] = {"format": "csv", "schema": "id int", "malformed": "quarantine"} | declared
    with pytest.raises(SourceError, match=says):
        Files("drop", **told)
