"""Describe the rows of a relation that a change can affect, and restrict the relation to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from deltafold.algebra.plan import Column, Join, Reference, Scalar
from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.dataflow.pruning.key_ranges import KeyRanges, restrict_to_ranges
from deltafold.dataflow.pruning.semijoin import Semijoin


class Reach(Protocol):
    """The rows of an input that a change can affect."""

    @property
    def few(self) -> bool:
        """Whether the change is small enough to broadcast."""
        ...

    def restrict(self, side: Relation) -> Relation:
        """Return the affected rows of the input, before or after the change."""
        ...


@dataclass(frozen=True, kw_only=True)
class KeyReach:
    """The rows whose keys are among the touched ones, NULL equal to NULL; ranges: those of the touched keys."""

    lowering: Lowering
    keys: Sequence[Column]
    touched: DataFrame
    ranges: KeyRanges
    few: bool

    def restrict(self, side: Relation) -> Relation:
        """Return the rows with these keys."""
        near = restrict_to_ranges(self.lowering, side, [Reference(key) for key in self.keys], self.ranges)
        attributes = [self.lowering.attribute(key) for key in self.keys]
        return Semijoin(self.lowering).of_keys(near, attributes, self.touched, few=self.few)


@dataclass(frozen=True, kw_only=True)
class JoinReach:
    """The rows of a join that the changed rows of its right side can affect; touched: these; ranges: of their keys."""

    lowering: Lowering
    node: Join
    touched: DataFrame
    ranges: KeyRanges
    few: bool

    def restrict_left(self, side: Relation) -> Relation:
        """Return the rows of the left side that a changed row matches."""
        near = restrict_to_ranges(self.lowering, side, [one for one, _ in plain_keys(self.node)], self.ranges)
        return Semijoin(self.lowering).matched_rows(self.node, near, self.touched, few=self.few)

    def restrict(self, side: Relation) -> Relation:
        """Return the rows of the right side that can match those."""
        near = restrict_to_ranges(self.lowering, side, [other for _, other in plain_keys(self.node)], self.ranges)
        return Semijoin(self.lowering).partners(self.node, near, self.touched, few=self.few)


def plain_keys(node: Join) -> list[tuple[Scalar, Scalar]]:
    """Return the keys of both sides of a join that are compared by `=`, not by `<=>`."""
    return [(one, other) for one, other, null_safe in node.keys if not null_safe]
