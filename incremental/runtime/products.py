"""Runtime room: the change of inner joins. In: a tree of them and the calculus of their inputs. Out: one term an input.

    Δ(r1 ⋈ … ⋈ rn)  =  Σi  after(r1) ⋈ … ⋈ after(ri-1) ⋈ Δri ⋈ before(ri+1) ⋈ … ⋈ before(rn)

A term begins with its change and meets the other inputs one at a time. As long as few rows are left they are computed
first, sent to where the next input is read, and the range of their keys restricts what is read of it; where none are
left the term ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pyspark.sql import DataFrame

from incremental.algebra.plan import Column, Join, Plan
from incremental.algebra.product import Product, product
from incremental.runtime.extent import SMALL_BYTES, expected_bytes, extent, hinted, within
from incremental.runtime.lowering import Lowering, Relation


class Inputs(Protocol):
    """Before, after and change of the inputs."""

    def before(self, plan: Plan) -> Relation:
        """The rows before this refresh."""
        ...

    def after(self, plan: Plan) -> Relation:
        """The rows after this refresh."""
        ...

    def change(self, plan: Plan) -> Relation | None:
        """The Z-set between them; None where nothing changed."""
        ...


class Products:
    """Changes of inner joins; `hold` keeps rows that are used more than once."""

    def __init__(self, lowering: Lowering, inputs: Inputs, hold: Callable[[DataFrame], DataFrame]) -> None:
        self._lowering, self._inputs, self._hold = lowering, inputs, hold

    def change(self, node: Join) -> Relation | None:
        """The sum of the terms of the inputs that changed."""
        whole = product(node)
        changes = [self._inputs.change(plan) for plan in whole.inputs]
        terms = [self._term(node, whole, i, change) for i, change in enumerate(changes) if change is not None]
        found = [(node.columns, term) for term in terms if term is not None]
        return self._lowering.union(node.columns, found) if found else None

    def _term(self, node: Join, whole: Product, start: int, change: Relation) -> Relation | None:
        needed = whole.needed(node.columns)
        columns = [column for column in whole.inputs[start].columns if column.name in needed]
        frame = self._frame(columns, change)
        few = expected_bytes(frame) <= SMALL_BYTES
        known = change
        for step in whole.steps(start):
            plan = whole.inputs[step.position]
            side = self._inputs.after(plan) if step.position < start else self._inputs.before(plan)
            if few:
                held = self._hold(self._frame(columns, known))
                reach = extent(self._lowering, held, [one for one, _ in step.equalities])
                if not reach.rows:
                    return None
                known = self._lowering.leaf(held, [(column.name, column) for column in columns], known.weighted)
                few = reach.small
                if few:
                    known = Relation(hinted(self._lowering, known.plan), known.weighted)
                side = within(self._lowering, side, [other for _, other in step.equalities], reach)
            known = self._lowering.product(known, side, step.conditions)
            columns += [column for column in plan.columns if column.name in needed]
        return known

    def _frame(self, columns: list[Column], rows: Relation) -> DataFrame:
        return self._lowering.frame(rows, [(column, column.name) for column in columns])
