"""Runtime room: the calculus (DESIGN section 5). In: a plan and what its leaves were, are, and how they changed.
Out: `before`, `after` and `change` of any node, each a lazy relation; `after = before + change`.

| node | change |
| --- | --- |
| project, filter, generate, expand, union | the same operator on the change (linear) |
| inner join | Δl ⋈ before(r) + after(l) ⋈ Δr (bilinear); a term whose side did not change vanishes |
| outer, semi, anti, existence join whose other side did not change | the same join on the change |
| any other F local to a key | touched keys K: F(after ⋉ K) − F(before ⋉ K) |
"""

from __future__ import annotations

from typing import Protocol

from incremental.algebra.plan import (
    Expand,
    Filter,
    Foreign,
    Generate,
    Join,
    Plan,
    Project,
    Source,
    StateRead,
    Union,
    Values,
)
from incremental.runtime.lowering import Lowering, Relation

Leaf = Source | StateRead


class Leaves(Protocol):
    """What the leaves of a plan are in one refresh."""

    @property
    def initial(self) -> bool:
        """Whether there is no epoch before this one."""
        ...

    def changed(self, leaf: Leaf) -> bool:
        """Whether its rows may differ between before and after."""
        ...

    def before(self, leaf: Leaf) -> Relation:
        """Its rows when the epoch began."""
        ...

    def after(self, leaf: Leaf) -> Relation:
        """Its rows when the epoch is done."""
        ...

    def change(self, leaf: Leaf) -> Relation:
        """What leads from before to after; asked only where it changed."""
        ...


class Calculus:
    """Before, after and change of plans over given leaves."""

    def __init__(self, lowering: Lowering, leaves: Leaves) -> None:
        self._lowering, self._leaves = lowering, leaves

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
            case Join(left=left, right=right):
                return self._join(plan, self.change(left), self.change(right))
            case Values() | Foreign():
                return None
            case _:
                return self._by_definition(plan)

    def _join(self, node: Join, left: Relation | None, right: Relation | None) -> Relation | None:
        if node.kind == "inner":
            terms: list[Relation] = []
            if left is not None:
                terms.append(self._lowering.join(node, left, self.before(node.right)))
            if right is not None:
                terms.append(self._lowering.join(node, self.after(node.left), right))
            return self._lowering.union(node.columns, [(node.columns, term) for term in terms]) if terms else None
        if left is not None and right is None and node.kind in ("left", "semi", "anti", "existence"):
            return self._lowering.join(node, left, self.after(node.right))
        if right is not None and left is None and node.kind == "right":
            return self._lowering.join(node, self.after(node.left), right)
        return self._by_definition(node)

    def _by_definition(self, plan: Plan) -> Relation:
        """Recompute before and after, subtract: the definition of a change, for any operator."""
        terms = [(plan.columns, self.after(plan)), self._lowering.negated(plan.columns, self.before(plan))]
        return self._lowering.union(plan.columns, terms)
