"""What the calculus asks of the leaves of plans. Out: their rows before and after, and the change."""

from __future__ import annotations

from typing import Protocol

from incremental.algebra.plan import Source, StateRead
from incremental.dataflow.inner_joins import Direction
from incremental.dataflow.lowering import Relation

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

    def direction(self, leaf: Source) -> Direction | None:
        """Whether its changed rows all came, or all left; None where it is not known."""
        ...

    def bytes(self, leaf: Leaf) -> int:
        """What its table takes, about."""
        ...
