"""Skip the files of a scan that contain no value in some intervals, or none that a condition admits, by the statistics
in the log (D-118).

Delta skips files too, but in two or three Spark jobs for each scan. Here it takes none for a small table, whose
checksum lists its files, and one for a larger table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from deltafold.lake.files import physical_name
from deltafold.lake.log.file_lists import (
    MOST_FILES,
    as_add_files,
    known_files,
    local_rows,
    rows_of_actions,
    rows_of_files,
)
from deltafold.lake.log.whole_files import FILE_RELATION, is_read_whole, with_relation
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

SKIPPABLE = re.compile(r"tinyint|smallint|int|bigint|date|decimal\(.*\)")  # types whose text is a literal anywhere
MIRRORED = {
    "EqualTo": "EqualTo",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
}


def skip_files(
    spark: SparkSession,
    scan: J,
    column: str,
    intervals: Sequence[tuple[str, str]],
    type_: str,
    conditions: Sequence[J] = (),
) -> J:
    """Return Spark's scan of a Delta table without the files that have no value of a column in the intervals.

    intervals: the least and the greatest value of each, as text that casts to type_. conditions: of the scan's columns;
    files with no row that fulfils each of them may be skipped, too. The scan is returned unchanged if
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
    schema = {field.name: field for field in catalyst.python_schema(snapshot.metadata().schema())}
    if column not in schema:
        return scan
    filters = [_may_fulfil(spark, schema, each) for each in conditions]
    wanted = [_may_contain(schema[column], intervals, type_), *(each for each in filters if each is not None)]
    condition = reduce(Column.__and__, (F.coalesce(each, F.lit(True)) for each in wanted))  # without statistics: any
    rows = rows_of_actions(spark, snapshot) if files is None else local_rows(spark, files)
    kept = as_add_files(spark, catalyst.dataset(rows.where(condition).limit(MOST_FILES + 1))).collectAsList()
    if kept.size() > MOST_FILES:
        return scan
    chosen = catalyst.jvm(spark).scala.jdk.javaapi.CollectionConverters.asScala(kept).toVector()
    fewer = catalyst.analysed_plan(rows_of_files(spark, index.deltaLog(), snapshot, chosen)).relation()
    return with_relation(scan, fewer, scan.output())


def _may_contain(field: StructField, intervals: Sequence[tuple[str, str]], type_: str) -> Column:
    """Return the condition of AddFiles that may contain a value in an interval; NULL without statistics."""
    least, greatest = _ends(field, DataType.fromDDL(type_))
    overlaps = [(least <= F.lit(high).cast(type_)) & (greatest >= F.lit(low).cast(type_)) for low, high in intervals]
    return reduce(Column.__or__, overlaps)


def _may_fulfil(spark: SparkSession, schema: Mapping[str, StructField], condition: J) -> Column | None:
    """Return the condition of AddFiles that may contain a row which fulfils a comparison of a column with a constant;
    None for any other condition.
    """
    comparison = catalyst.kind(condition)
    if comparison not in MIRRORED:
        return None
    one, other = condition.left(), condition.right()
    if catalyst.kind(other) == "AttributeReference":
        one, other, comparison = other, one, MIRRORED[comparison]
    field = schema.get(str(one.name())) if catalyst.kind(one) == "AttributeReference" else None
    if field is None or not other.foldable() or not SKIPPABLE.fullmatch(field.dataType.simpleString()):
        return None
    (least, greatest), value = _ends(field, field.dataType), catalyst.column(spark, other)
    match comparison:
        case "GreaterThan":
            return greatest > value
        case "GreaterThanOrEqual":
            return greatest >= value
        case "LessThan":
            return least < value
        case "LessThanOrEqual":
            return least <= value
        case _:
            return (least <= value) & (greatest >= value)


def _ends(field: StructField, type_: DataType) -> tuple[Column, Column]:
    """Return the least and the greatest value of a column in an AddFile, by its statistics."""
    name = physical_name(field)
    ends = StructType([StructField(name, type_)])
    statistics = F.from_json("stats", StructType([StructField(end, ends) for end in ("minValues", "maxValues")]))
    return statistics["minValues"][name], statistics["maxValues"][name]
