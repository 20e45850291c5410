"""Store the answer of a loop whose rows are not kept by level: a bag, changed as a view's own table is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.loops import LoopState
from deltafold.algebra.program import WEIGHT
from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.publish import stored_bag
from deltafold.dataflow.state_schema import StoredTable
from deltafold.lake.version_diff import Difference
from deltafold.spark.row_identity import group_identical


@dataclass(frozen=True)
class IteratedAnswer:
    """The table of one loop; buckets: of its partition."""

    loop: LoopState
    buckets: int

    @property
    def row(self) -> tuple[str, ...]:
        """The columns of a row."""
        return tuple(column.name for column in self.loop.columns)

    @property
    def stored(self) -> StoredTable:
        """What others need to know of the table."""
        return stored_bag(self.row, self.buckets)

    def answer(self, table: DataFrame) -> DataFrame:
        """Return the loop's answer of a version of the table."""
        return table.select(*map(quoted, self.row))

    def difference(self, versions: Difference) -> DataFrame:
        """Return the change of the answer between two versions of the table, from their files."""
        change = versions.frame(self.row, consolidate=True)
        if WEIGHT not in change.columns:
            change = change.withColumn(WEIGHT, F.lit(1).cast("bigint"))
        return sum_answer(change, self.row)


def sum_answer(change: DataFrame, row: Sequence[str]) -> DataFrame:
    """Return the change of an answer, with one weight for each row that it changes."""
    return group_identical(change, row, (WEIGHT, F.sum(WEIGHT))).where(f"{WEIGHT} <> 0")
