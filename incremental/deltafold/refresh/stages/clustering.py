"""Run one loop of k-means as a stage of an epoch: by references if they are near enough, else from the start.

The commit of the loop's own table decides what the log of its points contains, which is written next: a crash between
the two leaves the references of the epoch, from which the next attempt writes the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.loops import POSITION, STEP, LoopState
from deltafold.algebra.plan import Plan
from deltafold.algebra.program import BUCKET, ROWS, WEIGHT
from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.delta_rules import DeltaRules
from deltafold.dataflow.loops.clusters.cluster_sums import Clustered, ClusterSums
from deltafold.dataflow.loops.clusters.cluster_table import MARGIN, ClusterTable
from deltafold.dataflow.loops.clusters.evaluation import ByReferences, from_start
from deltafold.dataflow.loops.clusters.near_points import NearPoints
from deltafold.dataflow.loops.iterated_answer import sum_answer
from deltafold.dataflow.loops.leaves import bytes_of_leaves
from deltafold.dataflow.loops.rounds import Round
from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.lake.files import needs_mapping
from deltafold.lake.protocol import Table
from deltafold.lake.upsert import BY_WRITER
from deltafold.refresh.epoch import Epoch
from deltafold.refresh.epoch_leaves import EpochLeaves
from deltafold.refresh.stages.iteration import IterationStage
from deltafold.refresh.stages.recursion import LoopResult, add_versions
from deltafold.spark.checkpoint import Checkpoints, plan_at_once

RENEWED = "renewed"  # the path of a table whose references were replaced


@dataclass(frozen=True, kw_only=True)
class ClusteringStage:
    """Maintains a loop of k-means in one epoch. checkpoints: frees what was computed once when the epoch ends."""

    epoch: Epoch
    lowering: Lowering
    leaves: EpochLeaves
    rules: DeltaRules
    checkpoints: Checkpoints

    def run(self, loop: LoopState) -> LoopResult:
        """Evaluate the loop if anything that it reads changed, and add its versions to the leaves of the epoch."""
        table, before = self.epoch.tables[loop.name], self.epoch.before(loop.name)
        stored, result, change = ClusterTable(loop), LoopResult(), None
        if before is None or any(self.rules.has_changed(plan) for plan in loop.inputs):
            rows = None if before is None else self.checkpoints.small(table.at(before))
            result, change = self._maintain(stored, rows)
        add_versions(self.epoch, self.leaves, loop.name, stored, change)
        return result

    def _maintain(self, stored: ClusterTable, rows: DataFrame | None) -> tuple[LoopResult, DataFrame | None]:
        """Write both tables; return the change of the answer, None where the files show it. rows: of the table."""
        loop, table = stored.loop, self.epoch.tables[stored.loop.name]
        sums = ClusterSums(stored, self.lowering, self.checkpoints.most, self.checkpoints.cached)
        points = ClusterPoints(self.epoch, self.leaves, self.rules, sums)
        log, result, change = PointLog(self.epoch, sums, points), LoopResult(), None
        references = None if rows is None else stored.references(rows)
        if self.epoch.is_written(loop.name):
            version = table.version()
            assert version is not None
            now: DataFrame | None = self.checkpoints.small(stored.references(table.at(version)))
        else:
            clustered, path = self._evaluate(sums, points, log, rows)
            direct, now = self._write(stored, clustered), clustered.references
            path = path if direct or rows is None else f"{path}{BY_WRITER}"
            result = LoopResult(path=path, rounds=clustered.rounds, touched=clustered.touched)
            change = None if rows is None else self._difference(stored, rows, clustered.answer)
        return LoopResult(
            path=result.path, rounds=result.rounds, touched=result.touched, points=log.follow(references, now)
        ), change

    def _evaluate(
        self, sums: ClusterSums, points: ClusterPoints, log: PointLog, rows: DataFrame | None
    ) -> tuple[Clustered, str]:
        """Return the evaluation, and the path by which its table is written."""
        stored, path = sums.table, "first load" if rows is None else RENEWED
        if rows is not None and not (references := stored.references(rows)).isEmpty():
            start = stored.start(rows)
            if self.rules.has_changed(stored.loop.init):
                start = sums.compute(sums.number_start(self._start(stored)))
            evaluation = ByReferences(sums, log.near(references) if log.is_kept(references) else None)
            if (clustered := evaluation.run(references, points.change, start)) is not None:
                return clustered, "changed"
        return from_start(sums, self._start(stored), points.after) or self._without_references(stored.loop), path

    def _start(self, stored: ClusterTable) -> DataFrame:
        """Return the start as it is now."""
        init = stored.loop.init
        return self.lowering.frame(self.rules.after(init), list(zip(init.columns, stored.row, strict=True)))

    def _without_references(self, loop: LoopState) -> Clustered:
        """Return the answer of the steps as they are evaluated for any other loop."""
        stage = IterationStage(
            epoch=self.epoch, lowering=self.lowering, leaves=self.leaves, rules=self.rules, checkpoints=self.checkpoints
        )
        iterated = stage.iterate(loop, None)
        rounds = tuple(Round("steps", rows) for rows in iterated.steps)
        return Clustered(references=None, start=None, answer=iterated.rows, rounds=rounds, touched=0)

    def _write(self, stored: ClusterTable, clustered: Clustered) -> bool:
        """Replace the table in one commit; returns whether by a direct one."""
        table, mark = self.epoch.tables[stored.loop.name], self.epoch.mark(stored.loop.name)
        rows = stored.answer_rows(clustered.answer)
        if clustered.references is not None and clustered.start is not None:
            rows = clustered.references.unionByName(stored.start_rows(clustered.start)).unionByName(rows)
        rows = plan_at_once(rows.select(*map(quoted, stored.columns)).coalesce(1))
        if table.version() is None:
            return table.append(rows, mark, BUCKET, name_mapping=needs_mapping(stored.columns))
        return table.overwrite(rows, mark, BUCKET)

    def _difference(self, stored: ClusterTable, rows: DataFrame, answer: DataFrame) -> DataFrame:
        """Return the change of the answer."""
        new = answer.select(*map(quoted, stored.row)).withColumn(WEIGHT, F.lit(1).cast("bigint"))
        old = stored.answer(rows).withColumn(WEIGHT, F.lit(-1).cast("bigint"))
        return sum_answer(new.unionByName(old).coalesce(1), stored.row)


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
        return None if change is None else self._keep(change, few=self.leaves.bytes_read(self._side) <= most)

    @cached_property
    def after(self) -> DataFrame:
        """The points after the epoch."""
        size, most = bytes_of_leaves(self._side, self.leaves.bytes), self.epoch.tuning.local_bytes
        return self._keep(self.rules.after(self._side), few=size <= most)

    def _keep(self, points: Relation, *, few: bool) -> DataFrame:
        return self.sums.checkpoints.keep(self.sums.points(points, self._side.columns, small=few))

    @property
    def _side(self) -> Plan:
        """The side input that has them."""
        table = self.sums.table
        return next(side.plan for side in table.loop.sides if side.given.name == table.clusters.side.name)


@dataclass(frozen=True)
class PointLog:
    """The log of the points of k-means in one epoch: append their change, or write all again under new references."""

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
            return NearPoints(log=table.at(before), changed=changed, most=most, checkpoints=self.sums.checkpoints)

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
        self.table.append(rows, self.epoch.mark(self._name), BUCKET, name_mapping=mapped)
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
