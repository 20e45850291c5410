"""Run one loop of k-means as a stage of an epoch: by references if they are near enough, else from the start."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from incremental.algebra.loops import STEP, LoopState
from incremental.algebra.program import BUCKET, WEIGHT
from incremental.algebra.sqltext import quoted
from incremental.dataflow.delta_rules import DeltaRules
from incremental.dataflow.loops.cluster_table import ClusterTable
from incremental.dataflow.loops.clustering import Clustered, Clustering
from incremental.dataflow.loops.iterated_answer import sum_answer
from incremental.dataflow.loops.leaves import bytes_of_leaves
from incremental.dataflow.loops.rounds import Round
from incremental.dataflow.loops.versions import LoopVersions
from incremental.dataflow.lowering import Lowering
from incremental.dataflow.merge import BY_WRITER
from incremental.lake.files import needs_mapping
from incremental.refresh.epoch import Epoch
from incremental.refresh.epoch_leaves import EpochLeaves
from incremental.refresh.stages.iteration import IterationStage
from incremental.refresh.stages.recursion import LoopResult
from incremental.spark.checkpoint import Checkpoints, plan_at_once

RENEWED = "renewed"  # the path of a table whose references were replaced


@dataclass(frozen=True)
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
        if before is not None and STEP.name not in table.schema(before).names:
            return self._replay.run(loop)  # a table of the answer alone, written by an earlier release
        stored, result, change = ClusterTable(loop), LoopResult(), None
        changed = before is None or any(self.rules.has_changed(plan) for plan in loop.inputs)
        if changed and not self.epoch.is_written(loop.name):
            rows = None if before is None else self.checkpoints.small(table.at(before))
            found, path = self._maintain(stored, rows)
            direct = self._write(stored, found)
            path = path if direct or before is None else f"{path}{BY_WRITER}"
            result = LoopResult(path, found.rounds, found.touched)
            change = None if rows is None else self._difference(stored, rows, found.answer)
        after = table.version()
        assert after is not None, f"{loop.name} is written in the first epoch"
        self.leaves.loops[loop.name] = LoopVersions(table, stored, before, after, change)
        return result

    @property
    def _replay(self) -> IterationStage:
        return IterationStage(self.epoch, self.lowering, self.leaves, self.rules, self.checkpoints)

    def _maintain(self, stored: ClusterTable, rows: DataFrame | None) -> tuple[Clustered, str]:
        """Return the evaluation, and the path by which its table is written."""
        loop, path = stored.loop, "first load" if rows is None else RENEWED
        side = next(side.plan for side in loop.sides if side.given.name == stored.clusters.side.name)
        most = self.epoch.tuning.local_bytes
        clustering = Clustering(stored, self.lowering, self.checkpoints.most, self.checkpoints.cached)
        if rows is not None and not (references := stored.references(rows)).isEmpty():
            moved = self.rules.change(side)
            few = self.leaves.bytes_read(side) <= most
            change = None if moved is None else clustering.points(moved, side.columns, few)
            start = self._start(stored) if self.rules.has_changed(loop.init) else None
            if (found := clustering.by_references(references, change, start)) is not None:
                return found, "changed"
        points = clustering.points(
            self.rules.after(side), side.columns, bytes_of_leaves(side, self.leaves.bytes) <= most
        )
        found = clustering.from_start(self._start(stored), points)
        return found or self._without_references(stored), path

    def _start(self, stored: ClusterTable) -> DataFrame:
        """Return the start as it is now."""
        init = stored.loop.init
        return self.lowering.frame(self.rules.after(init), list(zip(init.columns, stored.row, strict=True)))

    def _without_references(self, stored: ClusterTable) -> Clustered:
        """Return the answer of the steps as they are evaluated for any other loop."""
        found = self._replay.iterate(stored.loop, None)
        rounds = tuple(Round("steps", rows) for rows in found.steps)
        return Clustered(None, found.rows, rounds, 0)

    def _write(self, stored: ClusterTable, found: Clustered) -> bool:
        """Replace the table in one commit; returns whether by a direct one."""
        table, mark = self.epoch.tables[stored.loop.name], self.epoch.mark(stored.loop.name)
        rows = stored.answer_rows(found.answer)
        if found.references is not None:
            rows = found.references.unionByName(rows)
        rows = plan_at_once(rows.select(*map(quoted, stored.columns)).coalesce(1))
        if table.version() is None:
            return table.append(rows, mark, BUCKET, needs_mapping(stored.columns))
        return table.overwrite(rows, mark, BUCKET)

    def _difference(self, stored: ClusterTable, rows: DataFrame, answer: DataFrame) -> DataFrame:
        """Return the change of the answer."""
        new = answer.select(*map(quoted, stored.row)).withColumn(WEIGHT, F.lit(1).cast("bigint"))
        old = stored.answer(rows).withColumn(WEIGHT, F.lit(-1).cast("bigint"))
        return sum_answer(new.unionByName(old).coalesce(1), stored.row)
