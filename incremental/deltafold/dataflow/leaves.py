"""Define the interface through which the rules read the leaves of a plan: sources, states, and a loop's rows."""

from __future__ import annotations

from typing import Literal, Protocol

from deltafold.algebra.plan import Given, Plan, SourceRead, StateRead
from deltafold.dataflow.lowering import Relation

Leaf = SourceRead | StateRead | Given
Direction = Literal["added", "removed"]
"""The direction of a change whose rows were all added or all removed."""


class Leaves(Protocol):
    """The leaves of a plan in one refresh, or in one round of a loop."""

    @property
    def initial(self) -> bool:
        """True if no epoch precedes this one."""
        ...

    def has_changed(self, leaf: Leaf) -> bool:
        """Return whether its rows may differ between before and after."""
        ...

    def before(self, leaf: Leaf) -> Relation:
        """Its rows when the epoch began."""
        ...

    def after(self, leaf: Leaf) -> Relation:
        """Its rows when the epoch is done."""
        ...

    def change(self, leaf: Leaf) -> Relation:
        """Return the Z-set from before to after; asked only if it changed."""
        ...

    def direction(self, leaf: SourceRead) -> Direction | None:
        """Return whether its changed rows were all added or all removed; None if unknown or mixed."""
        ...

    def bytes(self, leaf: Leaf) -> int:
        """Return the approximate size of its table."""
        ...

    def bytes_read(self, plan: Plan) -> int:
        """Return the most bytes that a change of a plan reads."""
        ...
