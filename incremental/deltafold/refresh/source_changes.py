"""Read the change of each source in an epoch, without the rows that its rewritten files kept (D-156).

A MERGE, UPDATE or DELETE of a table without deletion vectors writes all files again that it touches. Each of their rows
is in a file that was removed and in one that was added; it would run through every join and state, and cancel at the
end. So equal rows are cancelled once, by identity, before anything reads the change:

| the change of a source | is read |
| --- | --- |
| files were only added | as it is, by each reader |
| one sum without join reads it: the sum cancels its rows | as it is; without its equal rows if they are few |
| otherwise | once, without its equal rows; few rows are kept in the driver |

What remains is measured: a source of which no row changed has no change, and one whose changed rows were all added has
that direction, whatever happened to its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.plan import Column, GroupwiseOp, Join, Plan, SourceRead
from deltafold.algebra.program import WEIGHT, Program, State
from deltafold.algebra.sqltext import quoted, simple_types
from deltafold.algebra.traversal import walk
from deltafold.dataflow.leaves import Direction
from deltafold.lake.version_diff import sum_weights
from deltafold.refresh.epoch import Epoch
from deltafold.spark import catalyst
from deltafold.spark.checkpoint import Checkpoints, collect_rows
from deltafold.store.history import AnswerPin

ROWS_ADDED, ROWS_REMOVED, COPIES = "added", "removed", "copies"


@dataclass(frozen=True)
class NetChange:
    """The rows of a source that really changed, and how many: a Z-set, or plain rows where each was added once."""

    rows: DataFrame
    added: int
    removed: int

    @property
    def bytes(self) -> int:
        """The approximate number of bytes of its rows."""
        return (self.added + self.removed) * int(catalyst.analysed_plan(self.rows).schema().defaultSize())

    @property
    def direction(self) -> Direction | None:
        """Whether all rows were added, or all removed."""
        if self.added and self.removed:
            return None
        return "removed" if self.removed else "added"


@dataclass
class SourceChanges:
    """The changes of the sources of one epoch, each read at its first use."""

    epoch: Epoch
    program: Program
    checkpoints: Checkpoints
    _net: dict[str, NetChange | None] = field(default_factory=dict[str, "NetChange | None"])

    def frame(self, relation: str, names: list[str]) -> DataFrame:
        """Return the change of some columns of a source: plain rows if none was removed, else a Z-set."""
        if (net := self.net(relation)) is None:
            changed = self.epoch.differences[relation]
            few = changed.rewrites and changed.bytes <= self.epoch.tuning.cancelled_bytes
            # a refresh writes rows of a small state again that did not change
            rewritten = isinstance(self.epoch.intent.sources[relation], AnswerPin)
            consolidate = not self._is_summed(relation) or rewritten or few
            return self._read_change(relation, names, consolidate=consolidate)
        weight = [WEIGHT] if WEIGHT in net.rows.columns else []
        return net.rows.select(*map(quoted, names), *weight)

    def net(self, relation: str) -> NetChange | None:
        """Return the rows of a source that really changed; None where they are not found ahead of their readers."""
        if relation not in self._net:
            self._net[relation] = self._cancel(relation) if self._is_cancelled_once(relation) else None
        return self._net[relation]

    def _read_change(self, relation: str, names: list[str], *, consolidate: bool) -> DataFrame:
        """Return the change of some columns, from the rows that the datasets of a run share, if they do."""
        changed, shared = self.epoch.differences[relation], self.epoch.shared.get(relation)
        rows = shared.rows(changed, self.epoch.tuning) if shared is not None else None
        if rows is None or not {*names} <= {*rows.columns}:
            return changed.frame(names, consolidate=consolidate)
        weight = [WEIGHT] if WEIGHT in rows.columns else []
        chosen = rows.select(*map(quoted, names), *weight)
        return sum_weights(chosen) if consolidate and weight else chosen

    def _is_cancelled_once(self, relation: str) -> bool:
        if self.epoch.initial or self.epoch.differences[relation].insert_only or self._is_summed(relation):
            return False
        return not any("variant" in simple_types(column.type) for column in self._columns[relation].values())

    def _cancel(self, relation: str) -> NetChange:
        """Compute the change of all columns that the program reads, its equal rows cancelled."""
        changed, tuning = self.epoch.differences[relation], self.epoch.tuning
        measures = [
            F.expr(f"coalesce(sum(greatest({WEIGHT}, 0L)), 0L)").alias(ROWS_ADDED),
            F.expr(f"coalesce(sum(greatest(-{WEIGHT}, 0L)), 0L)").alias(ROWS_REMOVED),
            F.expr(f"coalesce(max({WEIGHT}), 1L)").alias(COPIES),
        ]
        frame = self._read_change(relation, list(self._columns[relation]), consolidate=True)
        small = changed.bytes <= tuning.local_bytes
        rows, measured = self.checkpoints.measure(frame, measures, small=small)
        added, removed = int(measured[ROWS_ADDED]), int(measured[ROWS_REMOVED])
        if not small and added + removed <= tuning.local_rows:
            local = collect_rows(rows.coalesce(1), measures, tuning.local_rows)
            rows = rows if local is None else local[0]
        return NetChange(rows if removed or int(measured[COPIES]) > 1 else rows.drop(WEIGHT), added, removed)

    @cached_property
    def _columns(self) -> Mapping[str, Mapping[str, Column]]:
        """The columns that the program reads of each source, by their names there."""
        read: dict[str, dict[str, Column]] = {}
        for leaf in (node for plan in self.program.plans for node in walk(plan) if isinstance(node, SourceRead)):
            read[leaf.relation] = read.get(leaf.relation, {}) | dict(leaf.fields)
        return read

    def _is_summed(self, relation: str) -> bool:
        """Return whether the only reader of a source is a sum over its rows, which cancels equal ones by itself."""
        readers = [plan for plan in self.program.plans for node in walk(plan) if _reads(node, relation)]
        states = [stage for stage in self.program.stages if isinstance(stage, State) and stage.input in readers]
        if len(readers) != 1 or len(states) != 1 or not states[0].invertible:
            return False
        return not any(isinstance(node, Join | GroupwiseOp) for node in walk(states[0].input))


def _reads(node: Plan, relation: str) -> bool:
    return isinstance(node, SourceRead) and node.relation == relation
