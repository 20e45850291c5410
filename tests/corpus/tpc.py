"""TPC-H and TPC-DS, from DuckDB's generators: their queries and small data."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa

GENERATE = {"tpch": "CALL dbgen(sf = {scale})", "tpcds": "CALL dsdgen(sf = {scale})"}
LEAST = {"tpch": 0.001, "tpcds": 0.01}  # the smallest scale whose generator ends
DROPPED = {  # rows that small sales do not need: what remains of a table, as a condition
    "date_dim": "d_year BETWEEN 1997 AND 2003", "time_dim": "t_time % 600 = 0",
    "customer_demographics": "cd_demo_sk % 20 = 0", "household_demographics": "hd_demo_sk % 10 = 0",
    "catalog_page": "cp_catalog_page_sk % 50 = 0", "inventory": "inv_item_sk % 20 = 0",
    "store_sales": "ss_ticket_number % 12 = 0", "store_returns": "sr_ticket_number % 12 = 0",
    "catalog_sales": "cs_order_number % 12 = 0", "catalog_returns": "cr_order_number % 12 = 0",
    "web_sales": "ws_order_number % 6 = 0", "web_returns": "wr_order_number % 6 = 0",
}  # fmt: skip


@dataclass(frozen=True)
class Benchmark:
    """One of the two benchmarks: queries by number, tables by name."""

    queries: dict[int, str]
    tables: dict[str, pa.Table]


@cache
def benchmark(name: str, scale: float | None = None, whole: bool = False) -> Benchmark:
    """`tpch` or `tpcds` at a scale factor, the least by default; whole: with all rows of its tables."""
    connection = duckdb.connect()
    extension = importlib.import_module(f"duckdb_extension_{name}")
    folder = Path(next(iter(extension.__path__)))
    connection.execute(f"LOAD '{next(folder.glob(f'extensions/*/{name}.duckdb_extension'))}'")
    connection.execute(GENERATE[name].format(scale=scale or LEAST[name]))
    queries = dict(connection.execute(f"SELECT query_nr, query FROM {name}_queries()").fetchall())
    tables = {
        table: connection.execute(
            f"SELECT * FROM {table} WHERE {'true' if whole else DROPPED.get(table, 'true')}"
        ).fetch_arrow_table()
        for (table,) in connection.execute("SHOW TABLES").fetchall()
    }
    spark_sql = {number: text.strip().rstrip(";").replace('"', "`") for number, text in queries.items()}
    return Benchmark(spark_sql, tables)
