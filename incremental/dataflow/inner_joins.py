"""The change of inner joins. In: a tree of them and the calculus of their inputs. Out: one term an input.

    Δ(r1 ⋈ … ⋈ rn)  =  Σi  after(r1) ⋈ … ⋈ after(ri-1) ⋈ Δri ⋈ before(ri+1) ⋈ … ⋈ before(rn)

The order of the inputs is free. Where a declared foreign key ties l to o and rows of o only came, o goes first, and its
term before(l) ⋈ Δo is empty; where they only left, l goes first, and after(l) ⋈ Δo is (algebra/constraints.py).

A term begins with its change and meets the other inputs one at a time. As long as few rows are left, and the next input
is large, they are computed first, sent to where it is read, and the range of their keys restricts what is read of it;
where none are left the term ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from pyspark.sql import DataFrame

from incremental.algebra.constraints import Constraint
from incremental.algebra.plan import Column, Join, Plan
from incremental.algebra.product import Product, produced, product, ranks
from incremental.dataflow.lowering import Lowering, Relation
from incremental.dataflow.pruning import SMALL_BYTES, expected_bytes, extent, hinted, within

Direction = Literal["came", "left"]
"""What all rows of a change did."""


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

    def direction(self, plan: Plan) -> Direction | None:
        """What all changed rows of the one source did that the plan sees; None where it is not known."""
        ...

    def worth(self, plan: Plan) -> bool:
        """Whether its rows are so many that it pays to find out which of them matter."""
        ...


class Products:
    """Changes of inner joins; `hold` keeps rows that are used more than once; `facts` hold before and after."""

    def __init__(
        self,
        lowering: Lowering,
        inputs: Inputs,
        hold: Callable[[DataFrame], DataFrame],
        facts: Sequence[Constraint] = (),
    ) -> None:
        self._lowering, self._inputs, self._hold, self._facts = lowering, inputs, hold, facts

    def change(self, node: Join) -> Relation | None:
        """The sum of the terms of the inputs that changed."""
        whole = product(node)
        rank, empty = self._order(whole)
        changes = [None if i in empty else self._inputs.change(plan) for i, plan in enumerate(whole.inputs)]
        terms = [self._term(node, whole, rank, i, change) for i, change in enumerate(changes) if change is not None]
        found = [(node.columns, term) for term in terms if term is not None]
        return self._lowering.union(node.columns, found) if found else None

    def _order(self, whole: Product) -> tuple[tuple[int, ...], frozenset[int]]:
        """The rank of each input, and the inputs whose terms a foreign key empties in that order."""
        earlier: list[tuple[int, int]] = []
        wanted: list[tuple[int, tuple[int, int]]] = []
        for referring, referred, _ in whole.references(self._facts):
            direction = self._inputs.direction(whole.inputs[referred])
            if direction is not None:
                earlier.append((referred, referring) if direction == "came" else (referring, referred))
                wanted.append((referred, earlier[-1]))
        rank = ranks(len(whole.inputs), earlier)
        return rank, frozenset(referred for referred, (one, other) in wanted if rank[one] < rank[other])

    def _term(self, node: Join, whole: Product, rank: tuple[int, ...], start: int, change: Relation) -> Relation | None:
        needed = whole.needed(node.columns)
        columns = [column for column in whole.inputs[start].columns if column.name in needed]
        steps = whole.steps(start)
        worth = any(self._inputs.worth(whole.inputs[step.position]) for step in steps)
        few = worth and expected_bytes(self._frame(columns, change)) <= SMALL_BYTES
        known, inside = change, produced(whole.inputs[start])
        for step in steps:
            plan = whole.inputs[step.position]
            earlier = rank[step.position] < rank[start]
            side = self._inputs.after(plan) if earlier else self._inputs.before(plan)
            small = few and self._inputs.worth(plan)
            if small or inside & produced(plan):  # Spark confuses columns that come about on both sides
                held = self._hold(self._frame(columns, known))
                known = self._lowering.leaf(held, [(column.name, column) for column in columns], known.weighted)
                inside = frozenset[str]()
                if small:
                    reach = extent(self._lowering, held, [one for one, _ in step.equalities], worth=True)
                    if not reach.rows:
                        return None
                    few = reach.small
                    if few:
                        known = Relation(hinted(self._lowering, known.plan), known.weighted)
                    side = within(self._lowering, side, [other for _, other in step.equalities], reach)
            inside |= produced(plan)
            known = self._lowering.product(known, side, step.conditions)
            columns += [column for column in plan.columns if column.name in needed]
        return known

    def _frame(self, columns: list[Column], rows: Relation) -> DataFrame:
        return self._lowering.frame(rows, [(column, column.name) for column in columns])
