"""A file with one bad row lands nothing, and the error says which file, which line and why."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.api import Files, Warehouse
from deltafold.landing.malformed import BARE_QUOTE

pytestmark = pytest.mark.usefixtures("in_memory")

SCHEMA = "id int, v double, d date, t timestamp, s string, b boolean, m decimal(5,2)"
HEADER, GOOD = "id,v,d,t,s,b,m\n", "1,1.5,2013-01-01,2013-01-01 10:00:00,a,true,1.25\n"

BAD_CSV = {
    "too few values": (HEADER + GOOD + "2,2.5\n", 3, "another number of values"),
    "too many values": (HEADER + GOOD + GOOD.strip() + ",more\n", 3, "another number of values"),
    "no number": (HEADER + GOOD + GOOD.replace("1,", "one,", 1), 3, '"one" is not of its column\'s type'),
    "no whole number": (HEADER + GOOD.replace("1,", "1.5,", 1), 2, '"1.5" is not of its column\'s type'),
    "too big a number": (HEADER + GOOD.replace("1,", "99999999999,", 1), 2, '"99999999999" is not of'),
    "blanks around a number": (HEADER + " " + GOOD, 2, '" 1" is not of its column\'s type'),
    "no date": (HEADER + GOOD.replace("2013-01-01,", "2013-13-45,"), 2, "MonthOfYear"),
    "another way to write dates": (HEADER + GOOD.replace("2013-01-01,", "31/12/2013,"), 2, "'31/12/2013'"),
    "no time": (HEADER + GOOD.replace("2013-01-01 10:00:00", "noon"), 2, "'noon' is not a valid TIMESTAMP"),
    "no boolean": (HEADER + GOOD.replace("true", "yes"), 2, '"yes" is not of its column\'s type'),
    "too big a decimal": (HEADER + GOOD.replace("1.25", "12345.25"), 2, "cannot be represented as Decimal"),
    "a quote after a backslash": (
        HEADER + GOOD + GOOD.replace(",a,", ',"a\\"",') * 2,
        3,
        f"{BARE_QUOTE}, or one is not closed; if a backslash",
    ),
    "a quote that is not closed": (
        HEADER + GOOD * 2 + GOOD.replace(",a,", ',"a\n,') + GOOD.replace(",a,", ',"b",') + GOOD,
        4,
        f"{BARE_QUOTE}, or one is not closed; if a backslash",
    ),
    "after a line break in quotes": (HEADER + GOOD.replace(",a,", ',"a\nb",') + "2\n", 4, "another number of values"),
    "another header": (HEADER.replace("v", "w") + GOOD, None, "its header has w where the declared schema has v"),
    "columns in another order": (HEADER.replace("id,v", "v,id") + GOOD, None, "its header has v where"),
    "a header too short": ("id,v\n1,2\n", None, "its header has 2 columns, the declared schema 7"),
    "no header": (GOOD, None, "its header has 1 where the declared schema has id"),
}
BAD_JSON = {
    "text for a number": ('{"id":1}\n{"id":"2"}\n', 2, '"2" in id is not a valid INT'),
    "a fraction for a whole number": ('{"id":1.5}\n', 1, "1.5 in id is not a valid INT"),
    "too big a number": ('{"id":99999999999}\n', 1, "out of range of int"),
    "no date": ('{"d":"2013-13-45"}\n', 1, "'2013-13-45' is not a valid DATE"),
    "cut off": ('{"id":1}\n{"id":2,"v"\n', 2, "Unexpected end-of-input"),
    "no JSON": ("id,v\n", 1, "Unrecognized token 'id'"),
    "no object": ("5\n", 1, ""),
    "over several lines": ('{\n "id":1\n}\n', 1, ""),
}


def warehouse(spark: SparkSession, folder: Path, format: Literal["csv", "json", "parquet"], schema: str) -> Warehouse:
    made = Warehouse(spark, folder / "warehouse")
    made.source("orders", Files(str(folder / "drop"), format, schema, partition_by="day"))
    return made


def drop(folder: Path, name: str, content: bytes) -> Path:
    file = folder / "drop" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def refused(wh: Warehouse, path: Path, line: int | None, reason: str) -> None:
    """Landing fails with one sentence that names file, line and reason, and lands nothing."""
    before = wh.version("orders")
    with pytest.raises(SourceError) as caught:
        wh.land("orders")
    said = str(caught.value)
    assert str(path) in said, said
    assert reason in said, said
    assert line is None or f", line {line}" in said, said
    assert "\n\tat " not in said
    assert not re.search(r"SQLSTATE|JVM|Exception|calling o\d", said), said
    assert wh.version("orders") == before


@pytest.mark.parametrize("case", BAD_CSV)
def test_a_bad_csv_row(spark: SparkSession, tmp_path: Path, case: str) -> None:
    """Protects from rows that become NULL, from half-landed partitions, and from errors nobody understands."""
    text, line, reason = BAD_CSV[case]
    wh = warehouse(spark, tmp_path, "csv", SCHEMA + ", day date")
    drop(tmp_path, "day=2013-01-01/good.csv", (HEADER + GOOD).encode())
    refused(wh, drop(tmp_path, "day=2013-01-02/bad [1].csv", text.encode()), line, reason)


@pytest.mark.parametrize("case", BAD_JSON)
def test_a_bad_json_row(spark: SparkSession, tmp_path: Path, case: str) -> None:
    """Protects from the same for JSON, where Spark's error does not show the row."""
    text, line, reason = BAD_JSON[case]
    wh = warehouse(spark, tmp_path, "json", "id int, v double, d date, day int")
    refused(wh, drop(tmp_path, "day=1/bad.json", text.encode()), line, reason)


