"""Maintain a view incrementally: `state ← state ⊗ h(ΔS)`, then `view = a(state)`; inputs first, the view last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from incremental.algebra.constraints import Constraint
from incremental.algebra.plan import Plan
from incremental.algebra.plan.repeats import find_repeats
from incremental.algebra.program import InPlace, Program, State
from incremental.algebra.results.upkeep import VIEW
from incremental.algebra.sqltext import quoted
from incremental.dataflow.delta_rules import DeltaRules
from incremental.dataflow.group_recompute import GroupRecompute
from incremental.dataflow.lowering import Lowering
from incremental.dataflow.merge import BY_WRITER, REPLACE, Merge, in_buckets
from incremental.dataflow.partial_aggregate import (
    Homomorphic,
    TouchedGroups,
    aggregate_change,
    drop_cancelled,
    touched_groups,
    touched_measures,
)
from incremental.dataflow.pruning import Pruning
from incremental.dataflow.publish import Bag, stored_bag
from incremental.dataflow.state_schema import Layout, Stored
from incremental.lake.commit_tag import Mark
from incremental.lake.files import needs_mapping
from incremental.lake.protocol import Table
from incremental.refresh.epoch import Epoch, EpochLeaves, EpochResult, StateVersions
from incremental.refresh.state_reuse import REUSED
from incremental.spark.checkpoint import Checkpoints


class Maintenance(Protocol):
    """A mode of maintaining a view: its sources, its tables, and the run of one epoch."""

    mode: ClassVar[str]  # `incremental` or `recompute`
    verdict: ClassVar[str]  # of its epochs, for the report

    @property
    def fingerprint(self) -> str:
        """A digest of the query, the same in every process."""
        ...

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources it reads."""
        ...

    @property
    def invariant(self) -> frozenset[str]:
        """The sources that must not change."""
        ...

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """The declared constraints of the sources, checked in every epoch."""
        ...

    @property
    def tables(self) -> tuple[str, ...]:
        """Table names in the order of their commits; the answer is in the last."""
        ...

    @property
    def states(self) -> dict[str, list[str]]:
        """For each state the digest of its plan, then its stored columns (Layout.merged)."""
        ...

    def stored(self, table: str, buckets: int) -> Stored:
        """Return the storage of one of its tables with a number of buckets."""
        ...

    def run(self, epoch: Epoch) -> EpochResult:
        """Write the tables of one epoch."""
        ...


def no_partition_key() -> None:
    """Return None, the partition key of an answer that contains none."""


@dataclass(frozen=True)
class Incremental:
    """Maintenance by the compiled program.

    partition_key: finds the answer's column that contains a partition, which requires the views below;
    circumstances: further settings that the rows of states depend on.
    """

    mode: ClassVar[str] = "incremental"
    verdict: ClassVar[str] = "applied"
    program: Program
    attributes: Mapping[str, Any]
    partition_key: Callable[[], str | None] = no_partition_key
    circumstances: object = None

    @property
    def fingerprint(self) -> str:
        """The program's, from the query."""
        return self.program.fingerprint

    @property
    def sources(self) -> tuple[str, ...]:
        """Every source that the query reads."""
        return self.program.sources

    @property
    def invariant(self) -> frozenset[str]:
        """The sources declared invariant, which the program relies on."""
        return self.program.invariant & frozenset(self.sources)

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """The program's, among the sources it reads."""
        return self.program.constraints

    @property
    def tables(self) -> tuple[str, ...]:
        """Table names in the order of their commits; the answer is in the last."""
        states = tuple(state.name for state in self.program.states)
        return states if isinstance(self.program.publication, InPlace) else (*states, VIEW)

    @property
    def states(self) -> dict[str, list[str]]:
        """By the program and the layouts of its states."""
        digests = self.program.digests(self.circumstances)
        return {s.name: [digests[s.name], *Layout.of(self.program, s, 1).merged] for s in self.program.states}

    def stored(self, table: str, buckets: int) -> Stored:
        """Return a state by its layout, sorted by its lineage key; else a bag of the answer."""
        for state in self.program.states:
            if state.name == table:
                return Layout.of(self.program, state, buckets).stored
        return stored_bag(tuple(name for _, name in self.program.outputs), buckets)

    def run(self, epoch: Epoch) -> EpochResult:
        """Run one epoch: write every state, then the view."""
        with ExitStack() as cached:
            lowering = Lowering(epoch.spark, self.attributes)
            return Run(self.program, epoch, lowering, cached, self.partition_key(), self._repeats).all()

    @cached_property
    def _repeats(self) -> frozenset[Plan]:
        """The inputs that several states, or one of them in several places, read."""
        return find_repeats([*(state.input for state in self.program.states), self.program.answer])


