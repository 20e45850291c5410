"""Declare a small shop: the same sources and views for the release that made a warehouse and for the one that opens it.

python -m tests.released.shop API FOLDER makes the warehouse with the API that is imported as API, such as
`deltafold.api`; `tar cz` of the folder is what test_released.py opens. Nothing here may change what a view is: the
fingerprints of its query are in the warehouse.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

if TYPE_CHECKING:
    from deltafold.api import View, Warehouse

BUCKETS = 2  # as few files as possible
SALES = "id INT, shop STRING, product STRING, amount DOUBLE, day DATE"
FIRST = [
    "(1, 'n1', 'tea', 3.2, date'2024-05-01')", "(2, 'n2', 'tea', 4.1, date'2024-05-01')",
    "(3, 's1', 'coffee', 2.5, date'2024-05-02')", "(4, 's1', 'tea', 2.7, date'2024-05-03')",
]  # fmt: skip
SECOND = ["(5, 'n1', 'coffee', 3.9, date'2024-05-03')", "(6, 's1', 'milk', 1.1, date'2024-05-04')"]
LINKS = ["(1, 2)", "(2, 3)", "(3, 1)", "(4, 5)"]
LANDED = {"2024-05-01": "1,n1,2\n2,s1,3\n", "2024-05-02": "3,n1,1\n"}
STEP = 0.5

TOTALS = """
SELECT shop, count(*) AS sales, sum(amount) AS revenue, avg(amount) AS mean, max(product) AS last,
       count(DISTINCT day) AS days
FROM sales WHERE amount > 0 GROUP BY shop
"""
COUNTS = "SELECT sales, count(*) AS shops FROM totals GROUP BY sales"
PRODUCTS = "select < product: p, n: count(s), mean: avg(s.amount) > from s in sales group by p: s.product;"
VISITS = "SELECT shop, sum(visitors) AS visitors, min(id) AS first FROM visits GROUP BY shop"
REACHED = """
WITH RECURSIVE reached (place) AS (
  SELECT 1 UNION SELECT l.dst FROM links l JOIN reached r ON l.src = r.place
)
SELECT place FROM reached
"""


def round_to_step(amount: float) -> float:
    return round(amount / STEP) * STEP


def prices(sales: DataFrame) -> DataFrame:
    """Count the sales of each rounded price; the rounding is a Python function with a helper and a global."""
    rounded = F.udf(lambda amount: round_to_step(amount), T.DoubleType())
    return sales.groupBy(rounded("amount").alias("price")).agg(F.count("*").alias("n"), F.sum("amount").alias("total"))


def paths_from(api: Any) -> Any:
    """Return the query of a loop; `fixpoint` is the release's own."""

    def paths(links: DataFrame) -> DataFrame:
        def longer(found: DataFrame) -> DataFrame:
            return found.alias("p").join(links.alias("l"), F.col("p.dst") == F.col("l.src")).select("p.src", "l.dst")

        return api.fixpoint(links.select("src", "dst"), longer)

    return paths


def insert(spark: SparkSession, table: Path, rows: list[str]) -> None:
    spark.sql(f"INSERT INTO delta.`{table}` VALUES {', '.join(rows)}")


def land(folder: Path, days: dict[str, str]) -> None:
    for day, rows in days.items():
        home = folder / "visits" / f"day={day}"
        home.mkdir(parents=True, exist_ok=True)
        (home / "visits.csv").write_text(f"id,shop,visitors\n{rows}")


def open_views(api: Any, spark: SparkSession, folder: Path) -> tuple[Warehouse, dict[str, View]]:
    """Declare sources and views, of which none is refreshed here; a chain reads its upstream's view as a source."""
    warehouse = api.Warehouse(spark, folder / "warehouse", api.Tuning(buckets=BUCKETS))
    warehouse.source("sales", api.Delta(str(folder / "sales")))
    warehouse.source("links", api.Delta(str(folder / "links")))
    schema = "id INT, day DATE, shop STRING, visitors INT"
    warehouse.source("visits", api.Files(str(folder / "visits"), "csv", schema, partition_by="day"))
    totals = warehouse.view("totals", TOTALS)
    warehouse.source("totals", totals)
    return warehouse, {
        "totals": totals,
        "counts": warehouse.view("counts", COUNTS),
        "prices": warehouse.view("prices", prices),
        "products": warehouse.view("products", api.Mrql(PRODUCTS)),
        "visitors": warehouse.view("visitors", VISITS),
        "reached": warehouse.view("reached", REACHED),
        "paths": warehouse.view("paths", paths_from(api)),
    }


def make(api: Any, spark: SparkSession, folder: Path) -> None:
    """Make the warehouse: the first load of each view, and a refresh of those that read the sales."""
    spark.sql(f"CREATE TABLE delta.`{folder / 'sales'}` ({SALES}) USING delta")
    spark.sql(f"CREATE TABLE delta.`{folder / 'links'}` (src INT, dst INT) USING delta")
    insert(spark, folder / "sales", FIRST)
    insert(spark, folder / "links", LINKS)
    land(folder, LANDED)
    warehouse, views = open_views(api, spark, folder)
    warehouse.land("visits")
    for view in views.values():
        view.refresh()
    insert(spark, folder / "sales", SECOND)
    for name in ("totals", "prices", "products"):
        assert views[name].refresh().epoch == 2
    facts = {name: [view.history()[-1].epoch, *view.answer().columns] for name, view in views.items()}
    (folder / "made.json").write_text(json.dumps({"python": list(sys.version_info[:2]), "views": facts}, indent=1))


if __name__ == "__main__":
    made_by, place = importlib.import_module(sys.argv[1]), Path(sys.argv[2])
    small = {"spark.sql.shuffle.partitions": "1", "spark.databricks.delta.snapshotPartitions": "1"}
    make(made_by, made_by.start("released", master="local[1]", memory="1g", settings=small), place)
