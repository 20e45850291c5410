"""Maintain a loop in rounds, from the change of its init and its side inputs to the candidates that are to be written.

    first           =  Δinit at level 0  +  Δstep where the side inputs change
    derived(move)   =  Δstep where the loop's rows change by the move

    touched ← first;  while something moves:  touched ← touched + derived(move)

One Spark action a round: it computes the touched candidates and chooses the next move. Nothing is written meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.errors import StateError
from deltafold.algebra.loops import LEVEL
from deltafold.algebra.plan import Column
from deltafold.algebra.program import WEIGHT
from deltafold.algebra.tuning import Tuning
from deltafold.dataflow.delta_rules import DeltaRules
from deltafold.dataflow.loops.acceptance import acceptance_of
from deltafold.dataflow.loops.candidates import Candidates
from deltafold.dataflow.loops.leaves import FrontierChange, SideChange, SideInputs
from deltafold.dataflow.loops.touched import Again, LoopBefore, Touched, TouchedCandidates
from deltafold.dataflow.lowering import Relation
from deltafold.dataflow.pruning.pruning import Pruning
from deltafold.spark.checkpoint import Checkpoints, is_local

T = TypeVar("T")


@dataclass(frozen=True)
class Round:
    """What one round moved: `retract`, `insert`, `levels` or `steps`; and how many rows."""

    phase: str
    rows: int


@dataclass(frozen=True)
class Maintained:
    """The result of all rounds.

    touched: None where nothing changed, or given_up: where a run from nothing is shorter, or is needed to compare the
    loop's limit with the rounds of the definition.
    """

    rounds: tuple[Round, ...]
    touched: Touched | None
    given_up: bool = False


class Step:
    """Evaluates the step of a loop, or the change of it, as candidates with weights, one row each."""

    def __init__(self, candidates: Candidates, sides: SideInputs, tuning: Tuning, size: int) -> None:
        self.candidates, self.sides, self._tuning, self.size = candidates, sides, tuning, size

    def derive_change(self, leaves: SideChange | FrontierChange, block: ExitStack) -> DataFrame | None:
        """Return the derivations that the step adds and removes, not yet summed by candidate; None if there are none.

        block: frees what they are computed from.
        """
        change = self._rules(leaves, block).change(self.candidates.loop.step)
        return None if change is None else self._derive(change)

    def after(self, leaves: FrontierChange, block: ExitStack) -> DataFrame:
        """Return all that the step gives once a move is made, as `derive_change` does."""
        return self._derive(self._rules(leaves, block).after(self.candidates.loop.step))

    def _rules(self, leaves: SideChange | FrontierChange, block: ExitStack) -> DeltaRules:
        lowering = self.sides.lowering
        pruning = Pruning(lowering, leaves, Checkpoints(block, self._tuning.local_rows), self._tuning)
        return DeltaRules(lowering, leaves, pruning)

    def _derive(self, rows: Relation) -> DataFrame:
        return self.as_candidates(self.candidates.loop.step.columns, self.candidates.identity, rows)

    def as_candidates(self, columns: Sequence[Column], names: Sequence[str], rows: Relation) -> DataFrame:
        """Return rows as candidates with a weight."""
        frame = self.sides.lowering.frame(rows, list(zip(columns, names, strict=True)))
        return frame if rows.weighted else frame.withColumn(WEIGHT, F.lit(1).cast("bigint"))

    def sum_weights(self, parts: Sequence[DataFrame]) -> DataFrame | None:
        """Sum weights by candidate, without the sums that are 0; None for no parts."""
        if not parts:
            return None
        together = reduce(DataFrame.unionByName, parts)
        together = together.coalesce(1) if self.is_small() else together
        summed = self.candidates.group(together, self.candidates.identity, (WEIGHT, F.sum(WEIGHT)))
        return summed.where(f"{WEIGHT} <> 0")

    def is_small(self) -> bool:
        """Return whether one task computes a round sooner than several that exchange rows."""
        return self.sides.is_small(self.size)

    def init(self, rows: Relation) -> DataFrame:
        """Return rows of the loop's init, or their change, at level 0."""
        named = self.as_candidates(self.candidates.loop.init.columns, self.candidates.row, rows)
        return named.withColumn(LEVEL, F.lit(0))


