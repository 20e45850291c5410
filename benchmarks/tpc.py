"""TPC-H and TPC-DS, from DuckDB's generators: their queries and small data."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa

ORDERS = {"orders": "o_orderkey", "lineitem": "l_orderkey"}  # what TPC-H's refresh functions change, and by which key
GENERATE = {"tpch": "CALL dbgen(sf = {scale})", "tpcds": "CALL dsdgen(sf = {scale})"}
MEMORY = "4GB"  # beyond it a database in a file goes to the disk
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
def benchmark(name: str) -> Benchmark:
    """`tpch` or `tpcds` on the least data."""
    connection = generator(name, LEAST[name])
    queries = dict(connection.execute(f"SELECT query_nr, query FROM {name}_queries()").fetchall())
    spark_sql = {number: text.strip().rstrip(";").replace('"', "`") for number, text in queries.items()}
    tables = {
        table: connection.execute(f"SELECT * FROM {table} WHERE {DROPPED.get(table, 'true')}").fetch_arrow_table()
        for table in names(connection)
    }
    return Benchmark(spark_sql, tables)


def generate(name: str, scale: float, folder: Path) -> dict[str, Path]:
    """Write all rows of a benchmark's tables at a scale factor, as Parquet files in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    database = folder / "generator.duckdb"
    database.unlink(missing_ok=True)
    connection = generator(name, scale, database)
    files = {table: folder / f"{table}.parquet" for table in names(connection)}
    for table, file in files.items():
        connection.execute(f"COPY {table} TO '{file}' (FORMAT parquet)")
    connection.close()
    database.unlink()
    return files


def generator(name: str, scale: float, file: Path | None = None) -> duckdb.DuckDBPyConnection:
    """A database with the tables of a benchmark, in memory, or in a file for more than fits there."""
    connection = duckdb.connect(file or ":memory:", config={"memory_limit": MEMORY})
    folder = Path(next(iter(importlib.import_module(f"duckdb_extension_{name}").__path__)))
    connection.execute(f"LOAD '{next(folder.glob(f'extensions/*/{name}.duckdb_extension'))}'")
    connection.execute(GENERATE[name].format(scale=scale))
    return connection


def names(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """The tables of a database."""
    return [table for (table,) in connection.execute("SHOW TABLES").fetchall()]
