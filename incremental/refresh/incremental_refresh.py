"""Maintain a view incrementally: `state ← state ⊗ h(ΔS)`, then `view = a(state)`; inputs first, the view last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from incremental.algebra.constraints import Constraint
from incremental.algebra.loops import LoopState
from incremental.algebra.plan import Plan
from incremental.algebra.program import BUCKET, InPlace, Program, State
from incremental.algebra.results.upkeep import VIEW
from incremental.algebra.sqltext import quoted
from incremental.dataflow.delta_rules import DeltaRules
from incremental.dataflow.group_recompute import GroupRecompute
from incremental.dataflow.loops.iterated_answer import stored_loop
from incremental.dataflow.loops.rounds import rows_by_phase
from incremental.dataflow.lowering import Lowering
from incremental.dataflow.merge import BY_WRITER, REPLACE, Merge
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
from incremental.lake.files import needs_mapping
from incremental.lake.protocol import Table
from incremental.refresh.epoch import Epoch, EpochLeaves, EpochResult, StateVersions
from incremental.refresh.stages.iteration import IterationStage
from incremental.refresh.stages.recursion import LoopStage
from incremental.refresh.state_reuse import REUSED
from incremental.spark.checkpoint import Checkpoints


class Maintenance(Protocol):
    """A way to maintain a view: the sources it reads, the tables it writes, and one epoch of it."""

    mode: ClassVar[str]  # `incremental` or `recompute`
    verdict: ClassVar[str]  # what the report says of an epoch of it

    @property
    def fingerprint(self) -> str:
        """The same for the same query in every process."""
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
        """What the sources are declared to fulfil, checked in every epoch."""
        ...

    @property
    def tables(self) -> tuple[str, ...]:
        """Table names in the order of their commits; the answer is in the last."""
        ...

    @property
    def states(self) -> dict[str, list[str]]:
        """Of each state a digest of what it holds, then its stored columns (Layout.merged)."""
        ...

    def stored(self, table: str, buckets: int) -> Stored:
        """How one of its tables is stored in so many buckets."""
        ...

    def run(self, epoch: Epoch) -> EpochResult:
        """Write the tables of one epoch."""
        ...


def no_partition_key() -> None:
    """The partition key of an answer that passes none on."""


@dataclass(frozen=True)
class Incremental:
    """Maintenance by the compiled program.

    partition_key: finds the answer's column that holds a partition, which takes the views below as well;
    circumstances: what the rows of states depend on besides.
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
        """Every source the query reads."""
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
        stages = tuple(stage.name for stage in self.program.stages)
        return stages if isinstance(self.program.publication, InPlace) else (*stages, VIEW)

    @property
    def states(self) -> dict[str, list[str]]:
        """By the program and the layouts of its states; a loop is not reused, and has none."""
        digests = self.program.digests(self.circumstances)
        return {s.name: [digests[s.name], *Layout.of(self.program, s, 1).merged] for s in self.program.states}

    def stored(self, table: str, buckets: int) -> Stored:
        """A state by its layout, sorted by its lineage key; a loop by its kind; else a bag of the answer."""
        for stage in self.program.stages:
            if stage.name == table:
                is_state = isinstance(stage, State)
                return (Layout.of(self.program, stage, buckets) if is_state else stored_loop(stage, buckets)).stored
        return stored_bag(tuple(name for _, name in self.program.outputs), buckets)

    def run(self, epoch: Epoch) -> EpochResult:
        """One epoch: every state and loop, then the view."""
        with ExitStack() as cached:
            return Run(self.program, epoch, Lowering(epoch.spark, self.attributes), cached, self.partition_key()).all()


class Run:
    """One epoch of one program; what it caches is freed with `cached`."""

    def __init__(
        self, program: Program, epoch: Epoch, lowering: Lowering, cached: ExitStack, partition_key: str | None
    ) -> None:
        self._program, self._epoch, self._lowering = program, epoch, lowering
        self._checkpoints = Checkpoints(cached, epoch.tuning.local_rows)
        consolidate = not all(state.invertible for state in program.states)
        facts = tuple(fact for fact in program.constraints if fact.text in epoch.intent.relied)
        self._leaves = EpochLeaves(epoch, lowering, consolidate, facts)
        self._pruning = Pruning(lowering, self._leaves, self._checkpoints, epoch.tuning)
        self._rules = DeltaRules(lowering, self._leaves, self._pruning, facts)
        self._paths: dict[str, str] = {}
        self._rounds: dict[str, dict[str, list[int]]] = {}
        self._groups = self._rows = 0
        self._partition_key = partition_key
        known = partition_key is not None and not epoch.resumed  # an attempt before this one may have written the view
        self._partitions: tuple[str, ...] | None = () if known else None

    def all(self) -> EpochResult:
        """Maintain every state and loop, inputs first, then publish the view."""
        for stage in self._program.stages:
            with self._epoch.measure.phase(f"merge {stage.name}"):
                self._state(stage) if isinstance(stage, State) else self._loop(stage)
        if not isinstance(self._program.publication, InPlace):
            with self._epoch.measure.phase("publish the view"):
                self._view()
        self._finish()
        return EpochResult(self._groups, self._rows, self._paths, self._partitions, self._rounds)

    def _loop(self, loop: LoopState) -> None:
        stage = LoopStage if loop.levelled else IterationStage
        done = stage(self._epoch, self._lowering, self._leaves, self._rules, self._checkpoints).run(loop)
        if done.rounds:
            self._rounds[loop.name] = rows_by_phase(done.rounds)
        self._rows += done.touched
        if done.path is not None:
            self._paths[loop.name] = done.path

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
        """h of what changed in a state's input, or of all of it as an earlier generation has it; None for no change."""
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
        """Whether one task computes the change of a plan sooner than several that exchange rows."""
        return self._leaves.bytes_read(plan) <= self._epoch.tuning.local_bytes

    def _merge(
        self, state: State, layout: Layout, table: Table, before: int | None, changed: Homomorphic
    ) -> TouchedGroups | None:
        """Write one state; what was touched, or None where the change cancels out."""
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
            touched = list(found.buckets)
            prepared = recompute.of(merge, lambda: table.at(before).where(F.col(BUCKET).isin(touched)), changed)
        (files, size), tuning = table.size(), self._epoch.tuning
        if layout.buckets == 1 and files <= tuning.rewrite_files and size <= tuning.rewrite_bytes:
            direct = merge.rewrite(table, before, prepared, mark, found.groups <= tuning.local_rows)
            self._paths[state.name] = "rewrite" if direct else f"rewrite{BY_WRITER}"
        else:
            merge.merge(table, prepared, found.buckets, mark)
            self._paths[state.name] = "merge"
        return found

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
        """The last table's commit ends the epoch, also where only states below it changed, or nothing after all.

        A part of a change is an epoch whatever it does: the one before it is what readers see until the last part.
        """
        final = list(self._epoch.tables)[-1]
        begun = self._paths or self._epoch.resumed or not self._epoch.intent.arrives
        if begun and final not in self._paths and not self._epoch.written(final):
            self._epoch.tables[final].touch(self._epoch.mark(final))
            self._paths[final] = "unchanged"