class Block(ExitStack):
    """Frees frames; used: whether anything of a round was computed ahead, so that its plan fits no other round."""

    used = False

    def enter_context(self, cm: AbstractContextManager[T, bool | None]) -> T:
        """Free a frame after the block."""
        self.used = True
        return super().enter_context(cm)


class Rounds:
    """The rounds of one loop in one refresh. stored: its table before; rows: counts the candidates that it has."""

    def __init__(self, step: Step, stored: DataFrame, rows: Callable[[], int], tuning: Tuning) -> None:
        candidates = step.candidates
        self._step, self._candidates, self._rows, self._tuning = step, candidates, rows, tuning
        held = LoopBefore(stored, step.is_small())
        self.touched = TouchedCandidates(
            candidates, acceptance_of(candidates, small=held.small), held, tuning.local_rows
        )
        self._again: dict[str, Again] = {}

    def run(self) -> Maintained:
        """Move candidates until nothing more changes; raises NotConvergedError beyond the loop's limit."""
        block = ExitStack()
        first = self._first(block)
        if first is None:
            block.close()
            return Maintained((), None)
        touched, rounds = self.touched.after(None, first, block), list[Round]()
        while touched.move is not None:
            if touched.move.beyond or self._outgrown(touched):
                touched.free()
                return Maintained(tuple(rounds), None, given_up=True)
            rounds.append(Round(touched.move.phase, touched.move.rows))
            self._check_levels(rounds)
            touched = self._next(touched)
        return Maintained(tuple(rounds), touched)

    def _first(self, block: ExitStack) -> DataFrame | None:
        """Return the change of the candidates' derivations as long as what is accepted stays."""
        sides, loop = self._step.sides, self._candidates.loop
        init = sides.rules.change(loop.init)
        leaves = SideChange(
            self._candidates, sides, self._step.size, lambda: self._candidates.accepted_rows(self.touched.stored.rows)
        )
        step = self._step.derive_change(leaves, block)
        return self._step.sum_weights(
            ([] if init is None else [self._step.init(init)]) + ([] if step is None else [step])
        )

    def _next(self, touched: Touched) -> Touched:
        """Make a move, and add what follows from it; with the plan of the last such move, if it fits."""
        assert touched.move is not None
        if (again := self._again.get(touched.move.sql)) is not None and is_local(touched.frame):
            after = again(touched)
            if after is not None:
                touched.free()
                return after
        block, frontier = Block(), self.touched.frontier(touched)
        leaves = FrontierChange(
            self._candidates,
            self._step.sides,
            self._step.size,
            frontier,
            lambda: self.touched.accepted_rows(touched, moved=False),
            lambda: self.touched.accepted_rows(touched, moved=True),
        )
        derived = self._step.derive_change(leaves, block)
        after = self.touched.after(touched, self._step.sum_weights([] if derived is None else [derived]), block)
        if not block.used and (repeated := self.touched.repeat_move(touched, after)) is not None:
            self._again[touched.move.sql] = repeated
        touched.free()
        return after

    def _outgrown(self, touched: Touched) -> bool:
        """Return whether so many candidates are touched that computing the loop from nothing takes less time."""
        most = self._tuning.restart_share
        return touched.size > self._tuning.restart_rows and touched.size > most * self._rows()

    def _check_levels(self, rounds: Sequence[Round]) -> None:
        """Raise StateError where levels do not rise from round to round."""
        loop = self._candidates.loop
        if not loop.traits.is_set and len(rounds) > 2 * loop.limit + 2:
            raise StateError(
                f"the table of {loop.name} is damaged: the levels of its rows do not rise from "
                "round to round. Rebuild the view."
            )


def rows_by_phase(rounds: Sequence[Round]) -> dict[str, list[int]]:
    """Return how many candidates each round moved, by phase."""
    rows: dict[str, list[int]] = {}
    for round_ in rounds:
        rows.setdefault(round_.phase, []).append(round_.rows)
    return rows
