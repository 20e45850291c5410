"""The calculus (DESIGN section 5). In: a plan and what its leaves were, are, and how they changed.
Out: `before`, `after` and `change` of any node, each a lazy relation; `after = before + change`.

| node | change |
| --- | --- |
| project, filter, generate, expand, union | the same operator on the change (linear) |
| inner joins of n inputs | n terms: after of the inputs before Δi, before of those after it (products.py) |
| left, semi, anti, existence join J | J(Δl, before(r)) + J(l', after(r)) − J(l', before(r)), where l' are the rows of |
| | after(l) that a changed row of r can match; right joins mirrored; full = left ∪ anti with NULLs |
| with a foreign key l → r | J(Δl, after(r)) where rows of r only came, J(Δl, before(r)) where they only left |
| with a foreign key r → l | J(Δl, ∅) in place of J(Δl, before(r)) where rows of l only came (algebra/constraints.py) |
| any other F local to a key | touched keys K: F(after ⋉ K) − F(before ⋉ K) |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import assert_never

from pyspark.sql import DataFrame

from incremental.algebra.constraints import Constraint, only_source, reference
from incremental.algebra.plan import (
    Aggregate,
    Column,
    Expand,
    Filter,
    Foreign,
    Generate,
    Item,
    Join,
    KeyLocal,
    Plan,
    Project,
    Reference,
    Scalar,
    Source,
    Sql,
    StateRead,
    Union,
    Values,
    walk,
)
from incremental.algebra.product import produced
from incremental.dataflow.inner_joins import Direction, Products
from incremental.dataflow.leaves import Leaves
from incremental.dataflow.lowering import Lowering, Relation
from incremental.dataflow.pruning import SMALL_BYTES, WORTH_BYTES, expected_bytes, extent, within
from incremental.dataflow.rewind import undoable, undone
from incremental.dataflow.semijoin import Restriction


class Calculus:
    """Before, after and change of plans over given leaves.

    hold: keeps rows that are used more than once; facts: the declared constraints that hold before and after.
    """

    def __init__(
        self,
        lowering: Lowering,
        leaves: Leaves,
        hold: Callable[[DataFrame], DataFrame],
        facts: Sequence[Constraint] = (),
    ) -> None:
        self._lowering, self._leaves, self._hold, self._facts = lowering, leaves, hold, facts
        self._restriction = Restriction(lowering)
        self._products = Products(lowering, self, hold, facts)

    def changed(self, plan: Plan) -> bool:
        """Whether anything the plan reads changed."""
        if isinstance(plan, Source | StateRead):
            return self._leaves.changed(plan)
        return any(self.changed(child) for child in plan.children)

    def before(self, plan: Plan) -> Relation:
        """The rows before this refresh."""
        if self._leaves.initial:
            return self._lowering.empty(plan.columns)
        if isinstance(plan, Source | StateRead):
            return self._leaves.before(plan)
        return self._lowering.rows(plan, [self.before(child) for child in plan.children])

    def after(self, plan: Plan) -> Relation:
        """The rows after this refresh."""
        if isinstance(plan, Source | StateRead):
            return self._leaves.after(plan)
        return self._lowering.rows(plan, [self.after(child) for child in plan.children])

    def change(self, plan: Plan) -> Relation | None:
        """The Z-set between before and after; plain rows where nothing was deleted; None where nothing changed."""
        if self._leaves.initial:
            return self.after(plan)
        if not self.changed(plan):
            return None
        match plan:
            case Source() | StateRead():
                return self._leaves.change(plan)
            case Project(child=child) | Filter(child=child) | Generate(child=child) | Expand(child=child):
                inner = self.change(child)
                return None if inner is None else self._lowering.linear(plan, inner)
            case Union(children=children, columns=columns):
                terms = [(child.columns, change) for child in children if (change := self.change(child)) is not None]
                return self._lowering.union(columns, terms) if terms else None
            case Join(kind="inner"):
                return self._products.change(plan)
            case Join(left=left, right=right):
                return self._join(plan, self.change(left), self.change(right))
            case KeyLocal(child=child):
                inner = self.change(child)
                return None if inner is None else self._key_local(plan, inner)
            case Values() | Foreign():
                return None
            case Aggregate():
                raise TypeError("an aggregate is a state, whose change its table tells")
            case _:
                assert_never(plan)

    def direction(self, plan: Plan) -> Direction | None:
        """What all changed rows of the one source did that the plan sees; None where it is not known."""
        source = only_source(plan)
        return None if source is None else self._leaves.direction(source)

    def worth(self, plan: Plan) -> bool:
        """Whether its rows are so many that it pays to find out which of them matter."""
        return (
            sum(self._leaves.bytes(leaf) for leaf in walk(plan) if isinstance(leaf, Source | StateRead)) > WORTH_BYTES
        )

    def _referred(self, referring: Plan, referred: Plan, keys: Sequence[tuple[Scalar, Scalar]]) -> Direction | None:
        """What the changed rows of a plan did that another refers to by a foreign key; None where they do not tell."""
        if reference(self._facts, referring, referred, keys) is None:
            return None
        return self.direction(referred)

    def _held(self, plan: Plan, rows: Relation) -> Relation:
        """The same rows, computed once."""
        return self._read(plan, self._hold(self._frame(plan, rows)), rows.weighted)

    def _frame(self, plan: Plan, rows: Relation) -> DataFrame:
        """Rows of a plan as a frame with the names of its columns."""
        return self._lowering.frame(rows, [(column, column.name) for column in plan.columns])

    def _read(self, plan: Plan, frame: DataFrame, weighted: bool) -> Relation:
        """What such a frame holds."""
        return self._lowering.leaf(frame, [(column.name, column) for column in plan.columns], weighted)

    def _join(self, node: Join, left: Relation | None, right: Relation | None) -> Relation | None:
        match node.kind:
            case "inner":
                raise TypeError("inner joins are maintained as products")
            case "right":
                mirrored = replace(node, left=node.right, right=node.left, kind="left", keys=swapped(node.keys))
                return self._preserved(mirrored, right, left, node.columns)
            case "full":
                terms = self._full(node, left, right)
            case _:
                return self._preserved(node, left, right, node.columns)
        return self._lowering.union(node.columns, [(node.columns, term) for term in terms]) if terms else None

    def _full(self, node: Join, left: Relation | None, right: Relation | None) -> list[Relation]:
        """A full join is the left join, and the right side's rows without a partner."""
        left = None if left is None else self._held(node.left, left)
        right = None if right is None else self._held(node.right, right)
        matched = self._preserved(replace(node, kind="left"), left, right, node.columns)
        lonely = replace(node, left=node.right, right=node.left, kind="anti", keys=swapped(node.keys))
        single = self._preserved(lonely, right, left, lonely.columns)
        if single is not None:
            items = [Item(column, Sql("NULL", column.type)) for column in node.left.columns]
            items += [Item(column, Reference(column)) for column in node.right.columns]
            single = self._lowering.linear(Project(lonely, tuple(items)), single)
        return [term for term in (matched, single) if term is not None]

    def _preserved(
        self, node: Join, left: Relation | None, right: Relation | None, columns: tuple[Column, ...]
    ) -> Relation | None:
        """A join that is linear in its left side: first the left side moves, then the right side."""
        terms: list[tuple[Sequence[Column], Relation]] = []
        moves = self._referred(node.left, node.right, [(one, other) for one, other, _ in node.keys])
        if left is not None:
            terms.append((columns, self._own(node, left, self._met(node, moves))))
        if right is not None and moves is None:
            terms += self._moved(node, right, columns)
        return self._lowering.union(columns, terms) if terms else None

    def _met(self, node: Join, moves: Direction | None) -> Relation:
        """What the change of the left side meets: the right side as it was, unless no row moves by what came there."""
        if moves == "came":
            return self.after(node.right)
        if self._referred(node.right, node.left, [(other, one) for one, other, _ in node.keys]) == "came":
            return self._lowering.empty(node.right.columns)
        return self.before(node.right)

    def _own(self, node: Join, change: Relation, right: Relation) -> Relation:
        """What the change of the left side gives with the right side; few rows meet only what they can match."""
        keys = [one for one, _, _ in node.keys]
        frame = self._frame(node.left, change)
        restricts = bool(keys) and self.worth(node.right) and expected_bytes(frame) <= SMALL_BYTES
        if not restricts:
            # Spark confuses columns that come about on both sides
            mixed = produced(node.left) & produced(node.right)
            return self._lowering.join(node, self._held(node.left, change) if mixed else change, right)
        held = self._hold(frame)
        known = [one for one, _, null_safe in node.keys if not null_safe]
        reach = extent(self._lowering, held, known, worth=True)
        right = within(self._lowering, right, [other for _, other, null_safe in node.keys if not null_safe], reach)
        mine = held.select(*(self._lowering.over(held, self._lowering.expression(key)) for key in keys))
        others = [self._lowering.expression(other) for _, other, _ in node.keys]
        right = self._restriction.of_keys(right, others, mine, reach.small)
        return self._lowering.join(node, self._read(node.left, held, change.weighted), right)

    def _moved(
        self, node: Join, change: Relation, columns: tuple[Column, ...]
    ) -> list[tuple[Sequence[Column], Relation]]:
        """What the left rows that a touched right row can match give after, less what they gave before."""
        change = self._held(node.right, change)
        touched = self._restriction.touched(node, change)
        keys = [(one, other) for one, other, null_safe in node.keys if not null_safe]
        left_keys, right_keys = [one for one, _ in keys], [other for _, other in keys]
        worth = self.worth(node.left) or self.worth(node.right)
        reach = extent(self._lowering, touched, right_keys, worth)
        if not reach.rows:
            return []
        reached = within(self._lowering, self.after(node.left), left_keys, reach)
        reached = self._held(node.left, self._restriction.matched(node, reached, touched, reach.small))

        def reachable(side: Relation) -> Relation:
            side = within(self._lowering, side, right_keys, reach)
            return self._restriction.partners(node, side, touched, reach.small)

        new, old = (
            self._lowering.join(node, reached, side) for side in self._sides(node.right, reachable, change, reach.small)
        )
        return [(columns, new), self._lowering.negated(columns, old)]

    def _sides(
        self, plan: Plan, reachable: Callable[[Relation], Relation], change: Relation, few: bool
    ) -> tuple[Relation, Relation]:
        """What a change can reach in a plan, after and before it; a large plan is read once where few rows changed."""
        new = reachable(self.after(plan))
        if not (few and self._undoes(plan)):
            return new, reachable(self.before(plan))
        new = self._held(plan, new)
        return new, undone(self._lowering, plan.columns, new, reachable(change))

    def _undoes(self, plan: Plan) -> bool:
        """Whether a plan's rows before are found by taking a small change back."""
        return self.worth(plan) and undoable(plan.columns)

    def _key_local(self, node: KeyLocal, change: Relation) -> Relation | None:
        """F of the touched keys' rows after, less the same before; without keys, of all rows."""
        if not node.keys:
            sides = self.after(node.child), self.before(node.child)
        else:
            if self._undoes(node.child):  # else its keys alone are asked for
                change = self._held(node.child, change)
            named = [(column, column.name) for column in node.keys]
            touched = self._hold(self._lowering.frame(Relation(change.plan), named).distinct())
            keys = [Reference(column) for column in node.keys]
            reach = extent(self._lowering, touched, keys, self.worth(node.child), nulls_match=True)
            if not reach.rows:
                return None
            attributes = [self._lowering.attribute(column) for column in node.keys]

            def reachable(side: Relation) -> Relation:
                side = within(self._lowering, side, keys, reach)
                return self._restriction.of_keys(side, attributes, touched, reach.small)

            sides = self._sides(node.child, reachable, change, reach.small)
        new, old = (self._lowering.key_local(node, side) for side in sides)
        return self._lowering.union(node.columns, [(node.columns, new), self._lowering.negated(node.columns, old)])


def swapped(keys: tuple[tuple[Scalar, Scalar, bool], ...]) -> tuple[tuple[Scalar, Scalar, bool], ...]:
    """The equalities of a join whose sides change places."""
    return tuple((right, left, null_safe) for left, right, null_safe in keys)
