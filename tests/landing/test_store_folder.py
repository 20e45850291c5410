"""Input files in a store are landed like those of this machine: listed at once, copied where they changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.api import Files, Warehouse
from deltafold.lake.remote import objects
from deltafold.landing import input_folder
from deltafold.landing.input_folder import StoreFolder
from tests.crash.points import Killed
from tests.night import night

SCHEMA = "id int, s string, day string"


class Shop:
    """Files of orders at a URI, and a local warehouse that lands them."""

    def __init__(self, spark: SparkSession, folder: Path, mount: str) -> None:
        self.spark, self.root, self.drop, self.address = spark, folder / "warehouse", folder / "mounted", mount
        self.opened = self.open()

    def open(self, **options: Any) -> Warehouse:
        made = Warehouse(self.spark, self.root)
        made.source("orders", Files(self.address, "csv", SCHEMA, partition_by="day", **options))
        return made

    def put(self, name: str, text: str) -> Path:
        path = self.drop / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"id,s\n{text}\n")
        return path

    def rows(self) -> list[tuple[object, ...]]:
        table = self.spark.read.format("delta").load(str(self.root / "sources" / "orders"))
        return sorted(tuple(row) for row in table.collect())


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path, mount: str) -> Shop:
    return Shop(spark, tmp_path, mount)


def test_only_changed_files_are_copied(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a landing that copies a whole store every night, and from corrections that it misses."""
    copied = list[str]()

    def copy(address: str, target: Path) -> None:
        copied.append(address.removeprefix(f"{shop.address}/"))
        objects.copy_to_local(address, target)

    monkeypatch.setattr(input_folder, "copy_to_local", copy)
    shop.put("day=1/a.csv", "1,a")
    shop.put("day=2/b.csv", "2,b")
    shop.put("day=2/c%41 {path=x; isDirectory=false; length=1;.csv", "3,c")
    shop.put("day=2/_note.csv", "9,x")
    shop.put("_temporary/d.csv", "9,x")
    assert shop.opened.land("orders").landed == ("1", "2")
    assert (len(copied), shop.rows()) == (3, [(1, "a", "1"), (2, "b", "2"), (3, "c", "2")])
    assert (shop.opened.land("orders").unchanged, len(copied)) == (("1", "2"), 3)
    os.utime(shop.put("day=1/a.csv", "5,e"), (1, 1))
    assert shop.opened.land("orders").landed == ("1",)
    assert (copied[3:], shop.rows()[-1]) == (["day=1/a.csv"], (5, "e", "1"))
    assert not (shop.root / "landed" / "orders" / "incoming").exists()


@night
def test_errors_name_the_store(shop: Shop) -> None:
    """Protects from sentences about a copy that nobody has made, and that is gone when they are read."""
    shop.put("day=1/a.csv", "1,a")
    shop.put("day=1/b.csv", "x,a")
    with pytest.raises(SourceError, match=rf"{shop.address}/day=1/b.csv, line 2, does not fit"):
        shop.opened.land("orders")
    shop.open(malformed="quarantine").land("orders")
    assert [row["file"] for row in shop.opened.quarantine("orders").collect()] == [f"{shop.address}/day=1/b.csv"]
    assert shop.open(malformed="quarantine").replay("orders").landed == ("1",)  # which has not changed
    shop.put("day=2/bad.csv", '1,"open')
    with pytest.raises(SourceError, match=rf"not landed: {shop.address}/day=2/bad.csv, line 2,"):
        shop.opened.land("orders")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("stray.csv", "{}/stray.csv is not a partition, and would not be read"),
        ("day=1", "{}/day=1 is not a partition, and would not be read"),
        ("other=1/a.csv", "{}/other=1 is not a partition"),
        ("day=/a.csv", "{}/day= has an empty value"),
        ("day=1/deep/a.csv", "{}/day=1/deep is a folder among data files"),
        ("day=1/a:b.csv", "{}/day=1/a:b.csv has a colon, which Spark cannot read. Rename it"),
        ("day=%C3%A9/a.csv", "are the same partition. Keep one"),
    ],
)
def test_files_that_no_reader_would_read(shop: Shop, name: str, fault: str) -> None:
    """Protects from files that are left out in silence."""
    path = shop.drop / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("id,s\n")
    shop.put("day=é/a.csv", "1,a")
    with pytest.raises(SourceError, match=fault.format(shop.address)):
        shop.opened.land("orders")


def test_a_folder_that_is_missing(shop: Shop) -> None:
    """Protects from taking a misspelt address for a folder whose files were all removed."""
    shop.put("day=1/a.csv", "1,a")
    shop.opened.land("orders")
    shop.address += "/nowhere"
    with pytest.raises(SourceError, match=rf"there is no file at {shop.address}. Put files there"):
        shop.open().land("orders")
    shop.address = f"{shop.address.removesuffix('/nowhere')}/day=1/a.csv"
    with pytest.raises(SourceError, match=rf"{shop.address} is a file. Declare the folder that it is in"):
        shop.open().land("orders")
    with pytest.raises(SourceError, match=r"the folder of input files s3://b/x: .*Write s3a: instead"):
        Files("s3://b/x", "csv", SCHEMA)


def test_copies_of_a_killed_landing_are_removed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from rows of files that are gone, and from a disk that fills with copies."""
    shop.put("day=1/a.csv", "1,a")
    left = shop.root / "landed" / "orders" / "incoming" / "day=1" / "left.csv"

    def kill(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(StoreFolder, "stage", kill)
        shop.opened.land("orders")
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text("id,s\n9,x\n")
    assert (shop.opened.land("orders").rows, left.exists()) == (1, False)


def test_what_a_landing_cannot_copy(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a full disk, and from workers that look for the copies on their own disks."""
    shop.put("day=1/a.csv", "1,a")
    with monkeypatch.context() as patched, pytest.raises(SourceError, match=r"day=1 have 9 bytes, and the disk .* 5 "):
        patched.setattr(input_folder, "disk_usage", lambda _: type("Usage", (), {"free": 5}))
        shop.opened.land("orders")
    monkeypatch.setattr(shop.spark.sparkContext, "master", "spark://host:7077")
    with pytest.raises(SourceError, match=r"workers of spark://host:7077 do not see them. Land them with a local"):
        shop.opened.land("orders")
