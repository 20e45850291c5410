"""The landed table equals the input files, whatever happens to partitions, in whatever order."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.api import Files, Warehouse
from deltafold.lake.delta_table import DeltaTable
from deltafold.landing.folder import UNPARTITIONED
from tests.crash.points import Killed, watched
from tests.night import night

HOSTILE = [
    "a b", "it's", "back\\slash", "\\'", "50%", "%27", "%2527", "%C3%A9", "x=y", "São", 'quo"te', "[1]", "{a}", "*",
    "?", "a,b", "a:b", "a;b", "`tick`", "$d", "_hidden", ".dot", "q#h", "new\nline", "-1", "true", "NULL", "null",
    "x" * 200, "'); DROP TABLE t; --", "%_", "日本", "😀", "~t", "a%2Fb", " lead", "__HIVE_DEFAULT_PARTITION__",
]  # fmt: skip


class Drop:
    """A folder of input CSV files, and the warehouse that lands them."""

    def __init__(
        self, spark: SparkSession, folder: Path, by: str | None = "day", type_: str = "string", mount: str = ""
    ) -> None:
        self.spark, self.folder, self.by, self.type = spark, folder / "drop", by, type_
        self.root = folder / "warehouse"
        self.folder.mkdir()
        self.address = f"{mount}/drop" if mount else str(self.folder)

    @property
    def warehouse(self) -> Warehouse:
        made = Warehouse(self.spark, self.root)
        schema = "id int, s string" + (f", {self.by} {self.type}" if self.by else "")
        made.source("orders", Files(self.address, "csv", schema, partition_by=self.by))
        return made

    def put(self, key: str, *ids: int, file: str = "a.csv") -> Path:
        path = self.folder / (f"{self.by}={key}" if self.by else "") / file
        path.parent.mkdir(exist_ok=True)
        path.write_text("id,s\n" + "".join(f"{id_},x\n" for id_ in ids))
        return path

    def rows(self) -> Counter[tuple[object, ...]]:
        return Counter(tuple(row) for row in self.landed().drop("s").collect())

    def landed(self) -> DataFrame:
        table = self.warehouse.tables()["orders"]
        return table.at(table.version() or 0)


@pytest.fixture
def here(spark: SparkSession, tmp_path: Path) -> Drop:
    return Drop(spark, tmp_path)


@pytest.fixture(params=["here", pytest.param("store", marks=night)])
def drop(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, mount: str) -> Drop:
    """A folder on this machine; by night also the same at a URI."""
    if request.param == "here":
        return Drop(spark, tmp_path)
    return Drop(spark, tmp_path / "mounted", mount=mount)


def test_partitions_come_change_go_and_come_late(drop: Drop) -> None:
    """Protects from rows doubled or lost by a correction, a removal or a late arrival, and from needless commits."""
    drop.put("3", 1, 2)
    first = drop.warehouse.land("orders")
    assert (first.landed, first.version, first.rows) == (("3",), 0, 2)
    again = drop.warehouse.land("orders")
    assert (again.landed, again.unchanged, again.version, again.rows) == ((), ("3",), 0, 0)
    drop.put("3", 1, 5, 5)
    drop.put("1", 7)
    both = drop.warehouse.land("orders")
    assert (both.landed, both.rows) == (("1", "3"), 4)
    assert drop.rows() == Counter({(1, "3"): 1, (5, "3"): 2, (7, "1"): 1})
    drop.put("1", 8, file="b.csv")
    shutil.rmtree(drop.folder / "day=3")
    last = drop.warehouse.land("orders")
    assert (last.landed, last.removed) == (("1",), ("3",))
    assert drop.rows() == Counter({(7, "1"): 1, (8, "1"): 1})
    shutil.rmtree(drop.folder / "day=1")
    assert drop.warehouse.land("orders").removed == ("1",)
    assert drop.rows() == Counter()


@night
def test_named_partitions_are_compared_by_content(drop: Drop) -> None:
    """Protects from a re-run that commits although nothing changed, and from one that trusts size and time."""
    path = drop.put("1", 1)
    drop.put("2", 2)
    drop.warehouse.land("orders", ["1"])
    assert drop.rows() == Counter({(1, "1"): 1})
    same = drop.warehouse.land("orders", ["1", "1"])
    assert (same.landed, same.unchanged, same.version) == ((), ("1",), 0)
    facts = path.stat()
    drop.put("1", 3)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert drop.warehouse.land("orders", ["1"]).landed == ("1",)
    os.utime(path)
    touched = drop.warehouse.land("orders")
    assert (touched.landed, touched.unchanged) == (("2",), ("1",))
    shutil.rmtree(drop.folder / "day=2")
    assert drop.warehouse.land("orders", ["1"]).removed == ()
    assert drop.warehouse.land("orders", ["2"]).removed == ("2",)
    with pytest.raises(SourceError, match=r"no partition '2'. Put its files at .*day=2"):
        drop.warehouse.land("orders", ["2"])
    with pytest.raises(SourceError, match=r"no partition '2' or 2 others, until '5'. Put files at .*day=2, or for"):
        drop.warehouse.land("orders", ["1", "2", "4", "5"])
    with pytest.raises(SourceError, match=r"Put its files at .*day=a%2F%25\.$"):
        drop.warehouse.land("orders", ["a/%"])
    assert drop.rows() == Counter({(3, "1"): 1})


def test_partitions_that_cannot_be(drop: Drop) -> None:
    """Protects from advice to put files into a folder that no landing would take."""
    warehouse = drop.warehouse
    warehouse.source("daily", Files(drop.address, "csv", "a INT, day DATE", partition_by="day"))
    warehouse.source("flat", Files(drop.address, "csv", "a INT"))
    with pytest.raises(SourceError, match=r"source daily: 'x' is not a partition, since day is a DATE. Name such"):
        warehouse.land("daily", ["x"])
    with pytest.raises(SourceError, match=r"Put its files at .*day=2024-01-02\.$"):
        warehouse.land("daily", ["2024-01-02"])
    with pytest.raises(SourceError, match=r"source flat: it declares no `partition_by`, so no 'x'. Land all of it"):
        warehouse.land("flat", ["x"])


def test_hostile_values_and_file_names(drop: Drop) -> None:
    """Protects from values taken for SQL, wildcards, escapes or hidden files, in the table and its corrections."""
    for number, key in enumerate(HOSTILE):
        drop.put(key, number, file="f [1]{2}*?#%20é.csv")
    decoded = {"%27": "'", "%2527": "%27", "%C3%A9": "é", "a%2Fb": "a/b"}
    keys = [decoded.get(key, key) for key in HOSTILE]
    assert set(drop.warehouse.land("orders").landed) == set(keys)
    null = {"__HIVE_DEFAULT_PARTITION__": None}
    expected = Counter((number, null.get(key, key)) for number, key in enumerate(keys))
    assert drop.rows() == expected
    for number, key in enumerate(HOSTILE):
        drop.put(key, number + 1000, file="f [1]{2}*?#%20é.csv")
    corrected = drop.warehouse.land("orders", keys)
    assert (set(corrected.landed), corrected.rows) == (set(keys), len(keys))
    assert drop.rows() == Counter((number + 1000, null.get(key, key)) for number, key in enumerate(keys))


@pytest.mark.usefixtures("in_memory")
@pytest.mark.parametrize(
    ("type_", "good", "bad", "twin"),
    [
        ("date", ["2013-01-01", "2013-12-31"], "2013-13-01", "2013-1-1"),
        ("int", ["7", "-1"], "x", "07"),
        ("timestamp", ["2013-01-01 10%3A00%3A00"], "soon", "2013-01-01 10%3A00"),
        ("boolean", ["true", "false"], "perhaps", "TRUE"),
        ("decimal(4,1)", ["1.5", "2.0"], "one", "1.50"),
    ],
)
def test_typed_partitions(
    spark: SparkSession, tmp_path: Path, type_: str, good: list[str], bad: str, twin: str
) -> None:
    """Protects from values that become NULL, and from two folders that replace each other's rows."""
    drop = Drop(spark, tmp_path, type_=type_)
    for number, key in enumerate([*good, "__HIVE_DEFAULT_PARTITION__"]):
        drop.put(key, number)
    assert drop.warehouse.land("orders").rows == len(good) + 1
    assert sum(key is None for _, key in drop.rows()) == 1
    drop.put(good[0], 10)
    drop.put("__HIVE_DEFAULT_PARTITION__", 11)
    assert drop.warehouse.land("orders").rows == 2
    assert {id_ for id_, _ in drop.rows()} == {10, 11, *range(1, len(good))}
    drop.put(bad, 99)
    with pytest.raises(SourceError, match=rf"day={bad} is not a partition: '{bad}' is not a"):
        drop.warehouse.land("orders")
    shutil.rmtree(drop.folder / f"day={bad}")
    drop.put(twin, 99)
    with pytest.raises(SourceError, match=r"are the same partition. Keep one"):
        drop.warehouse.land("orders")
    assert {id_ for id_, _ in drop.rows()} == {10, 11, *range(1, len(good))}


