"""Run a first load in batches and a change over data larger than memory, in a heap of 1 GB.

Events have random keys and a text that does not compress; a count, a sum and the greatest text are kept per key, so the
state is nearly as large as the input. Prints seconds, peaks and spill.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table as Printed

from deltafold.api import Delta, Report, View, Warehouse
from deltafold.lake.delta_table import DeltaTable
from deltafold.spark import catalyst
from deltafold.spark.cache import cache_folder
from deltafold.spark.session import start

QUERY = "SELECT k, count(*) AS n, sum(v) AS total, max(text) AS most FROM events GROUP BY k"
HEAP = "1g"
BATCH_BYTES = 1 << 30
ROWS_OF_A_FILE = 500_000
GB = 1 << 30


def run(rows: int) -> None:
    """Load events of about 150 bytes a row in parts, change a thousandth, and say what it took."""
    spark = start("benchmarks", memory=HEAP)
    folder = cache_folder("benchmarks", "memory", str(rows))
    generate(spark, folder / "generated", rows)
    shutil.rmtree(folder / "run", ignore_errors=True)
    shutil.copytree(folder / "generated", folder / "run" / "events")
    warehouse = Warehouse(spark, folder / "run" / "warehouse")
    warehouse.source("events", Delta(str(folder / "run" / "events")))
    view = warehouse.view("by_key", QUERY)
    console = Console(width=140)
    view.refresh(chunk=BATCH_BYTES, progress=lambda step: console.print(step))
    parts = list(view.history())
    spark.sql(f"DELETE FROM delta.`{folder / 'run' / 'events'}` WHERE v % 1000 = 0")
    change = view.refresh(progress=lambda step: console.print(step))
    show(console, spark, folder / "run", parts, change, view)


def generate(spark: SparkSession, target: Path, rows: int) -> None:
    """The events, once: each key comes three times on average."""
    if (target / "_delta_log").exists():
        return
    columns = (f"CAST(rand(1) * {rows // 3} AS BIGINT) AS k", "id AS v", "sha2(CAST(id AS STRING), 512) AS text")
    writer = spark.range(0, rows, 1, max(2, rows // ROWS_OF_A_FILE)).selectExpr(*columns).write.format("delta")
    writer.option("delta.enableDeletionVectors", "true").save(str(target))


def show(
    console: Console, spark: SparkSession, folder: Path, parts: Sequence[Report], change: Report, view: View
) -> None:
    """Sizes, seconds, the process's peak, what was spilled, and whether the answer is right."""
    spilled = spill(spark)
    table = Printed(
        "what", "measured", title=f"data larger than memory: a heap of {HEAP}, parts of {BATCH_BYTES / GB:g} GB"
    )
    for what, measured in (
        ("input", f"{size(folder / 'events') / GB:.2f} GB"),
        ("state", f"{DeltaTable(spark, view.path).size()[1] / GB:.2f} GB"),
        ("state with older versions", f"{size(Path(view.path)) / GB:.2f} GB"),
        ("first load", f"{sum(p.seconds for p in parts):.0f} s in {len(parts)} parts"),
        ("change", f"{change.seconds:.0f} s, {change.change_rows} rows"),
        ("peak of the process", f"{peak(spark) / GB:.2f} GB resident"),
        ("spilled", f"{spilled[0] / GB:.2f} GB of memory as {spilled[1] / GB:.2f} GB on disk"),
    ):
        table.add_row(what, measured)
    console.print(table)
    verification = view.verify(0.01)
    console.print(verification.sentence)
    spark.stop()
    if not verification.ok:
        raise SystemExit(1)


def size(folder: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*.parquet"))


def peak(spark: SparkSession) -> int:
    """The most memory that Spark's process has had, as the system counts it."""
    process = catalyst.jvm(spark).java.lang.ProcessHandle.current().pid()
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def spill(spark: SparkSession) -> tuple[int, int]:
    """Bytes of memory that all stages spilled, and what they took on disk."""
    store = catalyst.context(spark).statusStore()
    no_quantiles = getattr(store, "stageList$default$4")()
    arguments = (None, False, False, no_quantiles, None)  # Java takes no keywords
    stages = catalyst.sequence(store.stageList(*arguments))
    return sum(int(s.memoryBytesSpilled()) for s in stages), sum(int(s.diskBytesSpilled()) for s in stages)
