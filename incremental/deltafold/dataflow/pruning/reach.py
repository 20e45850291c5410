"""Describe the rows of a relation that a change can affect, and restrict the relation to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from deltafold.algebra.plan import Column, Join, Reference, Scalar
from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.dataflow.pruning.key_ranges import KeyRanges, restrict_to_ranges
from deltafold.dataflow.pruning.semijoin import Semijoin
from deltafold.dataflow.window_order import WindowOrder
from deltafold.spark.catalyst import J

SINCE, TOUCHED, IN_TAIL, NEARNESS = "__since", "__touched_", "__in_tail", "__nearness"  # names of columns


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
    """The rows whose keys are among the touched ones, NULL equal to NULL; ranges: those of the touched keys.

    order: that of a window; then the column SINCE of `touched` has the value of the first changed row of each key.
    """

    lowering: Lowering
    keys: Sequence[Column]
    touched: DataFrame
    ranges: KeyRanges
    few: bool
    order: WindowOrder | None = None

    def restrict(self, side: Relation) -> Relation:
        """Return the rows with these keys."""
        touched = self.touched if self.order is None else self.touched.drop(SINCE)
        return self._semijoin(self.near(side), touched)

    def near(self, side: Relation) -> Relation:
        """Return the rows whose keys are within the ranges."""
        return restrict_to_ranges(self.lowering, side, [Reference(key) for key in self.keys], self.ranges)

    def tail(self, side: Relation) -> Relation:
        """Return the rows with these keys that do not precede the first changed one, if there is an order."""
        if self.order is None:
            return self._semijoin(side, self.touched)
        at, expressions = self.lowering.attribute(self.order.column), self.lowering.catalyst.expressions
        compare = expressions.LessThanOrEqual if self.order.descending else expressions.GreaterThanOrEqual

        def follows(since: J) -> J:
            unknown = expressions.Or(expressions.IsNull(since), expressions.IsNull(at))
            return expressions.Or(unknown, compare(at, since))

        return self._semijoin(side, self.touched, follows)

    def _semijoin(self, side: Relation, touched: DataFrame, condition: Callable[[J], J] | None = None) -> Relation:
        attributes = [self.lowering.attribute(key) for key in self.keys]
        return Semijoin(self.lowering).of_keys(side, attributes, touched, condition, few=self.few)

    def with_rows_before(self, side: Relation, columns: Sequence[Column]) -> Relation:
        """Return the tail of rows that have these keys and columns, and what the window's functions read before it."""
        order = self.order
        if order is None or order.rows is None or not order.has_long_frames:
            return side
        names = [column.name for column in columns]
        rows = self.lowering.frame(side, list(zip(columns, names, strict=True)))
        touched = self.touched.toDF(*(f"{TOUCHED}{i}" for i in range(len(self.keys))), SINCE)
        equal = [F.col(quoted(key.name)).eqNullSafe(touched[f"{TOUCHED}{i}"]) for i, key in enumerate(self.keys)]
        at, since = F.col(quoted(order.column.name)), F.col(SINCE)
        in_tail = F.coalesce(at <= since if order.descending else at >= since, F.lit(True))
        nearest = at.asc_nulls_last() if order.descending else at.desc_nulls_last()
        partition = Window.partitionBy(*(quoted(key.name) for key in self.keys), IN_TAIL)
        joined = rows.join(F.broadcast(touched) if self.few else touched, on=equal).withColumn(IN_TAIL, in_tail)
        ranked = joined.withColumn(NEARNESS, F.rank().over(partition.orderBy(nearest)))
        kept = ranked.where(F.col(IN_TAIL) | (F.col(NEARNESS) <= order.rows))
        return self.lowering.leaf(kept, list(zip(names, columns, strict=True)), weighted=False)


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


def first_changed(order: WindowOrder) -> SparkColumn:
    """Return an aggregate over changed rows: the value of the first one in an order; NULL if one of them has none."""
    at = F.col(quoted(order.column.name))
    first = F.max(at) if order.descending else F.min(at)
    return F.when(F.count(at) == F.count(F.lit(1)), first).alias(SINCE)