@night
def test_a_folder_without_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from file names taken for wildcards, and from files that are gone but whose rows stay."""
    drop = Drop(spark, tmp_path, by=None)
    with pytest.raises(SourceError, match=r"source \w+: no files yet in .*drop. Put some there"):
        drop.warehouse.land("orders")
    drop.put("", 1, file="a[1].csv")
    drop.put("", 2, file="a1.csv")
    drop.put("", 3, file="x=1 {a,b} *?.csv")
    drop.put("", file="empty.csv")
    (drop.folder / "nothing.csv").write_text("")
    assert drop.warehouse.land("orders").rows == 3
    (drop.folder / "a1.csv").unlink()
    assert drop.warehouse.land("orders").rows == 2
    assert drop.rows() == Counter({(1,): 1, (3,): 1})
    for file in drop.folder.iterdir():
        file.unlink()
    assert drop.warehouse.land("orders").removed == (UNPARTITIONED,)
    assert drop.rows() == Counter()


@pytest.mark.usefixtures("in_memory")
def test_csv_is_read_as_its_standard_says(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from quotes, commas and line breaks in values being read as Spark alone would."""
    drop = Drop(spark, tmp_path, by=None)
    values = ["plain", "a,b", 'say ""hi""', "two\nlines", "back\\slash", "ends\\", "é", " kept "]
    text = "\ufeffid,s\r\n" + "".join(f'{i},"{value}"\r\n' for i, value in enumerate(values)) + "\r\n8,\r\n"
    (drop.folder / "a.csv").write_bytes(text.encode())
    drop.warehouse.land("orders")
    rows = dict(drop.landed().collect())
    assert rows == {i: value.replace('""', '"') for i, value in enumerate(values)} | {8: None}


