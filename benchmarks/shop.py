"""A shop in twelve datasets, as its dbt project has them: six staging projections, six marts over them.

`orders` and `items` change by MERGE (orders added with their items, corrected, deleted), and every dataset is
refreshed, one view after the other; then as one project, which keeps the marts alone, as dbt does: the staging
projections are its views. Both are recomputed, too, in the same order, each dataset from those before it. The kinds of
source: copy on write, as Delta makes tables by default, where a MERGE of 300 rows rewrites whole files, the same with
the change data feed, and deletion vectors.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.contest import Contest
from benchmarks.projects import Datasets, verify_all
from deltafold.algebra.results.pipeline_report import REFRESHED, DatasetResult, PipelineReport
from deltafold.api import Delta, View, Warehouse
from deltafold.pipelines.project import RefreshPolicy
from deltafold.spark.cache import cache_folder
from deltafold.spark.session import start

SIZES = [300_000]
KINDS: Mapping[str, Mapping[str, str]] = {
    "copy on write": {"delta.enableDeletionVectors": "false"},
    "change data feed": {"delta.enableDeletionVectors": "false", "delta.enableChangeDataFeed": "true"},
    "deletion vectors": {"delta.enableDeletionVectors": "true"},
}
ROUNDS = 3  # of changes; the first one warms up
ADDED = 1_000
CORRECTED = 200
DELETED = 100
CUSTOMERS = 10_000
PRODUCTS = 10
STORES = 6
SUPPLIES = 65
DAY_ZERO = "TIMESTAMP_NTZ'2024-09-01 07:00:00'"

DATASETS = {
    "stg_customers": "SELECT id AS customer_id, name AS customer_name FROM raw_customers",
    "stg_locations": """SELECT id AS location_id, name AS location_name, tax_rate,
        CAST(opened_at AS DATE) AS opened_date FROM raw_stores""",
    "stg_products": """SELECT sku AS product_id, name AS product_name, type AS product_type, description AS
        product_description, CAST(price / 100 AS DECIMAL(16, 2)) AS product_price,
        coalesce(type = 'jaffle', false) AS is_food_item, coalesce(type = 'beverage', false) AS is_drink_item
        FROM raw_products""",
    "stg_supplies": """SELECT concat(id, '-', sku) AS supply_uuid, id AS supply_id, sku AS product_id, name AS
        supply_name, CAST(cost / 100 AS DECIMAL(16, 2)) AS supply_cost, perishable AS is_perishable_supply
        FROM raw_supplies""",
    "stg_orders": """SELECT id AS order_id, store_id AS location_id, customer AS customer_id,
        subtotal AS subtotal_cents, tax_paid AS tax_paid_cents, order_total AS order_total_cents,
        CAST(subtotal / 100 AS DECIMAL(16, 2)) AS subtotal, CAST(tax_paid / 100 AS DECIMAL(16, 2)) AS tax_paid,
        CAST(order_total / 100 AS DECIMAL(16, 2)) AS order_total, CAST(ordered_at AS DATE) AS ordered_at
        FROM raw_orders""",
    "stg_order_items": "SELECT id AS order_item_id, order_id, sku AS product_id FROM raw_items",
    "order_items": """WITH costs AS (SELECT product_id, sum(supply_cost) AS supply_cost FROM stg_supplies GROUP BY 1)
        SELECT i.*, o.ordered_at, p.product_name, p.product_price, p.is_food_item, p.is_drink_item, c.supply_cost
        FROM stg_order_items i LEFT JOIN stg_orders o ON i.order_id = o.order_id
        LEFT JOIN stg_products p ON i.product_id = p.product_id LEFT JOIN costs c ON i.product_id = c.product_id""",
    "orders": """WITH summary AS (
          SELECT order_id, sum(supply_cost) AS order_cost, sum(product_price) AS order_items_subtotal,
            count(order_item_id) AS count_order_items, count_if(is_food_item) AS count_food_items,
            count_if(is_drink_item) AS count_drink_items FROM order_items GROUP BY order_id)
        SELECT o.*, s.order_cost, s.order_items_subtotal, s.count_food_items, s.count_drink_items,
          s.count_order_items, s.count_food_items > 0 AS is_food_order, s.count_drink_items > 0 AS is_drink_order,
          row_number() OVER (PARTITION BY o.customer_id ORDER BY o.ordered_at) AS customer_order_number
        FROM stg_orders o LEFT JOIN summary s ON o.order_id = s.order_id""",
    "customers": """WITH summary AS (
          SELECT customer_id, count(DISTINCT order_id) AS count_lifetime_orders,
            count(DISTINCT order_id) > 1 AS is_repeat_buyer, min(ordered_at) AS first_ordered_at,
            max(ordered_at) AS last_ordered_at, sum(subtotal) AS lifetime_spend_pretax,
            sum(tax_paid) AS lifetime_tax_paid, sum(order_total) AS lifetime_spend FROM orders GROUP BY customer_id)
        SELECT c.*, s.count_lifetime_orders, s.first_ordered_at, s.last_ordered_at, s.lifetime_spend_pretax,
          s.lifetime_tax_paid, s.lifetime_spend, if(s.is_repeat_buyer, 'returning', 'new') AS customer_type
        FROM stg_customers c LEFT JOIN summary s ON c.customer_id = s.customer_id""",
    "locations": "SELECT * FROM stg_locations",
    "products": "SELECT * FROM stg_products",
    "supplies": "SELECT * FROM stg_supplies",
}
RAW = ("raw_customers", "raw_stores", "raw_products", "raw_supplies", "raw_orders", "raw_items")


def orders(spark: SparkSession, first: int, rows: int, seed: int) -> DataFrame:
    """Rows of raw_orders from a number on."""
    return spark.range(first, first + rows, 1, 2).selectExpr(
        "md5(CAST(id AS STRING)) AS id",
        f"md5(concat('c', CAST(abs(hash(id, {seed})) % {CUSTOMERS} AS STRING))) AS customer",
        f"{DAY_ZERO} + make_dt_interval(CAST(id % 700 AS INT), 0, CAST(abs(hash(id)) % 700 AS INT)) AS ordered_at",
        f"md5(concat('s', CAST(id % {STORES} AS STRING))) AS store_id",
        f"abs(hash(id, {seed}, 1)) % 3000 + 400 AS subtotal",
        f"abs(hash(id, {seed}, 2)) % 200 AS tax_paid",
        f"abs(hash(id, {seed}, 1)) % 3000 + 400 + abs(hash(id, {seed}, 2)) % 200 AS order_total",
    )


def items(spark: SparkSession, first: int, rows: int) -> DataFrame:
    """Rows of raw_items of the same orders: one to four each, 2.5 on average."""
    return (
        spark.range(first, first + rows, 1, 2)
        .selectExpr(
            "explode(transform(sequence(0, CAST(id % 4 AS INT)), i -> struct("
            "md5(concat(id, '-', i)) AS id, md5(CAST(id AS STRING)) AS order_id, "
            f"concat('SKU-', lpad(CAST(abs(hash(id, i)) % {PRODUCTS} AS STRING), 3, '0')) AS sku))) AS item"
        )
        .selectExpr("item.*")
    )


def small_tables(spark: SparkSession) -> Mapping[str, DataFrame]:
    """The tables that do not change."""
    sku = f"concat('SKU-', lpad(CAST(id % {PRODUCTS} AS STRING), 3, '0'))"
    customers = spark.range(CUSTOMERS).selectExpr(
        "md5(concat('c', CAST(id AS STRING))) AS id", "concat('Customer ', id) AS name"
    )
    stores = spark.range(STORES).selectExpr(
        "md5(concat('s', CAST(id AS STRING))) AS id", "concat('Store ', id) AS name",
        f"{DAY_ZERO} + make_dt_interval(CAST(id AS INT)) AS opened_at", "0.04D + id / 1000 AS tax_rate",
    )  # fmt: skip
    products = spark.range(PRODUCTS).selectExpr(
        f"{sku} AS sku", "concat('Product ', id) AS name", "if(id < 5, 'jaffle', 'beverage') AS type",
        "CAST(400 + id * 100 AS INT) AS price", "concat('a description of product ', id) AS description",
    )  # fmt: skip
    supplies = spark.range(SUPPLIES).selectExpr(
        "concat('SUP-', id) AS id", "concat('Supply ', id) AS name", "CAST(id * 7 % 90 AS INT) AS cost",
        "id % 2 = 0 AS perishable", f"{sku} AS sku",
    )  # fmt: skip
    return {"raw_customers": customers, "raw_stores": stores, "raw_products": products, "raw_supplies": supplies}


def generate(spark: SparkSession, folder: Path, size: int, properties: Mapping[str, str]) -> None:
    """Write all raw tables."""
    shutil.rmtree(folder, ignore_errors=True)
    tables = {**small_tables(spark), "raw_orders": orders(spark, 0, size, 1), "raw_items": items(spark, 0, size)}
    for name, rows in tables.items():
        rows.write.format("delta").options(**properties).save(str(folder / name))


def change(spark: SparkSession, folder: Path, size: int, number: int) -> None:
    """Merge new, corrected and deleted orders, and their items: the change of one night."""
    first = size + number * ADDED
    old = number * (CORRECTED + DELETED)
    added = orders(spark, first, ADDED, 1)
    corrected = orders(spark, old, CORRECTED, 2 + number)
    gone = orders(spark, old + CORRECTED, DELETED, 1)
    source = (
        added.unionByName(corrected).selectExpr("*", "false AS gone").unionByName(gone.selectExpr("*", "true AS gone"))
    )
    source.createOrReplaceTempView("changed_orders")
    spark.sql(f"""MERGE INTO delta.`{folder / "raw_orders"}` t USING changed_orders u ON t.id = u.id
        WHEN MATCHED AND u.gone THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""")
    new = items(spark, first, ADDED).selectExpr("*", "false AS gone")
    lost = items(spark, old + CORRECTED, DELETED).selectExpr("*", "true AS gone")
    new.unionByName(lost).createOrReplaceTempView("changed_items")
    spark.sql(f"""MERGE INTO delta.`{folder / "raw_items"}` t USING changed_items u ON t.id = u.id
        WHEN MATCHED AND u.gone THEN DELETE WHEN NOT MATCHED THEN INSERT *""")


def declare(spark: SparkSession, folder: Path) -> dict[str, View]:
    """The twelve datasets, each over those before it."""
    warehouse = Warehouse(spark, folder / "warehouse")
    for name in RAW:
        warehouse.source(name, Delta(str(folder / name)))
    views = dict[str, View]()
    for name, query in DATASETS.items():
        views[name] = warehouse.view(name, query)
        warehouse.source(name, views[name])
    return views


def run(sizes: list[int], kinds: list[str], policy: RefreshPolicy, *, verify: bool) -> None:
    """Each size and kind of source: a first load, then rounds of a change, which all contestants follow."""
    spark = start("shop")
    contest = Contest(spark, cache_folder("benchmarks", "shop"))
    for size in sizes:
        for kind in kinds:
            folder = cache_folder("benchmarks", "shop") / kind.replace(" ", "-")
            one(contest, spark, folder, size, kind, policy, verify=verify)
    ratios = [
        (
            f"{kind} {size}, {again} / {ours}",
            median(contest, kind, size, again) / median(contest, kind, size, ours),
            target,
        )
        for size in sizes
        for kind in kinds
        for again, ours, target in (
            ("recompute marts", "one run", "at least 2" if kind == "copy on write" else "at least 4"),
            ("recompute", "one by one", "at least 1"),
        )
    ]
    contest.show("a shop of twelve datasets", ratios, cache_folder("benchmarks") / "shop.json")


def median(contest: Contest, kind: str, size: int, who: str) -> float:
    """The median seconds of a contestant after the first change."""
    return contest.median(f"{kind} {size}", who, "change")


def one(
    contest: Contest, spark: SparkSession, folder: Path, size: int, kind: str, policy: RefreshPolicy, *, verify: bool
) -> None:
    """One size and kind of source, with tables in a folder."""
    setting = f"{kind} {size}"
    generate(spark, folder, size, KINDS[kind])
    views = declare(spark, folder)
    marts = Datasets(spark, folder, DATASETS, RAW, policy, inlined=[name for name in DATASETS if name[:4] == "stg_"])
    everything = replace(marts, inlined=())
    contestants = {
        "one by one": lambda: refresh_all(views),
        "one run": marts.refresh,
        "recompute": everything.recompute,
        "recompute marts": marts.recompute,
    }
    for who in ("one by one", "one run"):
        contest.lap(setting, "load", who, contestants[who])
    for number in range(ROUNDS + 1):
        change(spark, folder, size, number)
        marts.register()
        step = "warm-up" if number == 0 else f"change-{number}"
        for who, action in contestants.items():
            contest.lap(setting, step, who, action)
    if verify:
        marts.verify()
        verify_all(views.values())


def refresh_all(views: Mapping[str, View], show: Callable[[str], object] = print) -> PipelineReport:
    """Refresh one view after the other."""
    results = list[DatasetResult]()
    for name, view in views.items():
        report = view.refresh()
        results.append(DatasetResult(name=name, outcome=REFRESHED, report=report))
        show(f"  {report.seconds:6.2f} s {report.sentence}")
        show(f"      {report.phases}")
    return PipelineReport(datasets=tuple(results))
