"""Run a first load in parts, then a change, on a cluster; a refresh that fails is repeated, as a schedule does.

python -m tests.crash.cluster.night ADDRESS FOLDER
Prints a line per step, and at the end the outcome as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from deltafold.algebra.errors import DeltafoldError
from deltafold.api import Delta, View, Warehouse
from deltafold.spark.session import start

QUERY = """SELECT d.name, count(*) AS n, sum(t.v) AS total, max(t.v) AS most
           FROM t JOIN d ON t.k = d.k GROUP BY d.name"""
FILES, ROWS, TRIES = 6, 300_000, 4


def main(address: str, folder: Path) -> None:
    settings = {"spark.executor.memory": "768m", "spark.executor.cores": "1"}
    spark = start("night", master=address, memory="1g", settings=settings)
    t, d = folder / "t", folder / "d"
    facts = spark.range(ROWS).selectExpr("id % 1000 AS k", "id AS v").repartition(FILES)
    facts.write.format("delta").option("delta.enableDeletionVectors", "true").save(str(t))
    spark.range(1000).selectExpr("id AS k", "concat('n', id % 50) AS name").write.format("delta").save(str(d))
    warehouse = Warehouse(spark, folder / "warehouse")
    warehouse.source("t", Delta(str(t)))
    warehouse.source("d", Delta(str(d)))
    view = warehouse.view("totals", QUERY)
    part = max(file.stat().st_size for file in t.glob("*.parquet")) * 2 + 1
    failed = refreshed(view, part)
    spark.sql(f"DELETE FROM delta.`{t}` WHERE v % 7 = 0")
    spark.sql(f"INSERT INTO delta.`{t}` SELECT id % 1000, -id FROM range(10000)")
    failed += refreshed(view, None)
    told = {"epochs": [report.epoch for report in view.history()], "failed": failed, "ok": view.verify().ok}
    print(json.dumps(told | {"executors": executors(spark)}), flush=True)


def refreshed(view: View, part: int | None) -> list[str]:
    """Refresh until it succeeds; return the errors before that."""
    failed: list[str] = []
    while True:
        try:
            view.refresh(chunk=part, progress=lambda step: print(step, flush=True))
        except DeltafoldError as error:
            print(f"failed: {error}", flush=True)
            failed.append(str(error))
            if len(failed) == TRIES:
                raise
        else:
            return failed


def executors(spark: SparkSession) -> int:
    """How many executors there are now, the driver not counted."""
    return int(spark._jsc.sc().getExecutorMemoryStatus().size()) - 1  # pyright: ignore


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