@pytest.mark.usefixtures("in_memory")
def test_what_the_manifest_does_not_say_is_landed_anew(drop: Drop) -> None:
    """Protects from rows that stay for ever because what landed them was forgotten, or was another declaration."""
    drop.put("1", 1)
    drop.put("2", 2)
    drop.warehouse.land("orders")
    shutil.rmtree(drop.folder / "day=1")
    manifest = drop.root / "landed" / "orders" / "manifest.json"
    manifest.write_text("{")
    assert drop.warehouse.land("orders").landed == ("2",)
    assert drop.rows() == Counter({(2, "2"): 1})
    other = Warehouse(drop.spark, drop.root)
    other.source(
        "orders",
        Files(drop.address, "csv", "id int, s string, day string", partition_by="day", options={"comment": "2"}),
    )
    assert other.land("orders").landed == ("2",)
    assert drop.rows() == Counter()
    third = Warehouse(drop.spark, drop.root)
    third.source("orders", Files(drop.address, "csv", "id bigint, s string, day string", partition_by="day"))
    with pytest.raises(SourceError, match="another schema is declared than its landed table has"):
        third.land("orders")


@night
def test_a_file_that_disappears_while_it_is_read(here: Drop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a partition landed in part because one of its files was taken away meanwhile."""
    here.put("1", 1)
    path = here.put("1", 2, file="b.csv")
    replace_where = DeltaTable.replace_where

    def taken_away(*args: object, **options: object) -> int:
        path.unlink()
        return replace_where(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "replace_where", taken_away)
    with pytest.raises(SourceError, match=r"b\.csv disappeared meanwhile. Land again"):
        here.warehouse.land("orders")
    monkeypatch.undo()
    assert here.warehouse.version("orders") is None
    assert here.warehouse.land("orders").rows == 1


def test_a_file_without_an_end_is_refused_before_it_is_read_to_its_end(here: Drop) -> None:
    """Protects from a landing that holds its lock for hours over a file that cost nothing to drop."""
    with here.put("1", 1).open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(SourceError, match=r"a\.csv, line 3, begins a row of more than 64,000,000 characters"):
        here.warehouse.land("orders")


@pytest.mark.usefixtures("in_memory")
def test_a_landing_that_is_killed_is_landed_again(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from rows lost or doubled by a crash before or after each write of a landing.

    Also where files go back to what they were before the crash, which was landed once, but may be no longer.
    """
    drop = Drop(spark, tmp_path)
    drop.put("1", 1)
    drop.put("2", 2)
    drop.warehouse.land("orders")
    for number in range(6):
        shutil.copytree(drop.folder, tmp_path / f"before {number}")
        drop.put("1", 10 + number)
        drop.put(f"{number + 2}", 20 + number)
        shutil.rmtree(drop.folder / f"day={number + 1}", ignore_errors=number > 0)
        with watched(number) as run, pytest.raises(Killed):
            drop.warehouse.land("orders")
        assert len(run.passed) == number + 1
        if number % 2:
            shutil.rmtree(drop.folder)
            shutil.copytree(tmp_path / f"before {number}", drop.folder)
        drop.warehouse.land("orders")
        expected = {(int(p.read_text().split()[1][:-2]), p.parent.name[4:]) for p in drop.folder.rglob("*.csv")}
        assert drop.rows() == Counter(expected)
        assert drop.warehouse.land("orders").landed == ()
