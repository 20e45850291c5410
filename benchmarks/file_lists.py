"""Compare two versions of a Delta table of many files, of which 300 differ, in a heap of 1 GB.

The log names files that do not exist, as only lists are compared: a checkpoint of the first version, then a commit that
adds 200 files and removes 100. It has no checksums, so that both ways of comparing are measured: what the commits say,
and the definition, an anti-join of both lists in Spark. Each is measured three times, at first with nothing read.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table as Printed

from deltafold.lake.delta_table import DeltaTable
from deltafold.lake.version_diff import Difference, SourceVersions, by_commits, by_snapshots
from deltafold.spark import catalyst
from deltafold.spark.cache import cache_folder
from deltafold.spark.session import start

SIZES = [10_000, 1_000_000]
HEAP = "1g"
ADDED = 200
REMOVED = 100
LAPS = 3
COLUMNS = ("k", "v")
SIZE = 100_000_000


def run(sizes: list[int]) -> None:
    """All sizes, each in one Spark session."""
    spark = start("benchmarks", memory=HEAP)
    printed = Printed(title="two versions of a Delta table, seconds", title_justify="left")
    for column in ("files", "how", "first", "median of the next two", "differ", "peak heap MB"):
        printed.add_column(column)
    for files in sizes:
        folder = cache_folder("benchmarks", "file_lists") / str(files)
        write_log(folder, files)
        table = DeltaTable(spark, str(folder))
        make_checkpoint(table)
        for how, compare in (("commits", by_commits), ("lists", by_snapshots)):
            first, *rest = [timed(compare, table) for _ in range(LAPS)]
            difference = first[1]
            assert difference is not None and (len(difference.added), len(difference.removed)) == (ADDED, REMOVED)
            seconds = statistics.median(taken for taken, _ in rest)
            row = f"{files:,}", how, f"{first[0]:.2f}", f"{seconds:.2f}", str(ADDED + REMOVED), str(peak(table))
            printed.add_row(*row)
        shutil.rmtree(folder)
    Console(width=120).print(printed)
    spark.stop()


def timed(compare: Callable[[SourceVersions], Difference | None], table: DeltaTable) -> tuple[float, Difference | None]:
    """Compare the two versions; return the seconds and the difference."""
    begun = time.monotonic()
    difference = compare(SourceVersions.of(table, 0, 1))
    return time.monotonic() - begun, difference


def write_log(folder: Path, files: int) -> None:
    """Write the log of both versions."""
    shutil.rmtree(folder, ignore_errors=True)
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in COLUMNS]
    described = {
        "id": "many-files",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 0,
    }
    head = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": described}]
    write_commit(log / f"{0:020d}.json", [*head, *adds(range(files))])
    facts = {
        "deletionTimestamp": 1,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": SIZE,
    }
    removes = ({"remove": {"path": path_of(i), **facts}} for i in range(REMOVED))
    info = {"commitInfo": {"timestamp": 1, "operation": "WRITE", "operationParameters": {}}}
    write_commit(log / f"{1:020d}.json", [info, *removes, *adds(range(files, files + ADDED))])


def write_commit(path: Path, actions: list[object]) -> None:
    with path.open("w") as file:
        file.writelines(f"{json.dumps(action)}\n" for action in actions)


def adds(numbers: range) -> Iterator[object]:
    """Added files, each with the statistics that Delta collects of two columns."""
    for i in numbers:
        bounds = {"minValues": {"k": i, "v": i}, "maxValues": {"k": i + 9, "v": i + 9}, "nullCount": {"k": 0, "v": 0}}
        stats = json.dumps({"numRecords": 1_000_000, **bounds})
        facts = {"partitionValues": {}, "size": SIZE, "modificationTime": 1, "dataChange": True, "stats": stats}
        yield {"add": {"path": path_of(i), **facts}}


def path_of(number: int) -> str:
    return f"part-{number:08d}-0123-4567-89ab-cdef01234567.c000.snappy.parquet"


def make_checkpoint(table: DeltaTable) -> None:
    """Let Delta write a checkpoint of the first version, as it does each ten commits."""
    log = table.log
    first = log.getSnapshotAt(0, *(getattr(log, f"getSnapshotAt$default${i}")() for i in (2, 3, 4)))
    log.checkpoint(first, catalyst.none(table.spark))
    catalyst.sql(table.spark).delta.DeltaLog.clearCache()


def peak(table: DeltaTable) -> int:
    """The most that the old generation of Java's heap held, in MB."""
    pools = catalyst.jvm(table.spark).java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    old = [pool for pool in pools if "Old" in str(pool.getName())]
    return max(int(pool.getPeakUsage().getUsed()) for pool in old) >> 20
