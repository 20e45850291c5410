"""Run one loop of k-means as a stage of an epoch: by references if they are near enough, else from the start.

The commit of the loop's own table decides what the log of its points contains, which is written next: a crash between
the two leaves the references of the epoch, from which the next attempt writes the log.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.loops import LoopState
from deltafold.algebra.program import BUCKET, WEIGHT
from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.delta_rules import DeltaRules
from deltafold.dataflow.loops.clusters.by_references import ByReferences
from deltafold.dataflow.loops.clusters.cluster_sums import Clustered, ClusterSums
from deltafold.dataflow.loops.clusters.cluster_table import ClusterTable
from deltafold.dataflow.loops.clusters.from_start import from_start
from deltafold.dataflow.loops.iterated_answer import sum_answer
from deltafold.dataflow.loops.rounds import Round
from deltafold.dataflow.lowering import Lowering
from deltafold.dataflow.merge import BY_WRITER
from deltafold.lake.files import needs_mapping
from deltafold.refresh.epoch import Epoch
from deltafold.refresh.epoch_leaves import EpochLeaves
from deltafold.refresh.stages.iteration import IterationStage
from deltafold.refresh.stages.point_log import ClusterPoints, PointLog
from deltafold.refresh.stages.recursion import LoopResult, add_versions
from deltafold.spark.checkpoint import Checkpoints, plan_at_once

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
            found, path = self._evaluate(sums, points, log, rows)
            direct, now = self._write(stored, found), found.references
            path = path if direct or rows is None else f"{path}{BY_WRITER}"
            result = LoopResult(path, found.rounds, found.touched)
            change = None if rows is None else self._difference(stored, rows, found.answer)
        return LoopResult(result.path, result.rounds, result.touched, points=log.follow(references, now)), change

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
            if (found := evaluation.run(references, points.change, start)) is not None:
                return found, "changed"
        return from_start(sums, self._start(stored), points.after) or self._without_references(stored.loop), path

    def _start(self, stored: ClusterTable) -> DataFrame:
        """Return the start as it is now."""
        init = stored.loop.init
        return self.lowering.frame(self.rules.after(init), list(zip(init.columns, stored.row, strict=True)))

    def _without_references(self, loop: LoopState) -> Clustered:
        """Return the answer of the steps as they are evaluated for any other loop."""
        stage = IterationStage(self.epoch, self.lowering, self.leaves, self.rules, self.checkpoints)
        found = stage.iterate(loop, None)
        rounds = tuple(Round("steps", rows) for rows in found.steps)
        return Clustered(None, None, found.rows, rounds, 0)

    def _write(self, stored: ClusterTable, found: Clustered) -> bool:
        """Replace the table in one commit; returns whether by a direct one."""
        table, mark = self.epoch.tables[stored.loop.name], self.epoch.mark(stored.loop.name)
        rows = stored.answer_rows(found.answer)
        if found.references is not None and found.start is not None:
            rows = found.references.unionByName(stored.start_rows(found.start)).unionByName(rows)
        rows = plan_at_once(rows.select(*map(quoted, stored.columns)).coalesce(1))
        if table.version() is None:
            return table.append(rows, mark, BUCKET, needs_mapping(stored.columns))
        return table.overwrite(rows, mark, BUCKET)

    def _difference(self, stored: ClusterTable, rows: DataFrame, answer: DataFrame) -> DataFrame:
        """Return the change of the answer."""
        new = answer.select(*map(quoted, stored.row)).withColumn(WEIGHT, F.lit(1).cast("bigint"))
        old = stored.answer(rows).withColumn(WEIGHT, F.lit(-1).cast("bigint"))
        return sum_answer(new.unionByName(old).coalesce(1), stored.row)
