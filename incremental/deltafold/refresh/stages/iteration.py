"""Run one loop that is iterated as a stage of an epoch: all steps from the pinned versions, then one commit."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.loops import LoopState
from deltafold.algebra.program import BUCKET, WEIGHT
from deltafold.dataflow.delta_rules import DeltaRules
from deltafold.dataflow.loops.iterated_answer import IteratedAnswer
from deltafold.dataflow.loops.iteration import Iterated, Iteration
from deltafold.dataflow.loops.leaves import bytes_of_leaves
from deltafold.dataflow.loops.rounds import Round
from deltafold.dataflow.lowering import Lowering
from deltafold.dataflow.publish import Bag
from deltafold.lake.files import needs_mapping
from deltafold.lake.upsert import BY_WRITER
from deltafold.refresh.epoch import Epoch
from deltafold.refresh.epoch_leaves import EpochLeaves
from deltafold.refresh.stages.recursion import LoopResult, add_versions
from deltafold.spark.checkpoint import Checkpoints


@dataclass(frozen=True, kw_only=True)
class IterationStage:
    """Maintains a numeric loop in one epoch. checkpoints: frees what was computed once when the epoch ends."""

    epoch: Epoch
    lowering: Lowering
    leaves: EpochLeaves
    rules: DeltaRules
    checkpoints: Checkpoints

    def run(self, loop: LoopState) -> LoopResult:
        """Iterate the loop if anything that it reads changed, and add its versions to the leaves of the epoch."""
        table, before = self.epoch.tables[loop.name], self.epoch.before(loop.name)
        answer = IteratedAnswer(loop, self.epoch.intent.buckets)
        result, change = LoopResult(), None
        changed = before is None or any(self.rules.has_changed(plan) for plan in loop.inputs)
        if changed and not self.epoch.is_written(loop.name):
            stored = None if before is None else answer.answer(table.at(before))
            result, change = self._publish(answer, self.iterate(loop, stored), stored)
        add_versions(self.epoch, self.leaves, loop.name, answer, change)
        return result

    def iterate(self, loop: LoopState, stored: DataFrame | None) -> Iterated:
        """Evaluate the steps over the inputs as they are now; stored: the last answer."""
        tuning = self.epoch.tuning
        size = sum(bytes_of_leaves(plan, self.leaves.bytes) for plan in loop.inputs)
        small = size <= tuning.local_bytes
        iteration = Iteration(
            loop=loop,
            lowering=self.lowering,
            after=self.rules.after,
            most=tuning.local_rows,
            small=small,
            block=self.checkpoints.cached,
        )
        return iteration.run(stored)

    def _publish(
        self, answer: IteratedAnswer, iterated: Iterated, stored: DataFrame | None
    ) -> tuple[LoopResult, DataFrame | None]:
        """Write the difference between the answer and the stored one; return it, None if there is none."""
        epoch, loop = self.epoch, answer.loop
        table, before, tuning = epoch.tables[loop.name], epoch.before(loop.name), epoch.tuning
        bag = Bag(epoch.spark, table, answer.row, epoch.intent.buckets, None, tuning)
        change = iterated.rows
        if stored is not None:
            old = stored.withColumn(WEIGHT, F.lit(-1).cast("bigint"))
            change = change.withColumn(WEIGHT, F.lit(1).cast("bigint")).unionByName(old)
        small = bool(iterated.steps) and max(iterated.steps) <= tuning.local_rows
        consolidated = bag.consolidate(change)
        rows, measured = self.checkpoints.measure(consolidated, bag.measures(consolidated), small=small)
        moved, rounds = bag.summarise(rows, measured), tuple(Round("steps", rows) for rows in iterated.steps)
        if before is not None and not moved.rows:
            return LoopResult(path=None, rounds=rounds, touched=0, residuals=iterated.residuals), None
        direct = bag.publish(rows, moved, before, epoch.mark(loop.name), name_mapping=needs_mapping(answer.row))
        path = "first load" if before is None else "changed" if direct else f"changed{BY_WRITER}"
        return LoopResult(path=path, rounds=rounds, touched=moved.rows, residuals=iterated.residuals), rows.drop(BUCKET)
