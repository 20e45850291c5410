"""Compute the change of a plan from its leaves before, after and their changes (DBSP section 3).

`before`, `after` and `change` of any node are lazy relations, and `after = before + change`.

| node | change |
| --- | --- |
| project, filter, generate, expand, union | the same operator on the change (linear) |
| inner joins of n inputs | n terms: after of the inputs before Δi, before of those behind it (InnerJoins) |
| left, semi, anti, existence join J | J(Δl, before(r)) + J(l', after(r)) − J(l', before(r)), where l' are the rows of |
| | after(l) that a changed row of r can match; right joins mirrored; full = left ∪ anti with NULLs |
| with a foreign key l → r | J(Δl, after(r)) if rows of r were only added, J(Δl, before(r)) if only removed |
| with a foreign key r → l | J(Δl, ∅) in place of J(Δl, before(r)) if rows of l were only added (constraints.py) |
| any other F local to a key | touched keys K: F(after ⋉ K) − F(before ⋉ K) |
| an answer of such an F | F(after ⋉ K) − view ⋉ K, where the stored view shows K (`change_of_stored`) |
| a window that looks back | of both, only the rows that do not precede the first changed one (window_order.py) |

pruning.py restricts the reads of `before` and `after`, without changing an answer. All is evaluated at each refresh,
since the terms depend on what changed (D-244).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from deltafold.algebra.constraints import Constraint, find_only_source, find_reference
from deltafold.algebra.plan import (
    Aggregate,
    Column,
    Expand,
    Filter,
    Generate,
    Given,
    GroupwiseOp,
    Item,
    Join,
    Loop,
    Plan,
    Project,
    Reference,
    Scalar,
    SourceRead,
    Sql,
    StateRead,
    Union,
    Unsupported,
    Values,
)
from deltafold.algebra.product import Product, flatten_joins, rank_inputs
from deltafold.algebra.sqltext import simple_types
from deltafold.algebra.traversal import all_column_names, walk
from deltafold.dataflow.leaves import Direction, Leaves
from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.dataflow.pruning.pruning import Pruning
from deltafold.dataflow.pruning.reach import KeyReach

Term = tuple[Sequence[Column], Relation]
"""A relation and its columns, as a union takes them."""


UNSTABLE = frozenset({"float", "double", "map"})
"""Types of which values that are equal in an order, or in a sum, may be different ones."""


@dataclass(frozen=True)
class ShownKeys:
    """An operator local to keys, and for each key the columns of an answer above it that show its value.

    unstable: the same rows in other files may have another value, by the order of ties or of the terms of a sum.
    """

    node: GroupwiseOp
    choices: tuple[tuple[Column, ...], ...]
    unstable: bool

    @property
    def columns(self) -> tuple[Column, ...]:
        """One column of the answer for each key."""
        return tuple(columns[0] for columns in self.choices)


def shown_keys(answer: Plan) -> ShownKeys | None:
    """Return the operator below an answer's projections and filters whose keys the answer shows; None without one.

    Only over a join, since else the rows before cost less than those of the stored answer; and where only the stored
    ones are the rows before.
    """
    node = answer
    while isinstance(node, Filter | Project):
        node = node.child
    if not isinstance(node, GroupwiseOp) or not node.keys or not set(node.keys) <= set(node.columns):
        return None
    unstable = not UNSTABLE.isdisjoint(type_ for column in node.columns for type_ in simple_types(column.type))
    if not unstable and not any(isinstance(below, Join) for below in walk(node.child)):
        return None
    choices = tuple(shown_copies(answer, node, key) for key in node.keys)
    return ShownKeys(node, choices, unstable) if all(choices) else None


def shown_copies(answer: Plan, node: GroupwiseOp, column: Column) -> tuple[Column, ...]:
    """Return the columns of an answer that show a column of a node below its projections and filters."""
    match answer:
        case Filter(child=child):
            return shown_copies(child, node, column)
        case Project(child=child, items=items):
            return tuple(copies(items, shown_copies(child, node, column)))
        case _:
            equal = set(equal_columns(node.child, column))
            return tuple(shown for shown in node.columns if shown in equal)


def equal_columns(plan: Plan, column: Column) -> tuple[Column, ...]:
    """Return a column of a plan, and the columns beside it that a projection computes as copies of the same one."""
    if isinstance(plan, Project):
        scalar = next(item.scalar for item in plan.items if item.column == column)
        if isinstance(scalar, Reference):
            return tuple(copies(plan.items, (scalar.column,)))
    return (column,)


def copies(items: Sequence[Item], columns: Sequence[Column]) -> Iterator[Column]:
    """Yield the items of a projection that are one of these columns."""
    for item in items:
        if isinstance(item.scalar, Reference) and item.scalar.column in columns:
            yield item.column


class DeltaRules:
    """Computes before, after and change of plans over leaves.

    facts: constraints that hold before and after; repeats: plans whose change is needed several times.
    """

    def __init__(
        self,
        lowering: Lowering,
        leaves: Leaves,
        pruning: Pruning,
        facts: Sequence[Constraint] = (),
        repeats: frozenset[Plan] = frozenset(),
    ) -> None:
        self._lowering, self._leaves, self._pruning, self._facts = lowering, leaves, pruning, facts
        self._repeats, self._known = repeats, dict[Plan, Relation]()
        self._inner = InnerJoins(lowering, self, pruning, facts)

    def has_changed(self, plan: Plan) -> bool:
        """Return whether any leaf of the plan changed."""
        if isinstance(plan, SourceRead | StateRead | Given):
            return self._leaves.has_changed(plan)
        return any(self.has_changed(child) for child in plan.children)

    def before(self, plan: Plan) -> Relation:
        """Return the rows before this refresh."""
        if self._leaves.initial:
            return self._lowering.empty(plan.columns)
        if isinstance(plan, SourceRead | StateRead | Given):
            return self._leaves.before(plan)
        return self._lowering.rows(plan, [self.before(child) for child in plan.children])

    def after(self, plan: Plan) -> Relation:
        """Return the rows after this refresh."""
        if isinstance(plan, SourceRead | StateRead | Given):
            return self._leaves.after(plan)
        return self._lowering.rows(plan, [self.after(child) for child in plan.children])

    def change(self, plan: Plan) -> Relation | None:
        """Return the Z-set between before and after; plain rows if nothing was deleted; None if nothing changed."""
        if self._leaves.initial:
            return self.after(plan)
        if not self.has_changed(plan):
            return None
        if not self._repeats or plan not in self._repeats:
            return self._change_rows(plan)
        if plan not in self._known and (change := self._change_rows(plan)) is not None:
            self._known[plan] = self._pruning.change_once(plan, change)
        return self._known.get(plan)

    def change_of_stored(self, answer: Plan, keys: ShownKeys, stored: Relation) -> Relation | None:
        """Return the change of an answer of which the rows before are stored: F(after ⋉ K) − stored ⋉ K (D-178)."""
        node = keys.node
        order = self._pruning.order(node)
        shown = None if order is None else next(iter(shown_copies(answer, node, order.column)), None)
        order = None if shown is None else order
        touched = self._touched_keys(node.child, node.keys if order is None else (*node.keys, order.column))
        reach = None if touched is None else self._pruning.group_reach(node.child, node.keys, touched, order)
        if reach is None:
            return None
        of_stored = None if order is None or shown is None else replace(order, column=shown)
        stored_reach = self._pruning.key_reach(keys.columns, reach.touched, reach.ranges, of_stored)
        old = stored_reach.tail(stored_reach.near(stored))
        new = self._above(answer, node, self._compute_affected(node, reach, reach.restrict(self.after(node.child))))
        return self._lowering.union(answer.columns, [(answer.columns, new), self._lowering.negate(answer.columns, old)])

    def _above(self, plan: Plan, node: GroupwiseOp, rows: Relation) -> Relation:
        """Apply the projections and filters of a plan down to a node to the node's rows."""
        if plan is node:
            return rows
        assert isinstance(plan, Project | Filter)
        return self._lowering.linear(plan, self._above(plan.child, node, rows))

    def _touched_keys(self, plan: Plan, keys: Sequence[Column]) -> Relation | None:
        """Return keys of a plan's rows, among them those of all changed ones; None if nothing changed.

        What a join only adds to rows that have the keys already is not looked up.
        """
        if not self.has_changed(plan):
            return None
        terms: list[Relation | None] = []
        match plan:
            case Join(kind="left" | "semi" | "anti" | "existence", left=left) if set(keys) <= set(left.columns):
                terms = [self._touched_keys(left, keys), self._matched_rows(plan)]
            case Project(child=child, items=items):
                sources = {item.column: item.scalar for item in items}
                below = [source.column for key in keys if isinstance(source := sources[key], Reference)]
                if len(below) == len(keys):
                    inner = self._touched_keys(child, below)
                    narrow = Project(child, tuple(Item(key, sources[key]) for key in keys))
                    terms = [None if inner is None else self._lowering.linear(narrow, inner)]
                else:
                    terms = [self.change(plan)]
            case _:
                terms = [self.change(plan)]
        columns = [(keys, self._lowering.narrow(keys, term)) for term in terms if term is not None]
        return self._lowering.union(keys, columns) if columns else None

    def _matched_rows(self, node: Join) -> Relation | None:
        """Return the rows of a join's left side that changed rows of the right side match; None if there are none."""
        change = self.change(node.right)
        if change is None or self._right_direction(node) is not None:
            return None  # a foreign key: rows of its table that were only added or only removed match no other row
        reach = self._pruning.right_reach(node, self._right_once(node, change))
        return None if reach is None else self._pruning.matched_left(reach, self.after(node.left))

    def _change_rows(self, plan: Plan) -> Relation | None:
        """Return the change of a plan that reads something that changed."""
        match plan:
            case SourceRead() | StateRead() | Given():
                return self._leaves.change(plan)
            case Project(child=child) | Filter(child=child) | Generate(child=child) | Expand(child=child):
                inner = self.change(child)
                return None if inner is None else self._lowering.linear(plan, inner)
            case Union(children=children, columns=columns):
                terms = [(child.columns, change) for child in children if (change := self.change(child)) is not None]
                return self._lowering.union(columns, terms) if terms else None
            case Join(kind="inner"):
                return self._inner.change(plan)
            case Join(left=left, right=right):
                return self._join(plan, self.change(left), self.change(right))
            case GroupwiseOp(child=child):
                inner = self.change(child)
                return None if inner is None else self._groupwise(plan, inner)
            case Values() | Unsupported():
                return None
            case Aggregate() | Loop():
                raise TypeError(f"the change of {type(plan).__name__} is read from the table of its stage")
            case _:
                assert_never(plan)

    def direction(self, plan: Plan) -> Direction | None:
        """Return whether the changed rows of the plan's only source were all added or all removed; None if unknown."""
        source = find_only_source(plan)
        return None if source is None else self._leaves.direction(source)

    def _reference_direction(
        self, referring: Plan, referred: Plan, keys: Sequence[tuple[Scalar, Scalar]]
    ) -> Direction | None:
        """Return the direction of the plan that a foreign key refers to; None if unknown, or without such a key."""
        if find_reference(self._facts, referring, referred, keys) is None:
            return None
        return self.direction(referred)

    def _join(self, node: Join, left: Relation | None, right: Relation | None) -> Relation | None:
        match node.kind:
            case "inner":
                raise TypeError("the change of an inner join is that of its product")
            case "right":
                mirrored = replace(node, left=node.right, right=node.left, kind="left", keys=swap_sides(node.keys))
                return self._preserve_left(mirrored, right, left, node.columns)
            case "full":
                terms = self._full(node, left, right)
            case "left" | "single" | "semi" | "anti" | "existence":
                return self._preserve_left(node, left, right, node.columns)
            case _:
                assert_never(node.kind)
        return self._lowering.union(node.columns, [(node.columns, term) for term in terms]) if terms else None

    def _full(self, node: Join, left: Relation | None, right: Relation | None) -> list[Relation]:
        """Return the change of a full join: a left join, and the right side's rows without a match."""
        left = None if left is None else self._pruning.once(node.left.columns, left)
        right = None if right is None else self._pruning.once(node.right.columns, right)
        matched = self._preserve_left(replace(node, kind="left"), left, right, node.columns)
        lonely = replace(node, left=node.right, right=node.left, kind="anti", keys=swap_sides(node.keys))
        single = self._preserve_left(lonely, right, left, lonely.columns)
        if single is not None:
            items = [Item(column, Sql("NULL", column.type)) for column in node.left.columns]
            items += [Item(column, Reference(column)) for column in node.right.columns]
            single = self._lowering.linear(Project(lonely, tuple(items)), single)
        return [term for term in (matched, single) if term is not None]

    def _preserve_left(
        self, node: Join, left: Relation | None, right: Relation | None, columns: tuple[Column, ...]
    ) -> Relation | None:
        """Return J(Δl, before(r)) + J(l', after(r)) − J(l', before(r)) (D-012)."""
        terms: list[Term] = []
        direction = self._right_direction(node)
        if left is not None:
            sides = self._pruning.left_change(node, left, self._right_for_left_change(node, direction))
            terms.append((columns, self._lowering.join(node, *sides)))
        if right is not None and direction is None:
            terms += self._right_terms(node, right, columns)
        return self._lowering.union(columns, terms) if terms else None

    def _right_direction(self, node: Join) -> Direction | None:
        """Return the direction of a join's right side, if a foreign key of the left one refers to it."""
        return self._reference_direction(node.left, node.right, [(one, other) for one, other, _ in node.keys])

    def _right_once(self, node: Join, change: Relation) -> Relation:
        """Compute the change of a join's right side once."""
        return self._pruning.once(node.right.columns, change, small=self._pruning.is_small(node.right))

    def _right_for_left_change(self, node: Join, direction: Direction | None) -> Relation:
        """Return the r of J(Δl, r): before(r), or the side that a foreign key allows instead."""
        if direction == "added":
            return self.after(node.right)
        mirrored = [(other, one) for one, other, _ in node.keys]
        if self._reference_direction(node.right, node.left, mirrored) == "added":
            return self._lowering.empty(node.right.columns)
        return self.before(node.right)

    def _right_terms(self, node: Join, change: Relation, columns: tuple[Column, ...]) -> list[Term]:
        """Return J(l', after(r)) − J(l', before(r))."""
        change = self._right_once(node, change)
        reach = self._pruning.right_reach(node, change)
        if reach is None:
            return []
        left = self._pruning.matched_left(reach, self.after(node.left))
        after, before = self._pruning.after_and_before(
            node.right, change, reach, self.after(node.right), lambda: self.before(node.right)
        )
        new, old = (self._lowering.join(node, left, side) for side in (after, before))
        return [(columns, new), self._lowering.negate(columns, old)]

    def _groupwise(self, node: GroupwiseOp, change: Relation) -> Relation | None:
        """Return F(after ⋉ K) − F(before ⋉ K); over all rows if F has no key."""
        child = node.child
        if not node.keys:
            new, old = (self._lowering.key_local(node, side) for side in (self.after(child), self.before(child)))
        else:
            if self._pruning.rewinds(child):  # else only its keys are read
                change = self._pruning.once(child.columns, change)
            reach = self._pruning.group_reach(child, node.keys, change, self._pruning.order(node))
            if reach is None:
                return None
            sides = self._pruning.after_and_before(child, change, reach, self.after(child), lambda: self.before(child))
            new, old = (self._compute_affected(node, reach, side) for side in sides)
        return self._lowering.union(node.columns, [(node.columns, new), self._lowering.negate(node.columns, old)])

    def _compute_affected(self, node: GroupwiseOp, reach: KeyReach, rows: Relation) -> Relation:
        """Return an operator's rows that a change can affect; rows: those of its input with the touched keys."""
        if reach.order is None:
            return self._lowering.key_local(node, rows)
        return reach.tail(self._lowering.key_local(node, reach.with_rows_before(rows, node.child.columns)))


