"""Work with a Hive metastore in a process of its own, which fails if what it finds is not what it has to be.

python -m tests.lake.catalogs.metastore_child WORK FOLDER, with Spark's settings as JSON in the variable METASTORE.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import CatalogError, SourceError, StorageError
from deltafold.api import Delta, View, Warehouse
from deltafold.spark.session import start
from tests.properties.comparing import difference

QUERY = "select k, sum(v) s from t group by k"


def check(view: View) -> None:
    """The published name has the batch query's rows."""
    found = view.warehouse.spark.table(view.publish_as or "").collect()
    assert not difference(view.batch().collect(), found)


def open_view(spark: SparkSession, folder: Path, table: str, name: str = "v", publish_as: str | None = None) -> View:
    warehouse = Warehouse(spark, folder / "house")
    warehouse.source("t", Delta(table=table))
    return warehouse.view(name, QUERY, publish_as=publish_as)


def create(spark: SparkSession, folder: Path) -> None:
    """Create a table, as somebody else's job does."""
    spark.sql(f"create database shop location '{folder / 'shop'}'")
    spark.sql("create table shop.orders (k int, v int) using delta")
    spark.sql("insert into shop.orders values (1, 2), (1, 3), (2, 5)")


def read(spark: SparkSession, folder: Path) -> None:
    """Read what another process has published, and add to its source."""
    assert sorted(map(tuple, spark.table("shop.totals").collect())) == [(1, 5), (2, 5)]
    spark.sql("insert into shop.orders values (2, 2)")


def lose_tables(spark: SparkSession, folder: Path) -> None:
    """Rename, move, drop and replace a source."""
    create(spark, folder)
    sql, view = spark.sql, open_view(spark, folder, "shop.orders", publish_as="shop.totals")
    view.refresh()
    sql("alter table shop.orders rename to shop.renamed")
    with pytest.raises(SourceError, match=r"source t is gone: there is no table spark_catalog\.shop\.orders"):
        view.refresh()
    moved = open_view(spark, folder, "shop.renamed", publish_as="shop.totals")
    assert moved.refresh().verdict == "nothing to do", "the same table under another name"
    shutil.copytree(folder / "shop" / "renamed", folder / "moved")
    sql(f"create table shop.moved using delta location '{folder / 'moved'}'")
    sql("drop table shop.renamed")
    sql("alter table shop.moved rename to shop.renamed")
    sql("insert into shop.renamed values (9, 9)")
    assert moved.refresh().verdict == "applied", "the same table at another place"
    check(moved)
    sql("drop table shop.renamed")
    sql("create table shop.renamed (k int, v int) using delta")
    with pytest.raises(SourceError, match=r"was replaced .* its name now refers"):
        moved.refresh()
    moved.rebuild()
    check(moved)
    sql("drop table shop.renamed")
    sql("create table shop.renamed (k int, v int) using parquet")
    with pytest.raises(SourceError, match=r"not a Delta table \(its format is parquet\)"):
        moved.refresh()
    sql("drop database shop cascade")
    with pytest.raises(SourceError, match=r"there is no schema spark_catalog\.shop in the catalog"):
        moved.refresh()
    sql("create table t (k int, v int) using delta")
    with pytest.raises(CatalogError, match=r"database shop: it does not exist. Create it, or choose another"):
        open_view(spark, folder, "default.t", "w", "shop.w").refresh()


def live(spark: SparkSession, folder: Path) -> None:
    """Publish a name through the life of a view."""
    create(spark, folder)
    view = open_view(spark, folder, "shop.orders", publish_as="shop.totals")
    view.refresh()
    with pytest.raises(CatalogError, match=r"as the name is taken \(Answer of the Deltafold view v in"):
        other = Warehouse(spark, folder / "other")
        other.source("t", Delta(table="shop.orders"))
        other.view("v", QUERY, publish_as="SHOP.totals").refresh()
    works: list[Callable[[], object]] = [
        view.rebuild,
        view.refresh,
        lambda: view.rollback(1, 1),
        lambda: view.maintain(0),
    ]
    for number, work in enumerate(works):
        work()
        if number != 2:
            check(view)
        spark.sql(f"insert into shop.orders values ({number}, 4)")
    view.refresh()
    check(view)
    with pytest.raises(SourceError, match=r"it shows the answer of the view v\. Declare the view itself"):
        open_view(spark, folder, "shop.totals", "above").refresh()
    view.drop()
    assert not spark.catalog.tableExists("shop.totals")


