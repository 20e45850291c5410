"""Apply the change of an answer to a view's own table, as one commit that never rewrites the table.

The view is a bag: identical rows differ in `__copy`, so a weight change inserts or deletes particular copies. A new
copy is numbered by its epoch, so that an insertion never has to read the table; those of the first load have numbers
below 0, one for each row of it, so that identical rows need not be found.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from deltafold.algebra.errors import StateError
from deltafold.algebra.program import BUCKET, WEIGHT
from deltafold.algebra.sqltext import quoted
from deltafold.algebra.tuning import Tuning
from deltafold.dataflow.state_schema import StoredTable
from deltafold.dataflow.touched_partitions import known_partitions, partitions
from deltafold.lake.key_interval import KeyInterval
from deltafold.lake.physical_layout import repartition_by_bucket
from deltafold.lake.protocol import Clause, Mark, Table
from deltafold.lake.upsert import Extent, Matching, Upsert, WritePath, apply_upsert, is_rewritten, merge_exactly
from deltafold.spark.checkpoint import Checkpoints, compute_measures, in_one_task, plan_at_once
from deltafold.spark.row_identity import group_identical, identical_by_hash, identical_sql, row_keys

COPY, IS_ADDED = "__copy", "__inserted"
COPIES_PER_EPOCH = 1 << 32


def stored_bag(columns: tuple[str, ...], buckets: int) -> StoredTable:
    """Return the storage of a view's rows, which are not sorted."""
    bucket = f"CAST(pmod(hash({', '.join(quoted(name) for name in columns)}), {buckets}) AS INT)"
    return StoredTable((*columns, COPY, BUCKET), (), "0" if buckets == 1 or not columns else bucket)


@dataclass(frozen=True)
class BagChange:
    """The size of a change: rows added or removed, rows deleted, their buckets, all partitions (None: unknown).

    interval: of the first column, in the rows that are deleted; None in a first load, or without columns.
    """

    rows: int
    deleted: int
    buckets: tuple[int, ...]
    partitions: tuple[str, ...] | None
    interval: KeyInterval | None = None


