"""The leaves of a loop's step in one round: either the side inputs change, or the loop's own rows, never both.

| change of | `Given` of the loop | `Given` of a side input |
| --- | --- | --- |
| the side inputs | before = after = what is accepted as stored | before, after and change of its plan in this epoch |
| the frontier | before and after a move; the change is the frontier | before = after = its rows after the epoch |

So the rules of delta_rules.py give the change of the step for either, and both together are exact: the first leads from
step(old rows, old sides) to step(old rows, new sides), the second from there to step(new rows, new sides).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame

from deltafold.algebra.loops import LoopState
from deltafold.algebra.plan import Given, Join, Plan, SourceRead, StateRead
from deltafold.algebra.program import WEIGHT
from deltafold.algebra.traversal import walk
from deltafold.algebra.tuning import Tuning
from deltafold.dataflow.leaves import Direction, Leaf
from deltafold.dataflow.loops.candidates import Candidates
from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.spark.checkpoint import Checkpoints


class PlanChanges(Protocol):
    """Before, after and change of plans over sources and states in an epoch."""

    def has_changed(self, plan: Plan) -> bool:
        """Return whether anything that the plan reads changed."""
        ...

    def before(self, plan: Plan) -> Relation:
        """Return the rows before this refresh."""
        ...

    def after(self, plan: Plan) -> Relation:
        """Return the rows after this refresh."""
        ...

    def change(self, plan: Plan) -> Relation | None:
        """Return the Z-set between them; None if nothing changed."""
        ...


@dataclass(kw_only=True)
class SideInputs:
    """The side inputs of a loop in an epoch; the rows after it are computed once where they are not large.

    bytes_of: the approximate size of a plan's inputs.
    """

    loop: LoopState
    lowering: Lowering
    rules: PlanChanges
    bytes_of: Callable[[Plan], int]
    checkpoints: Checkpoints
    tuning: Tuning
    _kept: dict[str, DataFrame] = field(default_factory=dict[str, DataFrame])

    def plan(self, given: Given) -> Plan:
        """Return the plan that a leaf stands for."""
        return next(side.plan for side in self.loop.sides if side.given.name == given.name)

    def is_small(self, loop_bytes: int = 0) -> bool:
        """Return whether one task computes what init and a step read sooner than several that exchange rows.

        loop_bytes: the size of the loop's table, if it is read as well.
        """
        return max(loop_bytes, sum(map(self.bytes_of, self.loop.inputs))) <= self.tuning.local_bytes

    def under_leaf(self, given: Given, relation: Relation) -> Relation:
        """Return the rows of a side input's plan under the columns of the leaf."""
        return self.lowering.union(given.columns, [(self.plan(given).columns, relation)])

    def after(self, given: Given) -> Relation:
        """Return the rows of a side input after the epoch."""
        plan = self.plan(given)
        if self.bytes_of(plan) > self.tuning.prune_above_bytes:
            return self.under_leaf(given, self.rules.after(plan))
        if given.name not in self._kept:
            named = [(column, column.name) for column in plan.columns]
            frame = self.lowering.frame(self.rules.after(plan), named)
            self._kept[given.name] = self.checkpoints.keep(frame.coalesce(1) if self.is_small() else frame)
        names = [column.name for column in plan.columns]
        return self.lowering.leaf(self._kept[given.name], list(zip(names, given.columns, strict=True)), weighted=False)


