"""Refresh views over tables of Iceberg on a Spark that it exists for: `python -m tests.spark.iceberg_histories FOLDER`.

Prints a line for each refresh; the last one is `equal`, or says which view does not equal Spark's batch.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

import deltafold as df
from deltafold.lake.iceberg import IcebergTable, declare

RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"
EXTENSIONS = "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
QUERIES = {
    "totals": "SELECT k, count(*) n, sum(v) s, max(v) m FROM orders GROUP BY k",
    "named": "SELECT name, sum(v) s FROM orders JOIN names USING (k) GROUP BY name",
    "rows": "SELECT k, v FROM orders WHERE v > 3",
}
CHANGES = {
    "insert": "INSERT INTO {t} SELECT CAST(id % 7 AS INT), CAST(id % {n} AS INT){more} FROM range({n})",
    "copies": "INSERT INTO {t} SELECT k, v{more} FROM VALUES (1, 5), (1, 5), (NULL, 4) AS copies(k, v)",
    "delete": "DELETE FROM {t} WHERE v % 3 = {n} % 3",
    "update": "UPDATE {t} SET v = v + 1 WHERE k = {n} % 7",
    "merge": "MERGE INTO {t} AS t USING (SELECT CAST(id AS INT) k, 9 v FROM range({n} % 5, 9)) AS s "
    "ON t.k = s.k AND t.v > 6 WHEN MATCHED THEN UPDATE SET v = 0 "
    "WHEN NOT MATCHED THEN INSERT ({names}) VALUES (s.k, s.v{more})",
    "overwrite": "INSERT OVERWRITE {t} SELECT CAST(id % 5 AS INT), CAST(id AS INT){more} FROM range({n})",
    "marks": "ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read', 'write.update.mode' = "
    "'merge-on-read', 'write.merge.mode' = 'merge-on-read')",
    "copied": "ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write', 'write.update.mode' = "
    "'copy-on-write', 'write.merge.mode' = 'copy-on-write')",
    "compact": "CALL other.system.rewrite_data_files(table => 'shop.orders', options => map('rewrite-all', 'true'))",
    "column": "ALTER TABLE {t} ADD COLUMNS (c_{width} STRING)",
    "rollback": "",
    "nothing": "",
}


def settings(folder: Path) -> dict[str, str]:
    """Return Spark's settings: two catalogs of one warehouse, the second for writers that the first does not see."""
    catalogs = {}
    for name in ("ice", "other"):
        key = f"spark.sql.catalog.{name}"
        catalogs |= {key: "org.apache.iceberg.spark.SparkCatalog", f"{key}.type": "hadoop"}
        catalogs[f"{key}.warehouse"] = str(folder / "iceberg")
    packages = {"spark.jars.packages": RUNTIME, "spark.jars.ivy": str(folder.parent / "ivy")}
    return {"spark.sql.extensions": EXTENSIONS, "spark.sql.shuffle.partitions": "2", **packages, **catalogs}


def main(folder: Path, seed: int, rounds: int) -> None:
    print(f"seed {seed}")
    rng, spark = random.Random(seed), df.start("iceberg", master="local[2]", settings=settings(folder))
    warehouse = df.Warehouse(spark, folder / "warehouse")
    warehouse.source("orders", df.Iceberg("ice.shop.orders"))
    warehouse.source("names", declare({"table": "ice.shop.names"}))
    spark.sql("CREATE TABLE other.shop.orders (k INT, v INT) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    names = "SELECT CAST(id AS INT) k, concat('n', id % 3) name FROM range(6)"
    spark.sql(f"CREATE TABLE other.shop.names USING iceberg AS {names}")
    views = {
        name: warehouse.view(name, query, policy="incremental", on_lost="rebuild") for name, query in QUERIES.items()
    }
    table, found = IcebergTable(spark, "ice.shop.orders"), Counter[str]()
    plan = [
        "nothing",
        "insert",
        *CHANGES,
        "compact",
        "marks",
        "delete",
        "update",
        "copied",
        *rng.choices([*CHANGES], k=rounds),
        "expire",
        "insert",
    ]
    for number, change in enumerate(plan):
        before = table.version() or 0
        apply(spark, rng, change)
        after = table.version() or 0
        changed = table.diff(before, after) if 0 < before < after else None
        found[f"{'compared' if changed is None else 'found'} {change}" if before < after else "same"] += 1
        for name, view in views.items():
            print(f"{number} {change}: {view.refresh().sentence}")
            spark.sql("REFRESH TABLE other.shop.orders")
            query = (
                QUERIES[name]
                .replace("FROM orders", "FROM other.shop.orders orders")
                .replace("JOIN names", "JOIN other.shop.names names")
            )
            wanted, shown = (Counter(map(tuple, rows.collect())) for rows in (spark.sql(query), view.answer()))
            if wanted != shown:
                sys.exit(
                    f"{name} does not equal its query after {change}: {shown - wanted} more, {wanted - shown} less"
                )
    print(dict(found))
    for needed in ("found insert", "found merge", "compared delete", "compared rollback"):
        if not found[needed]:
            sys.exit(f"no change was {needed}")
    spark.sql("DROP TABLE other.shop.orders")
    spark.sql("CREATE TABLE other.shop.orders AS SELECT 1 AS k, 2 AS v")
    print(views["totals"].refresh().sentence)
    if [tuple(row) for row in views["totals"].answer().collect()] != [(1, 1, 2, 2)]:
        sys.exit("totals does not equal its query after another table took the place of orders")
    print("equal")


def apply(spark: SparkSession, rng: random.Random, change: str) -> None:
    """Change the table as a writer would that shares nothing with the reader but the files."""
    if change == "rollback":
        history = spark.sql("SELECT snapshot_id FROM other.shop.orders.history ORDER BY made_current_at").collect()
        if earlier := [id for (id,) in history if id != history[-1][0]]:
            chosen = rng.choice(earlier)
            spark.sql(f"CALL other.system.set_current_snapshot('shop.orders', {chosen})")
    elif change == "expire":
        spark.sql(
            "CALL other.system.expire_snapshots(table => 'shop.orders', older_than => TIMESTAMP '2100-01-01', "
            "retain_last => 1)"
        )
    elif text := CHANGES[change]:
        table = "other.shop.orders"
        names = spark.table(table).columns
        more = ", NULL" * (len(names) - 2)
        spark.sql(text.format(t=table, n=rng.randrange(5, 40), width=len(names), names=", ".join(names), more=more))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
