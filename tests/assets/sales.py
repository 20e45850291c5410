"""Test room: a tiny pipeline over dropped files. In: a folder and how it is cut. Out: the pipeline, and files in it."""

import json
from collections.abc import Iterable
from pathlib import Path

from pipelines import catalogue
from tests.pipelines.declared import write

SQL = "SELECT shop, count(*) AS sales, sum(amount) AS total, max(amount) AS best FROM sales GROUP BY shop"
DAILY = "partitions: {kind: daily, start: 2013-01-01, end: 2013-01-31}\n"
DYNAMIC = "partitions: {kind: dynamic}\n"
DECLARATION = """\
description: Sales per shop
sources:
  sales:
    files:
      path: data
      format: csv
      schema: id INT, shop STRING, amount INT, day STRING
      partition_by: day
warehouse: warehouse
"""
BESIDES = """\
  shops:
    files:
      path: shops
      format: csv
      schema: shop STRING, town STRING
  rates:
    delta: rates
  towns:
    delta: towns
    invariant: true
"""

Sale = tuple[int, str, int]
"""id, shop, amount"""


def declare(folder: Path, more: str = DAILY, sql: str = SQL, besides: str = "") -> catalogue.Pipeline:
    """The pipeline `sales` in folder/sales, with no files yet; `besides` are further sources."""
    declaration = DECLARATION.replace("warehouse:", f"{besides}warehouse:") + more
    write(folder, "sales", declaration, sql=sql)
    return catalogue.load("sales", folder)


def drop(pipeline: catalogue.Pipeline, key: str, sales: Iterable[Sale], file: str = "sales.csv") -> Path:
    """Writes one file into a partition's folder, in place of one of the same name."""
    folder = pipeline.folder / "data" / f"day={key}"
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["id,shop,amount", *(f"{number},{shop},{amount}" for number, shop, amount in sales)]
    (folder / file).write_text("\n".join(lines) + "\n")
    return folder


def commit(table: Path, version: int) -> None:
    """Makes a folder look like a Delta table of this version, as far as its log's names go."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020}.json").write_text(json.dumps({"commitInfo": {}}))
