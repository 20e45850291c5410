"""Compute h, the partial aggregates of a change (or of rows) of a state's input: one row per touched group.

The row has the stored columns of the state for the change alone, the watched columns, and the number of its input
rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.monoids.kinds import Component, Monoid, Recomputed
from deltafold.algebra.plan import GroupwiseOp, Join, Plan, SourceRead
from deltafold.algebra.program import BUCKET, ROWS, WEIGHT, Slot, State
from deltafold.algebra.sqltext import is_unordered, quoted
from deltafold.algebra.traversal import walk
from deltafold.dataflow.lowering import Lowering
from deltafold.dataflow.state_schema import Layout
from deltafold.dataflow.touched_partitions import known_partitions, partitions
from deltafold.spark.row_identity import group_identical

TOUCHED = "__touched"


def aggregate_change(layout: Layout, change: DataFrame, lowering: Lowering) -> DataFrame:
    """Compute h of a change; rows without a weight count as 1."""
    weighted = WEIGHT in change.columns
    state = layout.state
    if weighted and any(slot.accumulator.unit_weights for slot in state.slots):
        change = unit_weights(change)
    weight = quoted(WEIGHT) if weighted else "1L"
    measures = [
        F.expr(f"CAST(coalesce(sum({weight}), 0) AS BIGINT)").alias(ROWS),
        F.count(F.lit(1)).alias(TOUCHED),
        *(
            measure(slot, part, weight, lowering, change).alias(name)
            for slot, part, name in layout.parts + layout.watched
        ),
    ]
    keys = [F.col(quoted(key.name)).alias(layout.key(key)) for key in state.keys]
    grouped = change.groupBy(*keys).agg(*measures) if keys else change.agg(*measures)
    if weighted and state.invertible and keys:
        # groups whose changes cancel need no merge
        same = " AND ".join(f"{quoted(name)} <=> {part.zero}" for _, part, name in layout.parts)
        grouped = grouped.where(f"NOT ({ROWS} = 0{' AND ' + same if same else ''})")
    return grouped.withColumn(BUCKET, F.expr(layout.bucket_sql))


def measure(slot: Slot, part: Component, weight: str, lowering: Lowering, change: DataFrame) -> Column:
    """Return one column of h; NULL for a Z-set if the aggregate has no merge, since its groups are recomputed."""
    if not isinstance(slot.accumulator, Recomputed):
        return F.expr(lift_sql(slot, part, weight))
    if weight == quoted(WEIGHT):
        return F.lit(None).cast(part.type)
    return lowering.over(change, slot.call.handle).cast(part.type)


def lift_sql(slot: Slot, part: Component, weight: str) -> str:
    """Return SQL for one column of h."""
    arguments = dict(zip("xy", (quoted(column.name) for column in slot.call.arguments), strict=False))
    return f"CAST({part.lift.format(w=weight, **arguments)} AS {part.type})"


def unit_weights(change: DataFrame) -> DataFrame:
    """Repeat each row as often as its weight, with weight 1 or -1."""
    copies = F.expr(f"explode(array_repeat(CAST(sign({WEIGHT}) AS BIGINT), CAST(abs({WEIGHT}) AS INT)))")
    return change.select(*(F.col(quoted(c)) for c in change.columns if c != WEIGHT), copies.alias(WEIGHT))


@dataclass(frozen=True, kw_only=True)
class TouchedGroups:
    """The groups that h touched: their number, the rows of the change, the buckets, and possible effects of deletions.

    partitions: of the groups, where the state holds the answer and a partition key (None: unknown).
    """

    groups: int
    rows: int
    buckets: tuple[int, ...]
    reached: bool
    partitions: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Homomorphic:
    """h of a change, computed once, and the groups that it touches."""

    rows: DataFrame
    groups: TouchedGroups


def drop_cancelled(state: State, change: DataFrame) -> DataFrame:
    """Cancel identical rows in the change of a state's input, if they could mislead a monoid without inverse.

    A row that one term adds and another removes has not changed; a row that was only rewritten costs time.
    """
    loose = [column.name for column in state.reads if is_unordered(column.type)]
    if WEIGHT not in change.columns or state.invertible or not cancels(state.input):
        return change
    if loose and state.recompute_always:
        return change  # only the touched groups are needed
    # these states read a map or a variant only by count, which tests for NULL
    nulls = {f"__null_{i}": F.isnull(quoted(name)) for i, name in enumerate(loose)}
    exact = [column.name for column in state.reads if column.name not in loose]
    values = [(name, F.first(quoted(name))) for name in loose]
    marked = change.withColumns(nulls) if nulls else change
    summed = group_identical(marked, [*exact, *nulls], *values, (WEIGHT, F.sum(WEIGHT))).where(F.col(WEIGHT) != 0)
    return summed.select(*(quoted(name) for name in change.columns))


def cancels(plan: Plan) -> bool:
    """Return whether a change of the plan may have equal rows that are added and removed."""
    nodes = tuple(walk(plan))
    loose = any(is_unordered(column.type) for node in nodes if isinstance(node, SourceRead) for column in node.columns)
    return loose or any(isinstance(node, Join | GroupwiseOp) for node in nodes)


def touched_measures(layout: Layout, partition_key: str | None, most: int) -> list[Column]:
    """Return the aggregates over h that measure the touched groups.

    partition_key: the answer's column that contains a partition; most: the largest number of reported partitions.
    """
    seen = " OR ".join(f"({may_recompute(slot)})" for slot in layout.state.slots if slot.accumulator.watched) or "false"
    seen = "true" if layout.state.recompute_always else seen
    return [
        F.count(F.lit(1)).alias("groups"),
        F.expr(f"coalesce(sum({TOUCHED}), 0)").alias("rows"),
        F.collect_set(BUCKET).alias("buckets"),
        F.expr(f"coalesce(bool_or({seen}), false)").alias("reached"),
        partitions(layout.key_shown(partition_key), most).alias("partitions"),
    ]


def may_recompute(slot: Slot) -> str:
    """Return the SQL condition over h under which a deletion may have changed the answer of a group."""
    accumulator = slot.accumulator
    if isinstance(accumulator, Monoid) and accumulator.may_recompute_sql:
        columns = (*accumulator.components, *accumulator.watched)
        return accumulator.may_recompute_sql.format(u={part.name: quoted(slot.stored_name(part)) for part in columns})
    return " OR ".join(f"NOT ({quoted(slot.stored_name(part))} <=> {part.zero})" for part in accumulator.watched)


def touched_groups(measures: Mapping[str, Any], most: int) -> TouchedGroups:
    """Return the touched groups from the values of their measures."""
    named = known_partitions(measures["partitions"], most)
    return TouchedGroups(
        groups=measures["groups"],
        rows=measures["rows"],
        buckets=tuple(sorted(measures["buckets"])),
        reached=measures["reached"],
        partitions=named,
    )
