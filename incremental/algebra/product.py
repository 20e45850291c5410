"""Algebra room: a tree of inner joins as one product. In: a join. Out: inputs, conditions, an order from any input.

A change of one input meets the others one after the other, each by the conditions that tie it to what is known by then;
so a small change never waits for the join of all that did not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from incremental.algebra.constraints import Constraint, Referring, reference
from incremental.algebra.plan import Column, Filter, Join, Plan, Project, Reference, Scalar, walk

Equality = tuple[Scalar, Scalar]


@dataclass(frozen=True)
class Step:
    """The next input: its position, the conditions that can be tested with it, the equalities (known, its own)."""

    position: int
    conditions: tuple[Scalar, ...]
    equalities: tuple[Equality, ...]


@dataclass(frozen=True)
class Product:
    """Inputs in the query's order, what their rows must fulfil together, and the equalities among that."""

    inputs: tuple[Plan, ...]
    conditions: tuple[Scalar, ...]
    equalities: tuple[Equality, ...]

    def needed(self, columns: Sequence[Column]) -> frozenset[str]:
        """Names of the columns that the conditions test or that are wanted."""
        return frozenset(column.name for column in columns).union(*(c.columns for c in self.conditions))

    def steps(self, start: int) -> tuple[Step, ...]:
        """All inputs but one in an order in which each is tied to what is known, if it can be by an equality."""
        known = names(self.inputs[start])
        remaining = [position for position in range(len(self.inputs)) if position != start]
        untested = list(self.conditions)
        found: list[Step] = []
        while remaining:
            position = min(remaining, key=lambda p: (self._distance(known, p), p))
            remaining.remove(position)
            equalities = tuple(self._between(known, names(self.inputs[position])))
            known = known | names(self.inputs[position])
            tested = tuple(condition for condition in untested if condition.columns <= known)
            untested = [condition for condition in untested if condition not in tested]
            found.append(Step(position, tested, equalities))
        return tuple(found)

    def references(self, facts: Sequence[Constraint]) -> tuple[tuple[int, int, Referring], ...]:
        """Which input refers to which other by a declared foreign key: (referring, referred, the key)."""
        pairs = [pair for one, other in self.equalities for pair in ((one, other), (other, one))]
        found = (
            (one, other, reference(facts, self.inputs[one], self.inputs[other], pairs))
            for one, other in permutations(range(len(self.inputs)), 2)
        )
        return tuple((one, other, fact) for one, other, fact in found if fact is not None) if facts else ()

    def _between(self, known: frozenset[str], own: frozenset[str]) -> list[Equality]:
        """The equalities between known columns and those of another input."""
        both = [pair for one, other in self.equalities for pair in ((one, other), (other, one))]
        return [(one, other) for one, other in both if one.columns <= known and other.columns <= own]

    def _distance(self, known: frozenset[str], position: int) -> int:
        """0: tied by an equality; 1: by some condition; 2: not at all."""
        own = names(self.inputs[position])
        if self._between(known, own):
            return 0
        tied = any(c.columns & known and c.columns & own and c.columns <= known | own for c in self.conditions)
        return 1 if tied else 2


def product(plan: Plan) -> Product:
    """The product of a tree of inner joins, through filters and projections that only drop columns."""
    match plan:
        case Join(kind="inner", left=left, right=right):
            one, other = product(left), product(right)
            conditions = one.conditions + other.conditions + plan.conjuncts
            equalities = tuple((left, right) for left, right, null_safe in plan.keys if not null_safe)
            return Product(one.inputs + other.inputs, conditions, one.equalities + other.equalities + equalities)
        case Filter(child=child, condition=condition) if joins(child):
            below = product(child)
            return Product(below.inputs, (*below.conditions, condition), below.equalities)
        case Project(child=child, items=items) if joins(child) and all(i.scalar == Reference(i.column) for i in items):
            return product(child)
        case _:
            return Product((plan,), (), ())


def ranks(count: int, earlier: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The rank of each input in an order in which one comes before the other for as many of the pairs as can be."""
    remaining, order = list(range(count)), list[int]()
    while remaining:
        free = [p for p in remaining if not any(one in remaining for one, other in earlier if other == p and one != p)]
        order.append((free or remaining)[0])
        remaining.remove(order[-1])
    return tuple(order.index(position) for position in range(count))


def joins(plan: Plan) -> bool:
    """Whether a plan is an inner join under filters and projections."""
    while isinstance(plan, Filter | Project):
        plan = plan.child
    return isinstance(plan, Join) and plan.kind == "inner"


def produced(plan: Plan) -> frozenset[str]:
    """Names of all columns that come about anywhere in a plan."""
    return frozenset(column.name for node in walk(plan) for column in node.columns)


def names(plan: Plan) -> frozenset[str]:
    """The names of a plan's columns."""
    return frozenset(column.name for column in plan.columns)
