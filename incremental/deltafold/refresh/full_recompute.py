"""Maintain a view by definition: publish the difference of two answers of the batch query (D-016).

Two modes. *recompute* (policy auto, where the compiler refuses): the batch answer minus the view's rows.
*definition*: the batch answer after minus the batch answer before, the oracle that the calculus is tested against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.constraints import Constraint
from deltafold.algebra.program import BUCKET, WEIGHT
from deltafold.algebra.results.report import RECOMPUTED, EpochVerdict
from deltafold.algebra.results.upkeep import VIEW
from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.publish import Bag, BagChange, stored_bag
from deltafold.dataflow.state_schema import StoredTable
from deltafold.lake.files import needs_mapping
from deltafold.refresh.epoch import Epoch, EpochResult
from deltafold.refresh.incremental_refresh import no_partition_key
from deltafold.spark.checkpoint import compute_measures, measured_once

Batch = Callable[[Mapping[str, DataFrame], str], DataFrame]
"""The batch query over frames of its sources, at a time of the clock; empty if it reads none."""


@dataclass(frozen=True, kw_only=True)
class FullRecompute:
    """A view maintained by recomputing its query; `by_definition` compares two answers instead of answer and view.

    reads_clock: its answer depends on the time of the epoch, and is compared with the view's rows in any case;
    partition_key: finds the answer's column that contains a partition of a source.
    """

    mode: ClassVar[str] = "recompute"
    verdict: ClassVar[EpochVerdict] = RECOMPUTED
    fingerprint: str
    sources: tuple[str, ...]
    columns: tuple[str, ...]
    batch: Batch
    by_definition: bool
    reads_clock: bool = False
    constraints: tuple[Constraint, ...] = ()
    partition_key: Callable[[], str | None] = no_partition_key

    @property
    def invariant(self) -> frozenset[str]:
        """None: no source has to be invariant."""
        return frozenset()

    @property
    def tables(self) -> tuple[str, ...]:
        """The view's own table alone."""
        return (VIEW,)

    @property
    def states(self) -> dict[str, list[str]]:
        """No states."""
        return {}

    @property
    def convertible(self) -> dict[str, tuple[str, ...]]:
        """No states."""
        return {}

    def storage_of(self, table: str, buckets: int) -> StoredTable:
        """Return a bag of the answer."""
        return stored_bag(self.columns, buckets)

    def run(self, epoch: Epoch) -> EpochResult:
        """Run the query, and publish the difference."""
        if epoch.is_written(VIEW):
            return EpochResult()
        before, table = epoch.before(VIEW), epoch.tables[VIEW]
        bag = Bag(epoch.spark, table, self.columns, epoch.intent.buckets, self.partition_key(), epoch.tuning)
        with epoch.measure.phase("recompute"):
            answer = self._answer(epoch)
            if before is None:
                moved = bag.load(answer, epoch.mark(VIEW), name_mapping=needs_mapping(self.columns), small=False)
            else:
                moved = self._exchange(answer, bag, epoch, before)
        if not moved.rows and before is not None:
            return EpochResult()
        return EpochResult(groups=0, change_rows=moved.rows, paths={VIEW: "recompute"}, partitions=moved.partitions)

    def _exchange(self, answer: DataFrame, bag: Bag, epoch: Epoch, before: int) -> BagChange:
        """Publish the difference between the answer and the view; returns that difference."""
        with measured_once(bag.consolidate(answer), [F.count(F.lit(1)).alias("distinct")]) as (new, counted):
            change, mark = minus(new, self._old(epoch, before)), epoch.mark(VIEW)
            if bag.small and not self._compares_answers:
                # few rows are compared in one task quicker than with a shuffle
                few = counted["distinct"] <= epoch.tuning.broadcast_rows
                compared = bag.consolidate(change.coalesce(1) if few else change)
                moved = bag.summarise(compared, compute_measures(compared, bag.measures(compared)))
                if moved.rows:
                    bag.replace(new, mark)
                return moved
            consolidated = bag.consolidate(change)
            with measured_once(consolidated, bag.measures(consolidated)) as (difference, measured):
                moved = bag.summarise(consolidated, measured)
                if moved.rows:
                    bag.publish(difference, moved, before, mark, name_mapping=needs_mapping(self.columns))
                return moved

    def _answer(self, epoch: Epoch) -> DataFrame:
        """Return the batch query's answer now."""
        frames = {name: source.after.rows() for name, source in epoch.sources.items()}
        return self.batch(frames, epoch.intent.clock).toDF(*self.columns)

    def _old(self, epoch: Epoch, before: int) -> DataFrame:
        """Return the view's rows; by definition the batch query's answer before."""
        if not self._compares_answers:
            return epoch.tables[VIEW].at(before).select(*(quoted(name) for name in self.columns))
        frames = {name: source.before.rows() for name, source in epoch.sources.items() if source.before is not None}
        return self.batch(frames, "").toDF(*self.columns)

    @property
    def _compares_answers(self) -> bool:
        return self.by_definition and not self.reads_clock


def minus(new: DataFrame, old: DataFrame) -> DataFrame:
    """Return the Z-set of a consolidated answer minus rows; equal rows are not cancelled."""
    return new.drop(BUCKET).unionByName(old.withColumn(WEIGHT, F.lit(-1).cast("bigint")))