@dataclass(frozen=True)
class StepLeaves:
    """What both kinds of leaves have in common; size: of the loop's table, in bytes."""

    candidates: Candidates
    sides: SideInputs
    size: int
    initial = False

    def is_loop(self, leaf: Leaf) -> bool:
        """Return whether a leaf stands for the loop's own rows."""
        assert isinstance(leaf, Given), "a step is over what is given"
        return leaf.name == self.candidates.loop.name

    def direction(self, leaf: SourceRead) -> Direction | None:
        """Unknown: a step reads no source by itself."""
        return None

    def bytes(self, leaf: Leaf) -> int:
        """Return the approximate size of what the leaf stands for."""
        return self.size if self.is_loop(leaf) else self.sides.bytes_of(self.sides.plan(require_given(leaf)))

    def bytes_read(self, plan: Plan) -> int:
        """Return the approximate size of all that a plan over the leaves reads."""
        return bytes_of_leaves(plan, self.bytes)

    def relation(self, leaf: Leaf, rows: DataFrame) -> Relation:
        """Return rows of the loop, with their levels, under the columns of the leaf."""
        names = zip(self.candidates.identity, leaf.columns, strict=True)
        return self.sides.lowering.leaf(rows, list(names), weighted=WEIGHT in rows.columns)

    def hashed_if_small(self, change: Relation) -> Relation:
        """Return a change that the only task of a small step joins by hash, where Spark would broadcast it by a job."""
        joins = any(isinstance(node, Join) and node.keys for node in walk(self.sides.loop.step))
        if not joins or not self.sides.is_small(self.size):
            return change
        lowering = self.sides.lowering
        one_partition = lowering.catalyst.plans.logical.Repartition(1, False, change.plan)
        return Relation(lowering.hint(one_partition, "SHUFFLE_HASH"), change.weighted)


@dataclass(frozen=True)
class SideChange(StepLeaves):
    """The side inputs change; accepted: the loop's rows as stored."""

    accepted: Callable[[], DataFrame]

    def has_changed(self, leaf: Leaf) -> bool:
        """Return whether the leaf is a side input that changed."""
        return not self.is_loop(leaf) and self.sides.rules.has_changed(self.sides.plan(require_given(leaf)))

    def before(self, leaf: Leaf) -> Relation:
        """Return the rows before the epoch."""
        if self.is_loop(leaf):
            return self.relation(leaf, self.accepted())
        return self.sides.under_leaf(require_given(leaf), self.sides.rules.before(self.sides.plan(require_given(leaf))))

    def after(self, leaf: Leaf) -> Relation:
        """Return the rows after the epoch."""
        if self.is_loop(leaf):
            return self.relation(leaf, self.accepted())
        return self.sides.under_leaf(require_given(leaf), self.sides.rules.after(self.sides.plan(require_given(leaf))))

    def change(self, leaf: Leaf) -> Relation:
        """Return the change of a side input."""
        change = self.sides.rules.change(self.sides.plan(require_given(leaf)))
        if change is None:
            return self.sides.lowering.empty(leaf.columns)
        return self.hashed_if_small(self.sides.under_leaf(require_given(leaf), change))


@dataclass(frozen=True)
class FrontierChange(StepLeaves):
    """The loop's rows change by the frontier; rows_before, rows_after: all of them before and after this move."""

    frontier: DataFrame
    rows_before: Callable[[], DataFrame]
    rows_after: Callable[[], DataFrame]

    def has_changed(self, leaf: Leaf) -> bool:
        """Return whether the leaf is the loop."""
        return self.is_loop(leaf)

    def before(self, leaf: Leaf) -> Relation:
        """Return the rows before the move."""
        return self.relation(leaf, self.rows_before()) if self.is_loop(leaf) else self.sides.after(require_given(leaf))

    def after(self, leaf: Leaf) -> Relation:
        """Return the rows once the move is made."""
        return self.relation(leaf, self.rows_after()) if self.is_loop(leaf) else self.sides.after(require_given(leaf))

    def change(self, leaf: Leaf) -> Relation:
        """Return the frontier."""
        return self.hashed_if_small(self.relation(leaf, self.frontier))


def require_given(leaf: Leaf) -> Given:
    """Return a leaf of a step, which reads nothing else."""
    assert isinstance(leaf, Given)
    return leaf


def bytes_of_leaves(plan: Plan, size: Callable[[Leaf], int]) -> int:
    """Return the approximate size of all that a plan reads."""
    return sum(size(leaf) for leaf in walk(plan) if isinstance(leaf, SourceRead | StateRead | Given))