class Bag:
    """The table of one view; partition_key: the column that contains the partition of a row (D-008)."""

    def __init__(
        self,
        spark: SparkSession,
        table: Table,
        columns: tuple[str, ...],
        buckets: int,
        partition_key: str | None,
        tuning: Tuning,
    ) -> None:
        self._spark, self._table, self._columns, self._buckets = spark, table, columns, buckets
        self._partition_key, self._tuning = partition_key, tuning

    def consolidate(self, change: DataFrame) -> DataFrame:
        """Sum identical rows and drop those that cancel; one row for each, with its weight."""
        weight = F.sum(WEIGHT) if WEIGHT in change.columns else F.count(F.lit(1))
        summed = group_identical(change, self._columns, (WEIGHT, weight.cast("bigint")))
        bucket = stored_bag(self._columns, self._buckets).bucket
        return summed.where(F.col(WEIGHT) != 0).withColumn(BUCKET, F.expr(bucket))

    def load(self, rows: DataFrame, mark: Mark, *, name_mapping: bool, small: bool) -> BagChange:
        """Write the first rows of the table; returns their number. small: as one file (D-158)."""
        bucketed = rows.withColumn(BUCKET, F.expr(stored_bag(self._columns, self._buckets).bucket))
        arranged = bucketed if self._buckets == 1 and not small else self._arrange(bucketed)
        numbered = arranged.withColumn(COPY, -1 - F.monotonically_increasing_id())
        self._table.append(numbered.select(*self._fields), mark, BUCKET, name_mapping=name_mapping)
        version = self._table.version()
        assert version is not None
        rows_written = self._table.rows(version)
        if rows_written is not None and self._partition_key is None:
            return BagChange(rows_written, 0, (), partitions=None)
        counted = [partitions(self._partition_key, self._tuning.reported_partitions).alias("partitions")]
        measured = compute_measures(self._table.at(version), [F.count(F.lit(1)).alias("rows"), *counted])
        named = known_partitions(measured["partitions"], self._tuning.reported_partitions)
        return BagChange(measured["rows"], 0, (), named)

    def publish(
        self, change: DataFrame, moved: BagChange, before: int | None, mark: Mark, *, name_mapping: bool
    ) -> bool:
        """Apply a consolidated change, computed once, to the version `before`; moved: its size.

        Returns False if an existing table was written by Delta's writer instead of a direct commit.
        """
        inserted = self._number_copies(change, mark.epoch)
        if before is None or not moved.deleted:
            direct = self._table.append(self._arrange(inserted), mark, BUCKET, name_mapping=name_mapping)
            return direct or before is None
        stored = self._table.at(before)
        extent = Extent(rows=moved.rows, buckets=moved.buckets, of_buckets=self._buckets)
        path = extent.choose_path(*self._table.size(), self._tuning)

        if path is WritePath.VECTORS:
            same = identical_by_hash(change.schema, self._columns)
            all_copies = replace(self._match(self._all_copies(change), inserted, same), interval=moved.interval)
            if merge_exactly(self._table, extent, all_copies, mark, moved.deleted):
                return True
        few = path is WritePath.REWRITE and extent.is_small(self._tuning)
        with ExitStack() as block:
            near = stored if few else stored.where(F.col(BUCKET).isin(list(moved.buckets)))
            counted = [F.count(F.lit(1)).alias("rows")]
            checkpoints = Checkpoints(block, self._tuning.local_rows)
            deleted, measured = checkpoints.measure(self._choose_copies(near, change, few=few), counted, small=few)
            if measured["rows"] != moved.deleted:
                absent = moved.deleted - measured["rows"]
                raise StateError(
                    f"the view table {self._table.path} lacks {absent} of the rows to delete: somebody changed it, "
                    "or values of the query depend on the order of its rows. Rebuild the view."
                )
            upsert = Upsert(
                extent=extent,
                matching=lambda: self._match(deleted, inserted, self._same(change, COPY, BUCKET)),
                stored=lambda _: stored,
                merged=lambda rows: self._rewrite(rows, deleted, inserted, few=extent.is_small(self._tuning)),
            )
            return apply_upsert(self._table, upsert, mark, path).is_direct

    def _all_copies(self, change: DataFrame) -> DataFrame:
        """Return the rows that lose copies, for a merge that deletes all copies of each, which need not be chosen."""
        return change.where(F.col(WEIGHT) < 0).withColumn(COPY, F.lit(None).cast("bigint")).select(*self._fields)

    def _match(self, deleted: DataFrame, inserted: DataFrame, same: str) -> Matching:
        """Return the change for a merge; same: the condition that t is a row to delete, u."""
        change = deleted.withColumn(IS_ADDED, F.lit(False)).unionByName(inserted.withColumn(IS_ADDED, F.lit(True)))
        values = {field: f"u.{field}" for field in self._fields}
        clauses = [Clause("delete", None, {}), Clause("insert", f"u.{IS_ADDED}", values)]
        return Matching(change=change, same=f"NOT u.{IS_ADDED} AND {same}", clauses=clauses)

    def _rewrite(self, stored: DataFrame, deleted: DataFrame, inserted: DataFrame, *, few: bool) -> DataFrame:
        """Return all rows but the deleted ones, and the inserted ones."""
        if few:
            stored, deleted = in_one_task(stored, deleted)
        same = F.expr(self._same(stored, COPY, BUCKET))
        kept = stored.alias("t").join(deleted.alias("u"), same, "left_anti")
        rows = self._arrange(kept.unionByName(inserted))
        return plan_at_once(rows) if few else rows

    def replace(self, answer: DataFrame, mark: Mark) -> None:
        """Replace all rows of the table by those of a consolidated answer, in one commit."""
        self._table.overwrite(self._arrange(self._number_copies(answer, mark.epoch)), mark, BUCKET)

    def measures(self, change: DataFrame) -> list[Column]:
        """Return the aggregates over a consolidated change that measure it."""
        first = [change.schema[name] for name in self._columns[:1]]
        return [
            *(column for field in first for column in KeyInterval.measures(field, f"{WEIGHT} < 0")),
            F.expr(f"coalesce(sum(abs({WEIGHT})), 0)").alias("rows"),
            F.expr(f"coalesce(sum(if({WEIGHT} < 0, -{WEIGHT}, 0)), 0)").alias("deleted"),
            F.collect_set(F.when(F.col(WEIGHT) < 0, F.col(BUCKET))).alias("buckets"),
            partitions(self._partition_key, self._tuning.reported_partitions).alias("partitions"),
        ]

    def summarise(self, change: DataFrame, measures: Mapping[str, Any]) -> BagChange:
        """Return the size of a consolidated change from the values of its measures."""
        named = known_partitions(measures["partitions"], self._tuning.reported_partitions)
        interval = next((KeyInterval.of(change.schema[name], measures) for name in self._columns[:1]), None)
        return BagChange(measures["rows"], measures["deleted"], tuple(sorted(measures["buckets"])), named, interval)

    @property
    def small(self) -> bool:
        """Whether rewriting the whole table is cheaper than finding the rows to change."""
        return is_rewritten(*self._table.size(), self._tuning)

    def _number_copies(self, change: DataFrame, epoch: int) -> DataFrame:
        added = change.where(F.col(WEIGHT) > 0).withColumn("__n", F.expr(f"explode(sequence(1L, {WEIGHT}))"))
        numbered = added.withColumn(COPY, F.lit(epoch * COPIES_PER_EPOCH) + F.col("__n"))
        return numbered.select(*self._fields)

    @property
    def _fields(self) -> list[str]:
        return [*(quoted(name) for name in self._columns), COPY, BUCKET]

    def _choose_copies(self, stored: DataFrame, change: DataFrame, *, few: bool) -> DataFrame:
        """Return as many stored copies of each row as its negative weight says, the oldest first."""
        gone = change.where(F.col(WEIGHT) < 0)
        if few:
            stored, gone = in_one_task(stored, gone)
        joined = stored.alias("t").join(gone.alias("u"), F.expr(self._same(stored, BUCKET)))
        group = [F.expr(key) for key in row_keys(stored.schema, self._columns, "t.")]
        order = Window.partitionBy(*group).orderBy(F.col(f"t.{COPY}"))
        ranked = joined.withColumn("__n", F.row_number().over(order)).where(f"__n <= -u.{WEIGHT}")
        return ranked.select(*(F.col(f"t.{field}") for field in self._fields))

    def _same(self, rows: DataFrame, *more: str) -> str:
        """Return the SQL condition that t and u are the same row of such rows, and equal in more columns."""
        return " AND ".join([*(f"t.{name} = u.{name}" for name in more), identical_sql(rows.schema, self._columns)])

    def _arrange(self, rows: DataFrame) -> DataFrame:
        return repartition_by_bucket(rows, self._buckets) if self._buckets > 1 else rows.coalesce(1)