def table(**columns: Any) -> pa.Table:
    return cast(Any, pa).table(columns)


def test_bad_parquet_files(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from columns that are NULL because a file lacks them, and from files that were not copied whole."""
    wh = warehouse(spark, tmp_path, "parquet", "id int, v double, day int")
    good = table(id=pa.array([1], pa.int32()), v=[1.5])
    path = drop(tmp_path, "day=1/a.parquet", b"")
    refused(wh, path, None, "is not a complete Parquet file")
    parquet.write_table(good, path)
    path.write_bytes(path.read_bytes()[:-9])
    refused(wh, path, None, "is not a complete Parquet file")
    parquet.write_table(table(id=pa.array([1], pa.int32())), path)
    refused(wh, path, None, "lacks the column v of the declared schema")
    parquet.write_table(table(id=[1], v=[1.5]), path)
    refused(wh, path, None, "its column id is INT64, in the declared schema int")
    parquet.write_table(table(V=[1.5], id=pa.array([1], pa.int32()), more=["x"]), path)
    assert wh.land("orders").rows == 1


def test_a_compressed_file_that_was_cut_off(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from landing the part of a file that has arrived."""
    wh = warehouse(spark, tmp_path, "csv", SCHEMA + ", day date")
    whole = gzip.compress((HEADER + GOOD * 1000).encode())
    path = drop(tmp_path, "day=2013-01-01/a.csv.gz", whole[:-40])
    refused(wh, path, None, "")
    path.write_bytes(whole)
    assert wh.land("orders").rows == 1000


@pytest.mark.parametrize("malformed", ["fail", "quarantine"])
def test_a_value_and_a_row_have_a_limit(spark: SparkSession, tmp_path: Path, malformed: Any) -> None:
    """Protects from a value that fills Spark's memory before anybody sees its end, and from a row of endless values."""
    wh = Warehouse(spark, tmp_path / "warehouse")
    declared = Files(
        str(tmp_path / "drop"), "csv", "id int, s string", options={"maxCharsPerColumn": "1000"}, malformed=malformed
    )
    wh.source("orders", declared)
    path = drop(tmp_path, "a.csv", f'id,s\n1,"{"a" * 1001}"\n'.encode())
    refused(wh, path, None, "a value in it has more than 1,000 characters, which Spark would read into memory at once")
    drop(tmp_path, "a.csv", b"id,s\n" + b"1," * 30_000)
    refused(wh, path, None, "a row in it has more values than `maxColumns`")


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("id int, day", "invalid schema"),
        ("id int, day banana", 'invalid schema .*: Unsupported data type "BANANA"'),
        ("", "declared without columns"),
        ("id int", "its partition column day is not a plain column"),
        ("id int, day array<int>", "its partition column day is not a plain column"),
    ],
)
def test_a_declaration_that_cannot_be_read_by(spark: SparkSession, tmp_path: Path, schema: str, says: str) -> None:
    """Protects from a schema that fails as a traceback."""
    drop(tmp_path, "day=1/a.csv", b"id\n1\n")
    wh = Warehouse(spark, tmp_path / "warehouse")
    wh.source("orders", Files(str(tmp_path / "drop"), "csv", schema, partition_by="day"))
    with pytest.raises(SourceError, match=says):
        wh.land("orders")
    if "schema" in says or "columns" in says:  # also where a query is read before anything is landed
        with pytest.raises(SourceError, match=says):
            wh.view("v", "select * from orders").explain()
