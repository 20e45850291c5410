"""Work on a store in a process of its own, one line of output for each thing that was done.

python -m tests.lake.remote.store_child WORK ROOT TIMES, with Spark's settings as JSON in the variable STORE. WORK:
`commit` adds a row to the table at ROOT/raced; `refresh` changes the source and refreshes the view; `look` refreshes
and verifies it; `count` prints the table's version and rows; `land` adds files to a stream and lands it; `clicks` lands
it, and prints the rows of its files and the landed ones; `drop` replaces the input files of a day and lands them;
`orders` lands them, and prints the rows that differ; `replace` replaces an object on the server's disk, in DISK, and
copies it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from deltafold.api import Delta, DeltafoldError, Files, Stream, View, Warehouse
from deltafold.lake.remote.objects import copy_to_local
from deltafold.spark.session import start

QUERY = "select shop, sum(amount) total, count(*) n from sales group by shop"


def open_view(spark: SparkSession, root: str) -> View:
    """Return the view; its source is made at the first use."""
    sales = f"{root}/sales"
    warehouse = Warehouse(spark, f"{root}/house")
    warehouse.source("sales", Delta(sales))
    if warehouse.version("sales") is None:
        rows = spark.range(4000).selectExpr("id", "id % 40 shop", "id % 97 amount")
        rows.write.format("delta").option("delta.enableDeletionVectors", "true").save(sales)
    return warehouse.view("totals", QUERY)


def change(spark: SparkSession, sales: str, number: int) -> None:
    """Delete rows of the source and add some; again where another process did the same in the same moment."""
    while True:
        try:
            spark.sql(f"delete from delta.`{sales}` where id % 53 = {number % 53}")
            break
        except Exception as error:
            if "DELTA_CONCURRENT" not in str(error):
                raise
    rows = spark.range(20).selectExpr(f"id + {number * 1000} id", "id % 7 shop", "3L amount")
    rows.write.format("delta").mode("append").save(sales)


def land(spark: SparkSession, root: str, adds: bool) -> None:
    """Land a stream of files, to which some are added before."""
    warehouse = Warehouse(spark, f"{root}/house")
    warehouse.source("clicks", Stream("json", "id bigint", path=f"{root}/in"))
    if adds:
        spark.range(100).repartition(3).write.mode("append").json(f"{root}/in")
        print("changed", flush=True)
    print(f"{warehouse.land('clicks').rows} rows landed", flush=True)
    if not adds:
        landed = spark.read.format("delta").load(warehouse.tables()["clicks"].path)
        print(f"{spark.read.json(f'{root}/in').count()} rows in files, {landed.count()} landed", flush=True)


def drop(spark: SparkSession, root: str, number: int | None) -> None:
    """Land input files of days, of which one is replaced before."""
    warehouse, schema, folder = Warehouse(spark, f"{root}/house"), "id bigint, day string", f"{root}/drop"
    warehouse.source("orders", Files(folder, "csv", schema, partition_by="day"))
    if number is not None:
        rows = spark.range(number, number + 50).selectExpr("id", f"{number % 4} day").repartition(2)
        replaced = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").option("header", "true")
        replaced.partitionBy("day").csv(folder)
        print("changed", flush=True)
    print(f"landed {warehouse.land('orders').landed}", flush=True)
    if number is None:
        files = spark.read.schema(schema).option("header", "true").csv(folder)
        landed = spark.read.format("delta").load(warehouse.tables()["orders"].path)
        differ = files.exceptAll(landed).count() + landed.exceptAll(files).count()
        print(f"{landed.count()} rows landed, {differ} differ", flush=True)


def replace(root: str, disk: Path, number: int) -> None:
    """Copy an object after it was replaced by one of the same size."""
    content, place = f"{number:05d}".encode(), disk / "replaced"
    place.unlink(missing_ok=True)
    place.write_bytes(content)
    os.setxattr(place, "user.etag", f'"{hashlib.md5(content).hexdigest()}"'.encode())
    copy_to_local(f"{root}/replaced", disk / "copy")
    print(f"old {(disk / 'copy').read_bytes() != content}", flush=True)


def main(work: str, root: str, times: str) -> None:
    spark = start("store", master="local[1]", memory="1g", brief=True, settings=json.loads(os.environ["STORE"]))
    print("ready", flush=True)
    for number in range(int(times)):
        try:
            if work == "commit":
                spark.range(1).write.format("delta").mode("append").save(f"{root}/raced")
                print("committed", flush=True)
                continue
            if work == "count":
                table = DeltaTable.forPath(spark, f"{root}/raced")
                print(f"{table.history().count()} versions, {table.toDF().count()} rows", flush=True)
                continue
            if work in ("land", "clicks"):
                land(spark, root, work == "land")
                continue
            if work == "replace":
                replace(root, Path(os.environ["DISK"]), number)
                continue
            if work in ("drop", "orders"):
                drop(spark, root, os.getpid() + number if work == "drop" else None)
                continue
            view = open_view(spark, root)
            if work == "refresh":
                change(spark, f"{root}/sales", os.getpid() * 100 + number)
                print("changed", flush=True)
            print(view.refresh().sentence, flush=True)
            if work == "look":
                print(f"verified {view.verify().ok}", flush=True)
        except DeltafoldError as error:
            print(f"{type(error).__name__}: {error}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
