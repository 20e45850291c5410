"""Restrict the reads of `before` and `after` to the rows that a change can affect.

The rules (delta_rules.py) are equations; this module decides what is computed once, which ranges of
keys become literal conditions, and what is broadcast. Without it, answers are the same, but more is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from deltafold.algebra.plan import Column, Given, GroupwiseOp, Join, Plan, Reference, Scalar, SourceRead, StateRead
from deltafold.algebra.product import JoinStep
from deltafold.algebra.sqltext import quoted
from deltafold.algebra.traversal import all_column_names, walk
from deltafold.algebra.tuning import Tuning
from deltafold.dataflow.leaves import Leaves
from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.dataflow.pruning.key_ranges import KeyRanges, find_key_ranges, range_measures, restrict_to_ranges
from deltafold.dataflow.pruning.reach import JoinReach, KeyReach, Reach, first_changed, plain_keys
from deltafold.dataflow.pruning.rewind import is_rewindable, rewind
from deltafold.dataflow.pruning.semijoin import Semijoin
from deltafold.dataflow.window_order import WindowOrder, find_order
from deltafold.spark import catalyst
from deltafold.spark.checkpoint import Checkpoints, compute_measures

LEAST_ROW = 40  # the bytes that a broadcast takes for a row of one number


@dataclass(frozen=True)
class ProductTerm:
    """A product's term so far; prunes: it is small enough to be computed before the next large input is read."""

    rows: Relation
    prunes: bool

    def join(self, rows: Relation) -> ProductTerm:
        """Return the term after one more input."""
        return ProductTerm(rows, self.prunes)