def swap_sides(keys: tuple[tuple[Scalar, Scalar, bool], ...]) -> tuple[tuple[Scalar, Scalar, bool], ...]:
    """Return the equalities of a join with left and right exchanged."""
    return tuple((right, left, null_safe) for left, right, null_safe in keys)


class InputChanges(Protocol):
    """The interface to before, after and change of the inputs."""

    def before(self, plan: Plan) -> Relation:
        """Return the rows before this refresh."""
        ...

    def after(self, plan: Plan) -> Relation:
        """Return the rows after this refresh."""
        ...

    def change(self, plan: Plan) -> Relation | None:
        """Return the Z-set between them; None if nothing changed."""
        ...

    def direction(self, plan: Plan) -> Direction | None:
        """Return whether the changed rows of the plan's only source were all added or all removed; None if unknown."""
        ...


class InnerJoins:
    """Computes the change of a tree of inner joins: one term for each changed input (D-011).

        Δ(r1 ⋈ … ⋈ rn)  =  Σi  after(r1) ⋈ … ⋈ after(ri-1) ⋈ Δri ⋈ before(ri+1) ⋈ … ⋈ before(rn)

    The order of the inputs is free. If a declared foreign key refers from l to o and rows of o were only added, o goes
    first, and its term before(l) ⋈ Δo is empty; if they were only removed, l goes first, and after(l) ⋈ Δo is empty
    (algebra/constraints.py). A term begins with its change and is joined with the other inputs one at a time, each
    restricted by pruning.py to the rows that the term so far can match; the term ends if it has no rows.

    facts: the declared constraints that hold before and after.
    """

    def __init__(
        self, lowering: Lowering, rules: InputChanges, pruning: Pruning, facts: Sequence[Constraint] = ()
    ) -> None:
        self._lowering, self._rules, self._pruning, self._facts = lowering, rules, pruning, facts

    def change(self, node: Join) -> Relation | None:
        """Return the sum of the terms of the inputs that changed."""
        joined = flatten_joins(node)
        rank, empty = self._order(joined)
        changes = [None if i in empty else self._rules.change(plan) for i, plan in enumerate(joined.inputs)]
        terms = [self._term(node, joined, rank, i, change) for i, change in enumerate(changes) if change is not None]
        summands = [(node.columns, term) for term in terms if term is not None]
        return self._lowering.union(node.columns, summands) if summands else None

    def _order(self, joined: Product) -> tuple[tuple[int, ...], frozenset[int]]:
        """Return the rank of each input, and the inputs whose terms a foreign key empties in that order."""
        earlier: list[tuple[int, int]] = []
        wanted: list[tuple[int, tuple[int, int]]] = []
        for referring, referred, _ in joined.references(self._facts):
            direction = self._rules.direction(joined.inputs[referred])
            if direction is not None:
                earlier.append((referred, referring) if direction == "added" else (referring, referred))
                wanted.append((referred, earlier[-1]))
        rank = rank_inputs(len(joined.inputs), earlier)
        return rank, frozenset(referred for referred, (one, other) in wanted if rank[one] < rank[other])

    def _term(
        self, node: Join, joined: Product, rank: tuple[int, ...], start: int, change: Relation
    ) -> Relation | None:
        """Join Δ of one input with `after` of the inputs before it and with `before` of those behind it."""
        needed = joined.find_needed(node.columns)
        columns = [column for column in joined.inputs[start].columns if column.name in needed]
        steps = joined.steps(start)
        term = self._pruning.product_term(columns, [joined.inputs[step.position] for step in steps], change)
        inside = all_column_names(joined.inputs[start])
        for step in steps:
            plan = joined.inputs[step.position]
            side = self._rules.after(plan) if rank[step.position] < rank[start] else self._rules.before(plan)
            next_input = self._pruning.next_input(
                term, columns, step, plan, side, mixed=bool(inside & all_column_names(plan))
            )
            if next_input is None:
                return None
            inside = all_column_names(plan) | (inside if next_input[0].rows is term.rows else frozenset[str]())
            term, side = next_input
            term = term.join(self._lowering.product(term.rows, side, step.conditions, step.implied))
            columns += [column for column in plan.columns if column.name in needed]
        return term.rows
