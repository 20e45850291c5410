"""Define the stage of a maintained loop: its inputs, its step and its table.

| kind | step of the stage | table |
| --- | --- | --- |
| levels, set, best | with the level as its last column: one above that of the rows derived from | candidates |
| times | as the query has it | the answer; of k-means, centers and sums of each step as well |
| converged | as the query has it | the answer, one row a key |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from deltafold.algebra.plan import Call, Column, Given, Keep, LoopKind, LoopTraits, Plan, Tolerance, Union, traits_of
from deltafold.algebra.traversal import walk

LEVEL = "__level"
ACCEPTED = "__accepted"
CITED_RESIDUALS = 5  # residuals in a message
ROUNDING = 1.01  # how much less than its declared contraction a step may shrink a residual, because of rounding


def show_residuals(residuals: Sequence[float]) -> str:
    """Return the last residuals of a loop as text."""
    return ", ".join(f"{residual:.3g}" for residual in residuals[-CITED_RESIDUALS:])


def advise(residuals: Sequence[float]) -> str:
    """Return the fix for a loop whose residuals did not reach its tolerance."""
    if not math.isfinite(residuals[-1]):
        return "A step computes numbers that are not finite: correct it, or leave out the rows that they come from."
    if residuals[-1] > residuals[0]:
        return "They grow: let the step shrink differences."
    return "Raise the limit or the tolerance."


def contracts(residuals: Sequence[float], declared: float | None) -> bool:
    """Return whether the last step of a loop shrank its residual by the declared contraction, if there is one."""
    return declared is None or len(residuals) < 2 or residuals[-1] <= declared * ROUNDING * residuals[-2]


@dataclass(frozen=True)
class SideInput:
    """A part of a step that does not read the loop; `given` stands for it in the step, by position."""

    given: Given
    plan: Plan


STEP = Column("__step", "int")
POSITION = Column("__number", "int")
"""Columns of k-means: the step that a center belongs to, and the number of its cluster, the same in all steps."""


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """A step that is a group-by of points by the nearest center (Euclidean), with aggregates that subtract.

    points: the points over a side input, with their coordinates and the arguments of the aggregates; coordinates: of a
    point, each with the column of the loop that it is compared with; calls: the aggregates; answer: a plan over
    `groups` (STEP, POSITION and the answers of the calls, of all steps) with STEP, POSITION and the next centers.
    """

    side: Given
    points: Plan
    coordinates: tuple[tuple[Column, Column], ...]
    calls: tuple[Call, ...]
    groups: Given
    answer: Plan


@dataclass(frozen=True, kw_only=True)
class LoopState:
    """One loop, maintained as a stage; its answer is read as `StateRead(name, columns)`.

    init, and the plans of the side inputs, are plans over sources and earlier stages. step: over `Given` alone: of the
    loop (`Given(name, …)`, as often as the step reads it, by position) and of side inputs, and rows of constants.
    levelled: the step and each `Given` of the loop have the level (INT) as their last column; init has none.
    columns: those of a row, in the table under their names, in init and step by position; keys, keep, limit, distinct,
    tolerance: as in Loop.
    warm: of converged, the double columns that the step computes, whose stored values a refresh starts from; carried:
    those that it passes on unchanged from the loop's own row, taken from init as it is now.
    clusters: how the step groups points by the nearest center, of kind times alone; replayed: otherwise, the reason
    why the steps of such a loop are evaluated from the start.
    """

    name: str
    kind: LoopKind
    init: Plan
    step: Plan
    sides: tuple[SideInput, ...]
    columns: tuple[Column, ...]
    keys: tuple[Column, ...]
    limit: int
    levelled: bool = True
    keep: Keep | None = None
    distinct: bool = False
    tolerance: Tolerance | None = None
    warm: tuple[Column, ...] = ()
    carried: tuple[Column, ...] = ()
    clusters: Clusters | None = None
    replayed: str = ""

    @property
    def traits(self) -> LoopTraits:
        """The properties of every loop of its kind."""
        return traits_of(self.kind)

    @property
    def points(self) -> str | None:
        """The table that has the points of k-means beside the loop's own; None if there is none."""
        return f"{self.name}_points" if self.clusters is not None else None

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables of the stage in the order of their commits."""
        return (self.name,) if self.points is None else (self.name, self.points)

    @property
    def inputs(self) -> tuple[Plan, ...]:
        """The plans that read what is outside the loop."""
        return (self.init, *(side.plan for side in self.sides))

    @property
    def has_fixed_rows(self) -> bool:
        """Whether the step gives rows of an empty loop: some branch of a union in it does not read the loop."""
        branches = (branch for node in walk(self.step) if isinstance(node, Union) for branch in node.children)
        return any(not self._is_read(branch) for branch in branches)

    def _is_read(self, plan: Plan) -> bool:
        return any(isinstance(node, Given) and node.name == self.name for node in walk(plan))

    @property
    def row_key(self) -> tuple[Column, ...]:
        """The columns that identify a row of the answer: the key, or all of them."""
        return self.keys or self.columns
