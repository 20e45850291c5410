"""Compute the change of a tree of inner joins: one term for each changed input.

    Δ(r1 ⋈ … ⋈ rn)  =  Σi  after(r1) ⋈ … ⋈ after(ri-1) ⋈ Δri ⋈ before(ri+1) ⋈ … ⋈ before(rn)

The order of the inputs is free. If a declared foreign key refers from l to o and rows of o were only added, o goes
first, and its term before(l) ⋈ Δo is empty; if they were only removed, l goes first, and after(l) ⋈ Δo is empty
(algebra/constraints.py).

A term begins with its change and is joined with the other inputs one at a time, each restricted by pruning.py to the
rows that the term so far can match; the term ends if it has no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from deltafold.algebra.constraints import Constraint
from deltafold.algebra.plan import Join, Plan
from deltafold.algebra.product import Product, flatten_joins, rank_inputs
from deltafold.algebra.traversal import all_column_names
from deltafold.dataflow.leaves import Direction
from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.dataflow.pruning.pruning import Pruning


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
    """Computes changes of inner joins; facts: the declared constraints that hold before and after."""

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
        found = [(node.columns, term) for term in terms if term is not None]
        return self._lowering.union(node.columns, found) if found else None

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
            found = self._pruning.next_input(term, columns, step, plan, side, bool(inside & all_column_names(plan)))
            if found is None:
                return None
            inside = all_column_names(plan) | (inside if found[0].rows is term.rows else frozenset[str]())
            term, side = found
            term = term.join(self._lowering.product(term.rows, side, step.conditions, step.implied))
            columns += [column for column in plan.columns if column.name in needed]
        return term.rows
