"""Refresh five queries on another Spark, from an environment of its own: `python -m tests.spark.other_versions FOLDER`.

Prints the versions of Spark and Delta Lake, and a line for each refresh; the last one is `equal`, or names a view that
does not equal its query.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

from deltafold.api import Delta, Files, Warehouse
from deltafold.spark.session import start

QUERIES = {
    "totals": "SELECT shop, sum(amount) s, count(*) n, max(amount) m, avg(amount) a FROM sales GROUP BY shop",
    "cities": """SELECT city, sum(amount) s, count(DISTINCT sales.shop) d
                 FROM sales JOIN shops USING (shop) GROUP BY city""",
    "without": "SELECT shop, city FROM shops LEFT ANTI JOIN (SELECT shop FROM sales WHERE amount > 90) USING (shop)",
    "ranks": """SELECT * FROM (SELECT id, shop, row_number() OVER (PARTITION BY shop ORDER BY amount DESC, id) r
                FROM sales) WHERE r <= 2""",
    "landed": "SELECT kind, sum(n) s FROM dropped GROUP BY kind",
}


def main(folder: Path) -> None:
    spark = start("other versions", master="local[2]", settings={"spark.sql.shuffle.partitions": "2"})
    print(spark.version, version("delta-spark"))
    sales, shops, dropped = (folder / name for name in ("sales", "shops", "dropped"))
    vectors = {"delta.enableDeletionVectors": "true"}
    rows = spark.range(5000).selectExpr("id", "id % 50 shop", "CAST(id % 97 AS DECIMAL(10, 2)) amount")
    rows.write.format("delta").options(**vectors).save(str(sales))
    spark.range(50).selectExpr("id shop", "concat('c', id % 7) city").write.format("delta").save(str(shops))
    drop(dropped, "2024-01-01", "kind,n\na,1\nb,2\n")
    warehouse = Warehouse(spark, folder / "warehouse")
    for name, path in (("sales", sales), ("shops", shops)):
        warehouse.source(name, Delta(str(path)))
    warehouse.source("dropped", Files(str(dropped), "csv", "kind STRING, n INT, day DATE", partition_by="day"))
    views = {name: warehouse.view(name, query) for name, query in QUERIES.items()}
    for change in (
        (),
        (f"DELETE FROM delta.`{sales}` WHERE id % 11 = 0", f"UPDATE delta.`{sales}` SET amount = 96 WHERE id = 5"),
        (f"INSERT INTO delta.`{sales}` SELECT id + 9000, 3, 96 FROM range(20)", f"OPTIMIZE delta.`{sales}`"),
        (f"RESTORE delta.`{sales}` TO VERSION AS OF 1", f"DELETE FROM delta.`{shops}` WHERE shop = 7"),
    ):
        for statement in change:
            spark.sql(statement).collect()
        drop(dropped, f"2024-01-0{len(change) + 1}", f"kind,n\na,{len(change)}\n")
        warehouse.land("dropped")
        for view in views.values():
            print(view.refresh().sentence)
    for name, view in views.items():
        view.maintain(0)
        if not view.verify().ok:
            sys.exit(f"{name} does not equal its query")
    print("equal")


def drop(folder: Path, day: str, text: str) -> None:
    """Put a file into the partition of a day."""
    place = folder / f"day={day}"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{len(text)}.csv").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