class Pruning:
    """Restricts the reads of one refresh; checkpoints: frames computed once until the epoch ends."""

    def __init__(self, lowering: Lowering, leaves: Leaves, checkpoints: Checkpoints, tuning: Tuning) -> None:
        self._lowering, self._leaves, self._checkpoints, self._tuning = lowering, leaves, checkpoints, tuning
        self._semijoin = Semijoin(lowering)

    def pays_off(self, plan: Plan) -> bool:
        """Return whether the plan's inputs are large enough for pruning to pay off."""
        return self.bytes(plan) > self._tuning.prune_above_bytes

    def is_small(self, plan: Plan) -> bool:
        """Return whether the plan is so small that one task computes it faster than several with a shuffle."""
        return self.bytes(plan) <= self._tuning.local_bytes

    def change_once(self, plan: Plan, change: Relation) -> Relation:
        """Return the change of a plan, computed once for all its uses; a large one is computed for each."""
        small = self._leaves.bytes_read(plan) <= self._tuning.local_bytes
        if not small and self._is_large(self._frame(plan.columns, change)):
            return change
        return self.once(plan.columns, change, small=small)

    def once(self, columns: Sequence[Column], rows: Relation, *, small: bool = False) -> Relation:
        """Compute rows once for all their uses; small: now, in one task."""
        frame, keep = self._frame(columns, rows), self._checkpoints
        return self._relation(columns, keep.small(frame) if small else keep.keep(frame), weighted=rows.weighted)

    def left_change(self, node: Join, change: Relation, right: Relation) -> tuple[Relation, Relation]:
        """Return both sides of a join whose left one is a change; few changed rows read only their matches."""
        keys = [one for one, _, _ in node.keys]
        frame = self._frame(node.left.columns, change)
        if not keys or not self.pays_off(node.right) or self._is_large(frame):
            # Spark confuses columns that both sides produce
            mixed = all_column_names(node.left) & all_column_names(node.right)
            return (self.once(node.left.columns, change) if mixed else change), right
        plain = plain_keys(node)
        rows, ranges = self._compute(frame, [one for one, _ in plain], narrow=True)
        right = restrict_to_ranges(self._lowering, right, [other for _, other in plain], ranges)
        mine = rows.select(*(self._lowering.over(rows, self._lowering.expression(key)) for key in keys))
        others = [self._lowering.expression(other) for _, other, _ in node.keys]
        right = self._semijoin.of_keys(right, others, mine, few=self._few(mine, ranges))
        return self._relation(node.left.columns, rows, weighted=change.weighted), right

    def right_reach(self, node: Join, change: Relation) -> JoinReach | None:
        """Return the rows that a change of a join's right side affects; None if it has no changed rows after all."""
        touched, keys = self._semijoin.touched_rows(node, change), [other for _, other in plain_keys(node)]
        measured = compute_measures(touched, range_measures(self._lowering, touched, keys))
        narrow = self.pays_off(node.left) or self.pays_off(node.right)
        ranges = self._ranges(touched, keys, measured, narrow=narrow)
        return (
            JoinReach(
                lowering=self._lowering, node=node, touched=touched, ranges=ranges, few=self._few(touched, ranges)
            )
            if ranges.rows
            else None
        )

    def matched_left(self, reach: JoinReach, left: Relation) -> Relation:
        """Return the rows of a join's left side that a changed row matches, computed once."""
        side = reach.node.left
        return self.once(side.columns, reach.restrict_left(left), small=self.is_small(side))

    def group_reach(
        self, plan: Plan, keys: Sequence[Column], change: Relation, order: WindowOrder | None = None
    ) -> KeyReach | None:
        """Return the rows of a plan that share the keys of changed rows; None if there are no changed rows.

        order: that of a window over the plan, whose column the change has too.
        """
        names = [quoted(key.name) for key in keys]
        named = [(column, column.name) for column in (keys if order is None else (*keys, order.column))]
        frame, small = self._lowering.frame(Relation(change.plan), named), self.is_small(plan)
        frame = frame.coalesce(1) if small else frame
        distinct = frame.distinct() if order is None else frame.groupBy(*names).agg(first_changed(order))
        touched, ranges = self.keys_with_ranges(plan, keys, distinct, small=small)
        return self.key_reach(keys, touched, ranges, order) if ranges.rows else None

    def keys_with_ranges(
        self, plan: Plan, keys: Sequence[Column], groups: DataFrame, *, small: bool
    ) -> tuple[DataFrame, KeyRanges]:
        """Keys of some groups of a plan, computed once, and their ranges; groups: the keys under the plan's names."""
        references = [Reference(key) for key in keys]
        return self._compute(groups, references, narrow=self.pays_off(plan), small=small, nulls_match=True)

    def key_reach(
        self, keys: Sequence[Column], touched: DataFrame, ranges: KeyRanges, order: WindowOrder | None = None
    ) -> KeyReach:
        """Return the rows whose keys are among the touched ones, NULL equal to NULL."""
        return KeyReach(
            lowering=self._lowering,
            keys=keys,
            touched=touched,
            ranges=ranges,
            few=self._few(touched, ranges),
            order=order,
        )

    def order(self, node: GroupwiseOp) -> WindowOrder | None:
        """Return the order of a window that leaves the rows before a change as they are, where that pays off."""
        order = find_order(node)
        pays_off = order is not None and (order.has_long_frames or self.pays_off(node.child))
        return order if pays_off else None

    def rewinds(self, plan: Plan) -> bool:
        """Return whether `before` of a plan is computed from `after` minus the change, so that it is read once."""
        return self.pays_off(plan) and is_rewindable(plan.columns)

    def after_and_before(
        self, plan: Plan, change: Relation, reach: Reach, after: Relation, before: Callable[[], Relation]
    ) -> tuple[Relation, Relation]:
        """Return the affected rows of a plan, after and before; a large plan is read once if few rows changed."""
        new = reach.restrict(after)
        if not (reach.few and self.rewinds(plan)):
            return new, reach.restrict(before())
        new = self.once(plan.columns, new)
        return new, rewind(self._lowering, plan.columns, new, reach.restrict(change))

    def product_term(self, columns: Sequence[Column], inputs: Sequence[Plan], change: Relation) -> ProductTerm:
        """Return the term of a product that begins with a change and is joined with these inputs."""
        prunes = any(map(self.pays_off, inputs)) and not self._is_large(self._frame(columns, change))
        return ProductTerm(change, prunes)

    def next_input(
        self, term: ProductTerm, columns: Sequence[Column], step: JoinStep, plan: Plan, side: Relation, *, mixed: bool
    ) -> tuple[ProductTerm, Relation] | None:
        """Return the term and its next input, restricted to what its rows can match; None if it has no rows (D-126).

        The term is computed first, and measured: the input before may have left few of its rows, which no estimate
        tells. One that has become large is not computed ahead again.
        mixed: the term and the input produce the same columns, which Spark would confuse.
        """
        prunes = term.prunes and self.pays_off(plan)
        if not prunes and not mixed:
            return term, side
        frame = self._frame(columns, term.rows)
        if not prunes:
            computed = self._relation(columns, self._checkpoints.keep(frame), weighted=term.rows.weighted)
            return ProductTerm(computed, term.prunes), side
        rows, ranges = self._compute(frame, [one for one, _ in step.equalities], narrow=True)
        computed = self._relation(columns, rows, weighted=term.rows.weighted)
        if not ranges.rows:
            return None
        side = restrict_to_ranges(self._lowering, side, [other for _, other in step.equalities], ranges)
        if self._few(rows, ranges):
            side = self._semijoin.before_costly_work(side, step.equalities, rows)
            computed = Relation(self._lowering.hint(computed.plan, "BROADCAST"), computed.weighted)
        return ProductTerm(computed, not self._is_large(rows)), side

    def _is_large(self, change: DataFrame) -> bool:
        return self._checkpoints.estimate_bytes(change) > self._tuning.change_bytes

    def _few(self, frame: DataFrame, ranges: KeyRanges) -> bool:
        """Return whether a frame, of which the rows were counted, is small enough to broadcast."""
        width = max(LEAST_ROW, int(catalyst.analysed_plan(frame).schema().defaultSize()))
        return ranges.rows <= self._tuning.broadcast_rows or ranges.rows * width <= self._tuning.broadcast_bytes

    def bytes(self, plan: Plan) -> int:
        """Return the bytes of the tables that a plan reads."""
        leaves = (leaf for leaf in walk(plan) if isinstance(leaf, SourceRead | StateRead | Given))
        return sum(self._leaves.bytes(leaf) for leaf in leaves)

    def _compute(
        self, frame: DataFrame, keys: Sequence[Scalar], *, narrow: bool, small: bool = False, nulls_match: bool = False
    ) -> tuple[DataFrame, KeyRanges]:
        """Return a frame computed once, and the ranges of its keys."""
        measures = range_measures(self._lowering, frame, keys)
        rows, measured = self._checkpoints.measure(frame, measures, small=small)
        self._checkpoints.learn(rows, measured["rows"])
        return rows, self._ranges(rows, keys, measured, narrow=narrow, nulls_match=nulls_match)

    def _ranges(
        self,
        rows: DataFrame,
        keys: Sequence[Scalar],
        measures: Mapping[str, Any],
        *,
        narrow: bool,
        nulls_match: bool = False,
    ) -> KeyRanges:
        return find_key_ranges(
            self._lowering, rows, keys, measures, self._tuning if narrow else None, nulls_match=nulls_match
        )

    def _frame(self, columns: Sequence[Column], rows: Relation) -> DataFrame:
        """Return rows as a frame with the columns' own names."""
        return self._lowering.frame(rows, [(column, column.name) for column in columns])

    def _relation(self, columns: Sequence[Column], frame: DataFrame, *, weighted: bool) -> Relation:
        """Return the rows of such a frame."""
        return self._lowering.leaf(frame, [(column.name, column) for column in columns], weighted=weighted)
