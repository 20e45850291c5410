"""Run one loop as a stage of an epoch: rounds from the pinned versions, one commit of its table, its change handed on.

Nothing is written before all rounds are done, so a crash leaves nothing of them, and the resumed epoch computes them
again. Once the table has the mark of the epoch, the change of the answer is read from the files of its two versions.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from deltafold.algebra.loops import LoopState
from deltafold.dataflow.delta_rules import DeltaRules
from deltafold.dataflow.loops.candidates import Candidates
from deltafold.dataflow.loops.from_nothing import FromNothing
from deltafold.dataflow.loops.leaves import SideInputs, bytes_of_leaves
from deltafold.dataflow.loops.rounds import Maintained, Round, Rounds, Step
from deltafold.dataflow.loops.touched import Touched
from deltafold.dataflow.loops.versions import LoopVersions, StoredAnswer
from deltafold.dataflow.loops.write import CandidateWrite
from deltafold.dataflow.lowering import Lowering
from deltafold.lake.protocol import Table
from deltafold.lake.upsert import Extent
from deltafold.refresh.epoch import Epoch
from deltafold.refresh.epoch_leaves import EpochLeaves
from deltafold.spark.checkpoint import Checkpoints

STARTED_OVER = "computed from nothing"  # the path of a loop of which more would have changed than it is worth


@dataclass(frozen=True, kw_only=True)
class LoopResult:
    """What a stage did.

    path: how the table was written, None if it was not; rounds: of this attempt; residuals: of each step, if measured;
    points: how the table beside it was written, of k-means; same_answer: the table was written, the answer is the same.
    """

    path: str | None = None
    rounds: tuple[Round, ...] = ()
    touched: int = 0
    residuals: tuple[float, ...] = ()
    points: str | None = None
    same_answer: bool = False


def add_versions(
    epoch: Epoch, leaves: EpochLeaves, name: str, stored: StoredAnswer, change: DataFrame | None, *, same: bool = False
) -> None:
    """Add a loop's versions before and after to the leaves of the epoch.

    change: that of its answer, if known; same: there is none, although the table was written.
    """
    table, before, after = epoch.tables[name], epoch.before(name), epoch.tables[name].version()
    assert after is not None, f"{name} is written in the first epoch"
    leaves.loops[name] = LoopVersions(
        table=table, stored=stored, before=before, after=after, change=change, same=same or before == after
    )


@dataclass(frozen=True, kw_only=True)
class LoopStage:
    """One loop in one epoch; checkpoints: frames computed once until the epoch ends."""

    epoch: Epoch
    lowering: Lowering
    leaves: EpochLeaves
    rules: DeltaRules
    checkpoints: Checkpoints

    def run(self, loop: LoopState) -> LoopResult:
        """Maintain one loop, and add its versions to the leaves of the epoch."""
        table, before = self.epoch.tables[loop.name], self.epoch.before(loop.name)
        candidates = Candidates(loop, self.epoch.intent.buckets)
        result, change = LoopResult(), None
        if not self.epoch.is_written(loop.name):
            result, change = self._compute(candidates, table, before)
        add_versions(self.epoch, self.leaves, loop.name, candidates, change, same=result.same_answer)
        return result

    def _compute(self, candidates: Candidates, table: Table, before: int | None) -> tuple[LoopResult, DataFrame | None]:
        """Run the rounds and write the table; return the change of the answer, None where the files show it."""
        size, tuning = 0 if before is None else table.size()[1], self.epoch.tuning
        sides = SideInputs(
            loop=candidates.loop,
            lowering=self.lowering,
            rules=self.rules,
            bytes_of=lambda plan: bytes_of_leaves(plan, self.leaves.bytes),
            checkpoints=self.checkpoints,
            tuning=tuning,
        )
        step = Step(candidates, sides, tuning, size)
        write = CandidateWrite(candidates, table, self.epoch.mark(candidates.loop.name))
        if before is None:
            return self._from_nothing(step, write, "first load"), None
        stored = table.at(before)
        if size <= tuning.prune_above_bytes:
            stored = self.checkpoints.keep(stored.coalesce(1) if step.is_small() else stored)
        rounds = Rounds(step, stored, lambda: table.rows(before) or 0, tuning)
        maintained = rounds.run()
        if maintained.given_up:
            return self._from_nothing(step, write, STARTED_OVER), None
        return self._write_changes(rounds, maintained, write)

    def _from_nothing(self, step: Step, write: CandidateWrite, path: str) -> LoopResult:
        rows, rounds = FromNothing(step, self.epoch.tuning, self.checkpoints.cached).run()
        write.load(rows)
        return LoopResult(path=path, rounds=rounds, touched=sum(one_round.rows for one_round in rounds))

    def _write_changes(
        self, rounds: Rounds, maintained: Maintained, write: CandidateWrite
    ) -> tuple[LoopResult, DataFrame | None]:
        """Write what changed, if anything did."""
        touched = maintained.touched
        if touched is None or not touched.changed:
            return LoopResult(path=None, rounds=maintained.rounds, touched=0 if touched is None else touched.size), None
        self.checkpoints.cached.callback(touched.free)
        path = self._merge(rounds, touched, write)
        result = LoopResult(path=path, rounds=maintained.rounds, touched=touched.size, same_answer=touched.same_answer)
        return result, None if touched.same_answer else rounds.touched.answer_change(touched)

    def _merge(self, rounds: Rounds, touched: Touched, write: CandidateWrite) -> str:
        changed, tuning, candidates = rounds.touched.to_write(touched), self.epoch.tuning, write.candidates
        extent = Extent(rows=touched.size, buckets=touched.buckets, of_buckets=candidates.buckets)
        stored = rounds.touched.stored
        few = extent.is_small(tuning) and stored.small
        return write.change(stored.rows, changed, extent, few=few, tuning=tuning).sentence
