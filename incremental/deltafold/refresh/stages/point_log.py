"""Keep the log of the points of k-means: append their change, or write all points again under new references."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.loops import POSITION, STEP
from deltafold.algebra.plan import Plan
from deltafold.algebra.program import BUCKET, ROWS
from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.delta_rules import DeltaRules
from deltafold.dataflow.loops.clusters.cluster_sums import ClusterSums
from deltafold.dataflow.loops.clusters.cluster_table import MARGIN
from deltafold.dataflow.loops.clusters.near_points import NearPoints
from deltafold.dataflow.loops.leaves import bytes_of_leaves
from deltafold.dataflow.lowering import Relation
from deltafold.lake.files import needs_mapping
from deltafold.lake.protocol import Table
from deltafold.refresh.epoch import Epoch
from deltafold.refresh.epoch_leaves import EpochLeaves


@dataclass
class ClusterPoints:
    """The points of a loop in an epoch, computed once."""

    epoch: Epoch
    leaves: EpochLeaves
    rules: DeltaRules
    sums: ClusterSums

    @cached_property
    def change(self) -> DataFrame | None:
        """Their change; None if there is none."""
        change, most = self.rules.change(self._side), self.epoch.tuning.local_bytes
        return None if change is None else self._keep(change, self.leaves.bytes_read(self._side) <= most)

    @cached_property
    def after(self) -> DataFrame:
        """The points after the epoch."""
        size, most = bytes_of_leaves(self._side, self.leaves.bytes), self.epoch.tuning.local_bytes
        return self._keep(self.rules.after(self._side), size <= most)

    def _keep(self, points: Relation, few: bool) -> DataFrame:
        return self.sums.checkpoints.keep(self.sums.points(points, self._side.columns, few))

    @property
    def _side(self) -> Plan:
        """The side input that has them."""
        table = self.sums.table
        return next(side.plan for side in table.loop.sides if side.given.name == table.clusters.side.name)


@dataclass(frozen=True)
class PointLog:
    """The log in one epoch."""

    epoch: Epoch
    sums: ClusterSums
    points: ClusterPoints

    @property
    def table(self) -> Table:
        """The table."""
        return self.epoch.tables[self._name]

    def is_kept(self, references: DataFrame) -> bool:
        """Return whether the log had all points before the epoch: a first load does not write it."""
        return self.table.size(self._before)[0] > 0 or not self._count_points(references)

    def near(self, references: DataFrame) -> Callable[[DataFrame, DataFrame | None], NearPoints]:
        """Return how the points near other centers are found."""
        table, assignment, before = self.table, self.sums.assignment, self._before
        assert before is not None
        most = self.epoch.tuning.reread_share * (table.rows(before) or self._count_points(references))

        def find(references: DataFrame, change: DataFrame | None) -> NearPoints:
            changed = None if change is None else assignment.log(change, references)
            return NearPoints(table.at(before), changed, most, self.sums.checkpoints)

        return find

    def follow(self, then: DataFrame | None, now: DataFrame | None) -> str | None:
        """Write the log for the references of the epoch, if it has to be; returns how, None if it has not.

        then: the stored references before the epoch, None if it is the first; now: after it, None if there are none.
        """
        if self.epoch.is_written(self._name):
            return None
        if then is None:
            return self._create()
        old, new = self._by_place(then), {} if now is None else self._by_place(now)
        if old != new:
            return self._replace(now if new else None)
        change = self.points.change if new and self.is_kept(then) else None
        if now is None or change is None:
            return None
        most = self.epoch.tuning.point_log_rows * self._count_points(now)
        if (self.table.rows(self._before or 0) or 0) > most:
            return self._replace(now)
        rows = self.sums.assignment.log(change, now).coalesce(1).sortWithinPartitions(MARGIN)
        self.table.append(rows, self.epoch.mark(self._name), BUCKET)
        return "appended"

    @property
    def _name(self) -> str:
        name = self.sums.table.loop.points
        assert name is not None
        return name

    @property
    def _before(self) -> int | None:
        return self.epoch.before(self._name)

    def _create(self) -> str:
        """Create the log without rows."""
        rows = self.sums.assignment.empty_log(self.points.after)
        mapped = needs_mapping(self.sums.table.stored_points.columns)
        self.table.append(rows, self.epoch.mark(self._name), BUCKET, mapped)
        return "first load"

    def _replace(self, references: DataFrame | None) -> str:
        """Write all points; none if there are no references."""
        assignment, points = self.sums.assignment, self.points.after
        if references is None:
            rows = assignment.empty_log(points)
        else:
            files = 1 + self._count_points(references) // self.epoch.tuning.point_log_file_rows
            rows = assignment.log(points, references).repartitionByRange(files, F.col(MARGIN))
        self.table.overwrite(rows.sortWithinPartitions(MARGIN), self.epoch.mark(self._name), BUCKET)
        return "rewritten"

    def _count_points(self, references: DataFrame) -> int:
        """Return the number of points that references have."""
        row = references.where(f"{STEP.name} = 0").agg(F.sum(ROWS)).first()
        return 0 if row is None else int(row[0] or 0)

    def _by_place(self, references: DataFrame) -> dict[tuple[int, int], tuple[object, ...]]:
        """Return the references by step and number, without the sums of their points."""
        rows = references.select(STEP.name, POSITION.name, *map(quoted, self.sums.table.row)).collect()
        return {(row[0], row[1]): tuple[object, ...](row) for row in rows}