def lack_permission(spark: SparkSession, folder: Path) -> None:
    """Publish in a database whose folder may not be written, where the metastore checks that."""
    create(spark, folder)
    (folder / "shop").chmod(0o555)
    view = open_view(spark, folder, "shop.orders", publish_as="shop.totals")
    for _ in range(2):
        with pytest.raises(CatalogError) as caught:
            view.refresh()
        message = str(caught.value)
        assert message.startswith("view v: it is refreshed to epoch 1, but the SQL view shop.totals could not be"), (
            message
        )
        assert "this user may not do that (" in message and "Exception" not in message, message
        assert message.endswith("Let this user create, replace and drop views in shop, then refresh again."), message
    assert len(view.history()) == 1
    (folder / "shop").chmod(0o755)
    view.refresh()
    check(view)


def lack_files(spark: SparkSession, folder: Path) -> None:
    """Read a table of which this user may not read the folder, its log or its files."""
    create(spark, folder)
    view, table = open_view(spark, folder, "shop.orders"), folder / "shop" / "orders"
    view.refresh()
    spark.sql("insert into shop.orders values (2, 2)")
    for hidden, named in (
        ([table], f"{table}/_delta_log"),
        ([table / "_delta_log"], str(table)),
        (list(table.glob("*.parquet")), f"{table}/part-"),
    ):
        with unreadable(hidden), pytest.raises(StorageError) as caught:
            view.refresh()
        check_denied(caught.value, named)
    with unreadable([table]):
        assert view.count() == view.answer().count() == 2
        assert "permission denied" in view.status().problems["t"]
    lack_folders(spark, folder, table)
    view.refresh()
    assert view.verify().ok


def lack_folders(spark: SparkSession, folder: Path, table: Path) -> None:
    """Read a table of which this user may not read a partition, and a view of which it may not read the journal."""
    spark.sql("create table shop.days (k int, v int) using delta partitioned by (v)")
    spark.sql("insert into shop.days values (1, 1), (2, 2)")
    view, day = open_view(spark, folder, "shop.days", "days"), table.with_name("days") / "v=2"
    with unreadable([day]), pytest.raises(StorageError) as caught:
        view.refresh()
    check_denied(caught.value, str(day))
    view.refresh()
    for hidden in (view.folder, view.folder / "journal"):
        for work in (view.refresh, view.answer, view.status, view.history):
            with unreadable([Path(str(hidden))]), pytest.raises(StorageError) as caught:
                work()
            check_denied(caught.value, str(view.folder))


def check_denied(error: Exception, named: str) -> None:
    assert str(error).startswith(named) and "permission denied. Let this user read" in str(error), str(error)


@contextmanager
def unreadable(places: list[Path]) -> Generator[None]:
    """Take all rights from some files or folders within the block."""
    modes = [each.stat().st_mode for each in places]
    for each in places:
        each.chmod(0)
    try:
        yield
    finally:
        for each, mode in zip(places, modes, strict=True):
            each.chmod(mode)


def wait(spark: SparkSession, folder: Path) -> None:
    """Open the metastore's database, and keep it until the parent ends this process."""
    spark.catalog.listDatabases()
    print("opened", flush=True)
    time.sleep(600)


def main(work: str, folder: str) -> None:
    settings = json.loads(os.environ["METASTORE"])
    spark = start("metastore", master="local[2]", memory="1g", brief=True, settings=settings)
    works = (create, read, lose_tables, live, lack_permission, lack_files, wait)
    next(each for each in works if each.__name__ == work)(spark, Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
