"""Create a tiny pipeline over input files, with or without partitions, and write files for it."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dagster as dg

import deltafold.dagster as df
from deltafold.pipelines import catalogue
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
    """Return the pipeline `sales` in folder/sales, with no files yet; `besides`: further sources."""
    declaration = DECLARATION.replace("warehouse:", f"{besides}warehouse:") + more
    write(folder, "sales", declaration, sql=sql)
    return catalogue.load("sales", folder)


def declare_readers(folder: Path) -> None:
    """Declare `sales`, `top` that reads it and has a tag, and `other` over a table of others."""
    declare(folder)
    top = "tags: [nightly]\nsources:\n  sales: {view: sales}\n"
    write(folder, "top", top, sql="SELECT count(*) AS n FROM sales")
    write(folder, "other", "sources:\n  towns: {delta: t}\n", sql="SELECT * FROM towns")


def drop(pipeline: catalogue.Pipeline, key: str, sales: Iterable[Sale], file: str = "sales.csv") -> Path:
    """Write one file into a partition's folder, replacing one of the same name."""
    folder = pipeline.folder / "data" / f"day={key}"
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["id,shop,amount", *(f"{number},{shop},{amount}" for number, shop, amount in sales)]
    (folder / file).write_text("\n".join(lines) + "\n")
    return folder


class Partitioned(df.DeltafoldTranslator):
    """Gives landings other partitions."""

    def __init__(self, partitions: Any) -> None:
        super().__init__()
        self._partitions = partitions

    def get_landing_spec(self, pipeline: catalogue.Pipeline, source: str) -> dg.AssetSpec:
        return super().get_landing_spec(pipeline, source).replace_attributes(partitions_def=self._partitions)


def commit(table: Path, version: int) -> None:
    """Make a folder look like a Delta table of this version, by the file names in its log."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020}.json").write_text(json.dumps({"commitInfo": {}}))
