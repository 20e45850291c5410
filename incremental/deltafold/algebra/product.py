"""Flatten a tree of inner joins into one product, and order its inputs for the change of any one of them.

The change of one input is joined with the others one at a time, each by the conditions that connect it to the columns
joined so far; so a small change never requires a join of unchanged inputs with each other. Equalities that follow from
others (a = b and b = c: a = c) connect too, and an input that the query filters goes before others, as it keeps less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

from deltafold.algebra.constraints import Constraint, ForeignKeyFact, find_reference
from deltafold.algebra.plan import Column, Filter, Join, Plan, Project, Reference, Scalar
from deltafold.algebra.traversal import column_names

EqualKeys = tuple[Scalar, Scalar]


@dataclass(frozen=True)
class JoinStep:
    """The next input to join.

    position: of the input in the product; conditions: those that can be tested once it is joined; equalities: those
    between a joined column and one of its own, with the implied ones; implied: those that no condition tests yet.
    """

    position: int
    conditions: tuple[Scalar, ...]
    equalities: tuple[EqualKeys, ...]
    implied: tuple[EqualKeys, ...] = ()


@dataclass(frozen=True)
class Product:
    """Inputs in the query's order, the conditions on their rows, and the equalities among these conditions."""

    inputs: tuple[Plan, ...]
    conditions: tuple[Scalar, ...]
    equalities: tuple[EqualKeys, ...]

    def find_needed(self, columns: Sequence[Column]) -> frozenset[str]:
        """Return the names of these columns and of those that the conditions test."""
        return frozenset(column.name for column in columns).union(*(c.columns for c in self.conditions))

    def steps(self, start: int) -> tuple[JoinStep, ...]:
        """Return the other inputs in an order that connects each to those before it, by an equality if possible."""
        joined = column_names(self.inputs[start])
        remaining = [position for position in range(len(self.inputs)) if position != start]
        untested = list(self.conditions)
        steps: list[JoinStep] = []
        while remaining:
            position = min(remaining, key=lambda p: (self._distance(joined, p), not _is_filtered(self.inputs[p]), p))
            remaining.remove(position)
            own = column_names(self.inputs[position])
            equalities = _between(self._both_ways, joined, own)
            implied = self._imply(joined, own, equalities)
            joined = joined | own
            tested = tuple(condition for condition in untested if condition.columns <= joined)
            untested = [condition for condition in untested if condition not in tested]
            steps.append(JoinStep(position, tested, (*equalities, *implied), implied))
        return tuple(steps)

    def references(self, facts: Sequence[Constraint]) -> tuple[tuple[int, int, ForeignKeyFact], ...]:
        """Return the pairs of inputs of which one refers to the other: (referring, referred, the foreign key)."""
        pairs = permutations(range(len(self.inputs)), 2) if facts else ()
        references = (
            (one, other, find_reference(facts, self.inputs[one], self.inputs[other], self._both_ways))
            for one, other in pairs
        )
        return tuple((one, other, fact) for one, other, fact in references if fact is not None)

    @cached_property
    def _both_ways(self) -> list[EqualKeys]:
        return [pair for one, other in self.equalities for pair in ((one, other), (other, one))]

    @cached_property
    def _connected(self) -> list[EqualKeys]:
        """The equalities, and those that follow from them through one column or several."""
        equalities = dict.fromkeys(self._both_ways)
        for column in [one for one, _ in equalities if isinstance(one, Reference)]:
            ends = [other for one, other in equalities if one == column]
            equalities |= dict.fromkeys(permutations(ends, 2))
        return list(equalities)

    def _imply(self, joined: frozenset[str], own: frozenset[str], stated: Sequence[EqualKeys]) -> tuple[EqualKeys, ...]:
        """Return one implied equality for each of an input's keys that no stated one connects."""
        tied = {other for _, other in stated}
        implied = {other: (one, other) for one, other in _between(self._connected, joined, own) if other not in tied}
        return tuple(implied.values())

    def _distance(self, joined: frozenset[str], position: int) -> int:
        """Return 0 if an equality connects an input to the joined columns, 1 if another condition does, 2 if none."""
        own = column_names(self.inputs[position])
        if _between(self._connected, joined, own):
            return 0
        connected = any(c.columns & joined and c.columns & own and c.columns <= joined | own for c in self.conditions)
        return 1 if connected else 2


def flatten_joins(plan: Plan) -> Product:
    """Return the product of a tree of inner joins, through filters and projections that only drop columns."""
    match plan:
        case Join(kind="inner", left=left, right=right):
            one = flatten_joins(left)
            other = flatten_joins(right)
            conditions = one.conditions + other.conditions + plan.conjuncts
            equalities = tuple((left, right) for left, right, null_safe in plan.keys if not null_safe)
            return Product(one.inputs + other.inputs, conditions, one.equalities + other.equalities + equalities)
        case Filter(child=child, condition=condition) if _is_inner_join(child):
            below = flatten_joins(child)
            return Product(below.inputs, (*below.conditions, condition), below.equalities)
        case Project(child=child, items=items) if _is_inner_join(child) and all(
            item.scalar == Reference(item.column) for item in items
        ):
            return flatten_joins(child)
        case _:
            return Product((plan,), (), ())


def _between(equalities: Sequence[EqualKeys], joined: frozenset[str], own: frozenset[str]) -> tuple[EqualKeys, ...]:
    return tuple((one, other) for one, other in equalities if one.columns <= joined and other.columns <= own)


def rank_inputs(count: int, earlier: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the rank of each input in an order that respects as many of the pairs (earlier, later) as possible."""
    remaining = list(range(count))
    order = list[int]()
    while remaining:
        free = [p for p in remaining if not any(one in remaining for one, other in earlier if other == p and one != p)]
        order.append((free or remaining)[0])
        remaining.remove(order[-1])
    return tuple(order.index(position) for position in range(count))


def _is_filtered(plan: Plan) -> bool:
    """Return whether a plan's rows are those of another one that a condition keeps."""
    while isinstance(plan, Project):
        plan = plan.child
    return isinstance(plan, Filter)


def _is_inner_join(plan: Plan) -> bool:
    """Return whether a plan is an inner join under filters and projections."""
    while isinstance(plan, Filter | Project):
        plan = plan.child
    return isinstance(plan, Join) and plan.kind == "inner"
