"""Skip the files of a scan that contain no value in some intervals, by the statistics in the log.

Delta skips files too, but in two or three Spark jobs for each scan. Here it takes none for a small table, whose
checksum lists its files, and one for a larger table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from incremental.lake.log.file_lists import (
    MOST_FILES,
    as_add_files,
    known_files,
    local_rows,
    rows_of_actions,
    rows_of_files,
)
from incremental.lake.log.whole_files import FILE_RELATION, is_read_whole
from incremental.lake.version_diff import physical_name
from incremental.spark import catalyst
from incremental.spark.catalyst import J


def skip_files(spark: SparkSession, scan: J, column: str, intervals: Sequence[tuple[str, str]], type_: str) -> J:
    """Return Spark's scan of a Delta table without the files that have no value of a column in the intervals.

    intervals: the least and the greatest value of each, as text that casts to type_. The scan is returned unchanged if
    it is no scan of a Delta table, or if more than MOST_FILES are left. Else its files are fixed, also if none could be
    skipped: Delta would look for them in Spark jobs, and find the same.
    """
    relation = scan.relation()
    if not catalyst.is_java_instance(relation, FILE_RELATION):
        return scan
    index = relation.location()
    match catalyst.kind(index):
        case "TahoeLogFileIndex":
            snapshot = index.getSnapshot()
            files = known_files(snapshot)
        case "TahoeBatchFileIndex" if not is_read_whole(scan):  # its files are fixed already
            snapshot, files = index.snapshot(), index.addFiles()
        case _:
            return scan
    condition = _may_contain(snapshot.metadata(), column, intervals, type_)
    if condition is None:
        return scan
    rows = rows_of_actions(spark, snapshot) if files is None else local_rows(spark, files)
    kept = as_add_files(spark, catalyst.dataset(rows.where(condition).limit(MOST_FILES + 1))).collectAsList()
    if kept.size() > MOST_FILES:
        return scan
    chosen = catalyst.jvm(spark).scala.jdk.javaapi.CollectionConverters.asScala(kept).toVector()
    fewer = catalyst.analysed_plan(rows_of_files(spark, index.deltaLog(), snapshot, chosen)).relation()
    return catalyst.with_relation(scan, fewer, scan.output())


def _may_contain(metadata: J, column: str, intervals: Sequence[tuple[str, str]], type_: str) -> Column | None:
    """Return the condition of AddFiles that may contain a value in an interval; None for an unknown column."""
    known = {field.name: physical_name(field) for field in catalyst.python_schema(metadata.schema())}
    if column not in known:
        return None
    ends = StructType([StructField(known[column], DataType.fromDDL(type_))])
    statistics = F.from_json("stats", StructType([StructField(end, ends) for end in ("minValues", "maxValues")]))
    least, greatest = (statistics[end][known[column]] for end in ("minValues", "maxValues"))
    overlaps = [(least <= F.lit(high).cast(type_)) & (greatest >= F.lit(low).cast(type_)) for low, high in intervals]
    return F.coalesce(reduce(Column.__or__, overlaps), F.lit(True))  # a file without statistics may contain anything