class Run:
    """One epoch of one program; closing `cached` frees its cached frames."""

    def __init__(
        self,
        program: Program,
        epoch: Epoch,
        lowering: Lowering,
        cached: ExitStack,
        partition_key: str | None,
        repeats: frozenset[Plan],
    ) -> None:
        self._program, self._epoch, self._lowering = program, epoch, lowering
        self._checkpoints = Checkpoints(cached, epoch.tuning.local_rows)
        consolidate = not all(state.invertible for state in program.states)
        facts = tuple(fact for fact in program.constraints if fact.text in epoch.intent.relied)
        self._leaves = EpochLeaves(epoch, lowering, consolidate, facts)
        self._pruning = Pruning(lowering, self._leaves, self._checkpoints, epoch.tuning)
        self._rules = DeltaRules(lowering, self._leaves, self._pruning, facts, repeats)
        self._paths: dict[str, str] = {}
        self._groups = self._rows = 0
        self._partition_key = partition_key
        known = partition_key is not None and not epoch.resumed  # an attempt before this one may have written the view
        self._partitions: tuple[str, ...] | None = () if known else None

    def all(self) -> EpochResult:
        """Merge every state, inputs first, then publish the view."""
        for state in self._program.states:
            with self._epoch.measure.phase(f"merge {state.name}"):
                self._state(state)
        if not isinstance(self._program.publication, InPlace):
            with self._epoch.measure.phase("publish the view"):
                self._view()
        self._finish()
        return EpochResult(self._groups, self._rows, self._paths, self._partitions)

    def _state(self, state: State) -> None:
        table = self._epoch.tables[state.name]
        layout = Layout.of(self._program, state, self._epoch.intent.buckets)
        before = self._epoch.before(state.name)
        touched: DataFrame | None = None
        found: TouchedGroups | None = None
        if (changed := self._homomorphic(state, layout)) is not None:
            keys = changed.rows.select(*(F.col(quoted(name)) for name in layout.keys))
            written = self._epoch.written(state.name)
            found = None if written else self._merge(state, layout, table, before, changed)
            touched = keys if written or found is not None else None
        after = table.version() if touched is not None else before
        assert after is not None
        self._leaves.states[state.name] = StateVersions(table, layout, before, after, touched, found)

    def _homomorphic(self, state: State, layout: Layout) -> Homomorphic | None:
        """Return h of the change of a state's input, or a reused state; None if nothing changed."""
        most = self._epoch.tuning.reported_partitions
        measures = touched_measures(layout, self._partition_key, most)
        if (reused := self._epoch.reused.get(state.name)) is not None:
            rows, found = self._checkpoints.measured(reused.under(layout), measures, False)
            return Homomorphic(rows, touched_groups(found, most))
        change = self._rules.change(state.input)
        if change is None:
            return None
        frame = self._lowering.frame(change, [(column, column.name) for column in state.reads])
        small = self._is_small(state.input)
        changed = drop_cancelled(state, frame.coalesce(1) if small else frame)
        rows, found = self._checkpoints.measured(aggregate_change(layout, changed, self._lowering), measures, small)
        return Homomorphic(rows, touched_groups(found, most))

    def _is_small(self, plan: Plan) -> bool:
        """Return whether one task computes the change of a plan faster than several with a shuffle."""
        return self._leaves.bytes_read(plan) <= self._epoch.tuning.local_bytes

    def _merge(
        self, state: State, layout: Layout, table: Table, before: int | None, changed: Homomorphic
    ) -> TouchedGroups | None:
        """Write one state; return the touched groups, None if the change cancels out."""
        merge, mark = Merge(self._lowering, layout), self._epoch.mark(state.name)
        homomorphic, found = changed.rows, changed.found
        if layout.in_place is not None:
            self._partitions = found.partitions
        self._groups, self._rows = self._groups + found.groups, self._rows + found.rows
        if before is None:
            merge.first(table, homomorphic, mark, needs_mapping(layout.columns))
            self._paths[state.name] = REUSED if state.name in self._epoch.reused else "first load"
            return found
        if not found.groups or (not found.rows and not state.keys):
            return None
        prepared = homomorphic.withColumn(REPLACE, F.lit(False))
        if found.reached:
            recompute = GroupRecompute(self._lowering, self._rules, self._pruning, self._checkpoints)
            touched = in_buckets(found.buckets)
            prepared = recompute.of(merge, lambda: table.in_partitions(before, touched), changed)
        self._paths[state.name] = self._combine(merge, table, before, prepared, found, mark)
        return found

    def _combine(
        self, merge: Merge, table: Table, before: int, prepared: DataFrame, found: TouchedGroups, mark: Mark
    ) -> str:
        """Merge a change into a state by the shortest path; returns which."""
        (files, size), tuning, buckets = table.size(), self._epoch.tuning, merge.layout.buckets
        few = found.groups <= tuning.local_rows
        if buckets == 1 and files <= tuning.rewrite_files and size <= tuning.rewrite_bytes:
            direct = merge.rewrite(table, before, prepared, mark, few)
            return "rewrite" if direct else f"rewrite{BY_WRITER}"
        fits = few and size * len(found.buckets) / buckets <= tuning.rewrite_touched_bytes
        if fits and merge.rewrite_buckets(table, before, prepared, found.buckets, mark):
            return "rewrite"
        merge.merge(table, prepared, found.buckets, mark)
        return "merge"

    def _view(self) -> None:
        """Publish the answer's change to the view table."""
        epoch, table = self._epoch, self._epoch.tables[VIEW]
        if epoch.written(VIEW):
            return
        columns = tuple(name for _, name in self._program.outputs)
        bag = Bag(epoch.spark, table, columns, epoch.intent.buckets, self._partition_key, epoch.tuning)
        before, change = epoch.before(VIEW), self._rules.change(self._program.answer)
        if change is None:
            return
        frame, small = self._lowering.frame(change, self._program.outputs), self._is_small(self._program.answer)
        consolidated = bag.consolidated(frame.coalesce(1) if small else frame)
        rows, found = self._checkpoints.measured(consolidated, bag.measures, small)
        moved = bag.moved(found)
        if before is not None and not moved.rows:
            return
        direct = bag.publish(rows, moved, before, epoch.mark(VIEW), needs_mapping(columns))
        self._partitions = moved.partitions
        if not self._program.states:
            self._rows += moved.rows
        self._paths[VIEW] = "changed" if direct else f"changed{BY_WRITER}"

    def _finish(self) -> None:
        """Commit the last table, which ends the epoch, also if only states below it changed, or nothing.

        A part of a change is always an epoch, even without effect: readers see the epoch before the first part.
        """
        final = list(self._epoch.tables)[-1]
        begun = self._paths or self._epoch.resumed or not self._epoch.intent.arrives
        if begun and final not in self._paths and not self._epoch.written(final):
            self._epoch.tables[final].touch(self._epoch.mark(final))
            self._paths[final] = "unchanged"
