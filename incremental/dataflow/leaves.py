"""The interface through which the rules read the leaves of a plan: sources, states, and what a loop's step is given."""

from __future__ import annotations

from typing import Literal, Protocol

from incremental.algebra.plan import Given, SourceRead, StateRead
from incremental.dataflow.lowering import Relation

Leaf = SourceRead | StateRead | Given
Direction = Literal["added", "removed"]
"""What happened to all rows of a change that goes one way only."""


class Leaves(Protocol):
    """The leaves of a plan in one refresh, or in one round of a loop."""

    @property
    def initial(self) -> bool:
        """True if no epoch precedes this one."""
        ...

    def changed(self, leaf: Leaf) -> bool:
        """True if its rows may differ between before and after."""
        ...

    def before(self, leaf: Leaf) -> Relation:
        """Its rows when the epoch began."""
        ...

    def after(self, leaf: Leaf) -> Relation:
        """Its rows when the epoch is done."""
        ...

    def change(self, leaf: Leaf) -> Relation:
        """The Z-set from before to after; asked only if it changed."""
        ...

    def direction(self, leaf: SourceRead) -> Direction | None:
        """Whether its changed rows were all added or all removed; None if unknown or mixed."""
        ...

    def bytes(self, leaf: Leaf) -> int:
        """The approximate size of its table."""
        ...
