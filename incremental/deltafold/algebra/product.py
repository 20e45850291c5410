"""Flatten a tree of inner joins into one product, and order its inputs for the change of any one of them.

The change of one input is joined with the others one at a time, each by the conditions that connect it to the columns
known so far; so a small change never requires a join of unchanged inputs with each other. Equalities that follow from
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
    between a known column and one of its own, with the implied ones; implied: those that no condition tests yet.
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
        """Return the names of the given columns and of those that the conditions test."""
        return frozenset(column.name for column in columns).union(*(c.columns for c in self.conditions))

    def steps(self, start: int) -> tuple[JoinStep, ...]:
        """Return the other inputs in an order that connects each to those before it, by an equality if possible."""
        known = column_names(self.inputs[start])
        remaining = [position for position in range(len(self.inputs)) if position != start]
        untested = list(self.conditions)
        found: list[JoinStep] = []
        while remaining:
            position = min(remaining, key=lambda p: (self._distance(known, p), not is_filtered(self.inputs[p]), p))
            remaining.remove(position)
            own = column_names(self.inputs[position])
            equalities = _between(self._both_ways, known, own)
            implied = self._imply(known, own, equalities)
            known = known | own
            tested = tuple(condition for condition in untested if condition.columns <= known)
            untested = [condition for condition in untested if condition not in tested]
            found.append(JoinStep(position, tested, (*equalities, *implied), implied))
        return tuple(found)

    def references(self, facts: Sequence[Constraint]) -> tuple[tuple[int, int, ForeignKeyFact], ...]:
        """Return the pairs of inputs of which one refers to the other: (referring, referred, the foreign key)."""
        found = (
            (one, other, find_reference(facts, self.inputs[one], self.inputs[other], self._both_ways))
            for one, other in permutations(range(len(self.inputs)), 2)
        )
        return tuple((one, other, fact) for one, other, fact in found if fact is not None) if facts else ()

    @cached_property
    def _both_ways(self) -> list[EqualKeys]:
        return [pair for one, other in self.equalities for pair in ((one, other), (other, one))]

    @cached_property
    def _connected(self) -> list[EqualKeys]:
        """The equalities, and those that follow from them through one column or several."""
        found = dict.fromkeys(self._both_ways)
        for column in [one for one, _ in found if isinstance(one, Reference)]:
            ends = [other for one, other in found if one == column]
            found |= dict.fromkeys(permutations(ends, 2))
        return list(found)

    def _imply(self, known: frozenset[str], own: frozenset[str], stated: Sequence[EqualKeys]) -> tuple[EqualKeys, ...]:
        """Return one implied equality for each of an input's keys that no stated one connects."""
        tied = {other for _, other in stated}
        implied = {other: (one, other) for one, other in _between(self._connected, known, own) if other not in tied}
        return tuple(implied.values())

    def _distance(self, known: frozenset[str], position: int) -> int:
        """Return 0 if an equality connects an input to the known columns, 1 if another condition does, 2 if none."""
        own = column_names(self.inputs[position])
        if _between(self._connected, known, own):
            return 0
        connected = any(c.columns & known and c.columns & own and c.columns <= known | own for c in self.conditions)
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
        case Filter(child=child, condition=condition) if is_inner_join(child):
            below = flatten_joins(child)
            return Product(below.inputs, (*below.conditions, condition), below.equalities)
        case Project(child=child, items=items) if is_inner_join(child) and all(
            item.scalar == Reference(item.column) for item in items
        ):
            return flatten_joins(child)
        case _:
            return Product((plan,), (), ())


def _between(equalities: Sequence[EqualKeys], known: frozenset[str], own: frozenset[str]) -> tuple[EqualKeys, ...]:
    return tuple((one, other) for one, other in equalities if one.columns <= known and other.columns <= own)


def rank_inputs(count: int, earlier: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the rank of each input in an order that respects as many of the pairs (earlier, later) as possible."""
    remaining = list(range(count))
    order = list[int]()
    while remaining:
        free = [p for p in remaining if not any(one in remaining for one, other in earlier if other == p and one != p)]
        order.append((free or remaining)[0])
        remaining.remove(order[-1])
    return tuple(order.index(position) for position in range(count))


def is_filtered(plan: Plan) -> bool:
    """Return whether a plan's rows are those of another one that a condition keeps."""
    while isinstance(plan, Project):
        plan = plan.child
    return isinstance(plan, Filter)


def is_inner_join(plan: Plan) -> bool:
    """Return whether a plan is an inner join under filters and projections."""
    while isinstance(plan, Filter | Project):
        plan = plan.child
    return isinstance(plan, Join) and plan.kind == "inner"
