"""Read the leaves of every plan in one epoch: sources, states and loops, before, after and their changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.constraints import AppendOnlyFact, Constraint
from deltafold.algebra.plan import Column, Given, GroupwiseOp, Plan, SourceRead, StateRead
from deltafold.algebra.program import BUCKET, WEIGHT
from deltafold.algebra.sqltext import quoted
from deltafold.algebra.traversal import walk
from deltafold.dataflow.leaves import Direction, Leaf
from deltafold.dataflow.loops.versions import LoopVersions
from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.dataflow.partial_aggregate import TouchedGroups
from deltafold.dataflow.pruning.semijoin import Semijoin
from deltafold.dataflow.state_schema import Layout
from deltafold.lake.protocol import Table, VersionedTable
from deltafold.lake.snapshot import Snapshot
from deltafold.lake.version_diff import file_difference
from deltafold.refresh.epoch import Epoch
from deltafold.refresh.source_changes import SourceChanges
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J


@dataclass(frozen=True, kw_only=True)
class StateVersions:
    """A state in this epoch: its table before and after, the touched keys (None: unchanged) and groups.

    by_files: the files that differ between both versions hold little more than the touched groups.
    """

    table: Table
    layout: Layout
    before: int | None
    after: int
    touched: DataFrame | None
    groups: TouchedGroups | None = None
    by_files: bool = False


@dataclass(kw_only=True)
class EpochLeaves:
    """The leaves of every plan in one epoch; `facts` are true before and after.

    States and loops are added as they are maintained.
    """

    epoch: Epoch
    lowering: Lowering
    changes: SourceChanges
    facts: tuple[Constraint, ...] = ()
    states: dict[str, StateVersions] = field(default_factory=dict[str, StateVersions])
    loops: dict[str, LoopVersions] = field(default_factory=dict[str, LoopVersions])
    _frames: dict[Snapshot, DataFrame] = field(default_factory=dict[Snapshot, DataFrame])
    _bytes: dict[VersionedTable, int] = field(default_factory=dict[VersionedTable, int])

    @property
    def initial(self) -> bool:
        """Whether there is no epoch before this one."""
        return self.epoch.initial

    def has_changed(self, leaf: Leaf) -> bool:
        """Return whether the source's files changed, the state was written, or the loop's answer changed."""
        leaf = stored_leaf(leaf)
        if isinstance(leaf, SourceRead):
            if self.epoch.differences[leaf.relation].empty:
                return False
            net = self.changes.net(leaf.relation)
            return net is None or bool(net.added or net.removed)
        if (loop := self.loops.get(leaf.state)) is not None:
            return not loop.same
        return self.states[leaf.state].touched is not None

    def direction(self, leaf: SourceRead) -> Direction | None:
        """Return the direction from the changed rows if they are known, else from the file lists; in an append-only
        source, removed files were rewritten.
        """
        changed, net = self.epoch.differences[leaf.relation], self.changes.net(leaf.relation)
        if net is not None:
            return net.direction
        if not changed.removed or AppendOnlyFact(leaf.relation) in self.facts:
            return "added"
        return None if changed.adds else "removed"

    def bytes(self, leaf: Leaf) -> int:
        """Return the bytes of its table's current version."""
        leaf = stored_leaf(leaf)
        table = self.epoch.sources[leaf.relation].after.table if isinstance(leaf, SourceRead) else self._table(leaf)
        if table not in self._bytes:
            self._bytes[table] = table.size()[1]
        return self._bytes[table]

    def bytes_read(self, plan: Plan) -> int:
        """Return the most bytes that a plan's change reads: changed files, all files of joined or grouped inputs."""
        nodes = tuple(walk(plan))
        leaves = [node for node in nodes if isinstance(node, SourceRead | StateRead)]
        meet = len(leaves) > 1 or any(isinstance(node, GroupwiseOp) for node in nodes)
        return sum(self._bytes_changed(leaf) + (self.bytes(leaf) if meet else 0) for leaf in leaves)

    def _table(self, leaf: StateRead) -> Table:
        return self.loops[leaf.state].table if leaf.state in self.loops else self.states[leaf.state].table

    def _bytes_changed(self, leaf: SourceRead | StateRead) -> int:
        if isinstance(leaf, StateRead):  # all of it is searched for touched groups
            return self.bytes(leaf)
        net = self.changes.net(leaf.relation)
        return self.epoch.differences[leaf.relation].bytes if net is None else net.bytes

    def before(self, leaf: Leaf) -> Relation:
        """Return the leaf at its version before the epoch; empty if it had none."""
        leaf = stored_leaf(leaf)
        if isinstance(leaf, SourceRead):
            return self._source(leaf, self.epoch.sources[leaf.relation].before)
        if (loop := self.loops.get(leaf.state)) is not None:
            return self._loop(leaf, loop, loop.before)
        return self._state(leaf, self.states[leaf.state].before)

    def after(self, leaf: Leaf) -> Relation:
        """Return the leaf at its version after the epoch."""
        leaf = stored_leaf(leaf)
        if isinstance(leaf, SourceRead):
            return self._source(leaf, self.epoch.sources[leaf.relation].after)
        if (loop := self.loops.get(leaf.state)) is not None:
            return self._loop(leaf, loop, loop.after)
        return self._state(leaf, self.states[leaf.state].after)

    def change(self, leaf: Leaf) -> Relation:
        """Return the difference of a source's files, of a state's touched groups, or of a loop's answer."""
        leaf = stored_leaf(leaf)
        if isinstance(leaf, SourceRead):
            frame = self.changes.frame(leaf.relation, [name for name, _ in leaf.fields])
            return self.lowering.leaf(frame, leaf.fields, weighted=WEIGHT in frame.columns)
        if (loop := self.loops.get(leaf.state)) is not None:
            names = zip(loop.stored.row, leaf.columns, strict=True)
            return self.lowering.leaf(loop.answer_change, list(names), weighted=True)
        state = self.states[leaf.state]
        assert state.touched is not None
        few = state.groups is not None and state.groups.groups <= self.epoch.tuning.broadcast_rows
        read_as = dict(zip(leaf.own, leaf.columns, strict=True))
        keys = [self.lowering.attribute(read_as[key]) for key in state.layout.state.keys]

        touched = partial(Semijoin(self.lowering).of_keys, keys=keys, touched=state.touched, few=few)
        if state.by_files and state.before is not None:
            return touched(self._changed_state(leaf, state, state.before))
        buckets = None if state.groups is None else state.groups.buckets
        old, new = (touched(self._state(leaf, version, buckets)) for version in (state.before, state.after))
        return self.lowering.union(leaf.columns, [(leaf.columns, new), self.lowering.negate(leaf.columns, old)])

    def _source(self, leaf: SourceRead, snapshot: Snapshot | None) -> Relation:
        if snapshot is None:
            return self.lowering.empty(leaf.columns)
        return self.lowering.leaf(self._at(snapshot), leaf.fields, weighted=False)

    def _loop(self, leaf: StateRead, loop: LoopVersions, version: int | None) -> Relation:
        if version is None:
            return self.lowering.empty(leaf.columns)
        answer = loop.stored.answer(self._at(Snapshot(loop.table, version)))
        return self.lowering.leaf(answer, list(zip(loop.stored.row, leaf.columns, strict=True)), weighted=False)

    def _at(self, snapshot: Snapshot) -> DataFrame:
        """Return a version of a table, cached, each time with new attribute ids."""
        cached = self._frames.get(snapshot)
        scan = None if cached is None else catalyst.again(cached)
        if scan is None:
            scan = self._frames[snapshot] = snapshot.rows()
        return scan

    def _state(self, leaf: StateRead, version: int | None, buckets: tuple[int, ...] | None = None) -> Relation:
        """Return a version of a state; buckets: read only these."""
        if version is None:
            return self.lowering.empty(leaf.columns)
        state = self.states[leaf.state]
        rows = self._at(Snapshot(state.table, version))
        if buckets is not None and state.layout.buckets > 1:
            rows = rows.where(F.col(BUCKET).isin(*buckets))
        return self.lowering.compute(rows, self._answers(leaf, state.layout))

    def _changed_state(self, leaf: StateRead, state: StateVersions, before: int) -> Relation:
        """Return the change of a state from the files that differ, which may have rows that both versions have."""
        names = [name for name in state.layout.columns if name != BUCKET]
        rows = file_difference(state.table, before, state.after).frame(names, consolidate=False)
        return self.lowering.compute(rows, self._answers(leaf, state.layout), weighted=WEIGHT in rows.columns)

    def _answers(self, leaf: StateRead, layout: Layout) -> list[tuple[Column, J]]:
        """Return the columns of a reader of a state, and their values over the stored ones."""
        spark = self.epoch.spark
        values = {key.name: catalyst.parse_expression(spark, quoted(layout.key(key))) for key in layout.state.keys}
        values |= layout.call_values(self.lowering, quoted)
        return [(column, values[own.name]) for own, column in zip(leaf.own, leaf.columns, strict=True)]


def stored_leaf(leaf: Leaf) -> SourceRead | StateRead:
    """Return a leaf that has a table; what is given stands in the steps of loops alone."""
    if isinstance(leaf, Given):
        raise TypeError(f"{leaf.name} is given within a loop")
    return leaf
