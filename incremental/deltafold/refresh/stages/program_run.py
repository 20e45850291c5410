"""Run one epoch of a compiled program: each stage in the order of commits, then the view."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.errors import QueryError
from deltafold.algebra.loops import LoopState
from deltafold.algebra.monoids.declared import DeclaredMonoid, counterexample_sql, extended_sql, laws_of, sample_sql
from deltafold.algebra.plan import Plan
from deltafold.algebra.program import Program, State
from deltafold.algebra.results.notes import REUSED
from deltafold.algebra.results.upkeep import VIEW
from deltafold.algebra.sqltext import quoted
from deltafold.algebra.tuning import Tuning
from deltafold.dataflow.delta_rules import DeltaRules, shown_keys
from deltafold.dataflow.group_recompute import GroupRecompute
from deltafold.dataflow.loops.rounds import rows_by_phase
from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.dataflow.merge import REPLACE, Merge
from deltafold.dataflow.partial_aggregate import (
    Homomorphic,
    TouchedGroups,
    aggregate_change,
    drop_cancelled,
    touched_groups,
    touched_measures,
)
from deltafold.dataflow.pruning.pruning import Pruning
from deltafold.dataflow.publish import Bag
from deltafold.dataflow.state_schema import Layout
from deltafold.lake.files import needs_mapping
from deltafold.lake.protocol import Mark, Table
from deltafold.lake.upsert import BY_WRITER, Extent, Written, apply_upsert, in_buckets
from deltafold.refresh.epoch import Epoch, EpochResult
from deltafold.refresh.epoch_leaves import EpochLeaves, StateVersions
from deltafold.refresh.source_changes import SourceChanges
from deltafold.refresh.stages.clustering import ClusteringStage
from deltafold.refresh.stages.iteration import IterationStage
from deltafold.refresh.stages.recursion import LoopStage
from deltafold.spark.checkpoint import Checkpoints


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
        facts = tuple(fact for fact in program.constraints if fact.text in epoch.intent.relied)
        self._leaves = EpochLeaves(
            epoch=epoch, lowering=lowering, changes=SourceChanges(epoch, program, self._checkpoints), facts=facts
        )
        self._pruning = Pruning(lowering, self._leaves, self._checkpoints, epoch.tuning)
        self._rules = DeltaRules(lowering, self._leaves, self._pruning, facts, repeats)
        self._paths: dict[str, str] = {}
        self._written: dict[str, Written] = {}
        self._rounds: dict[str, dict[str, list[int]]] = {}
        self._residuals: dict[str, list[float]] = {}
        self._groups = self._rows = 0
        self._partition_key = partition_key
        # an attempt before this one may have written the view
        are_known = partition_key is not None and not epoch.resumed
        self._partitions: tuple[str, ...] | None = () if are_known else None

    def all(self) -> EpochResult:
        """Maintain every state and loop, inputs first, then publish the view."""
        for stage in self._program.stages:
            with self._epoch.measure.phase(f"merge {stage.name}"):
                self._state(stage) if isinstance(stage, State) else self._loop(stage)
        if self._program.has_answer_table:
            with self._epoch.measure.phase("publish the view"):
                self._view()
        self._finish()
        return EpochResult(
            groups=self._groups,
            change_rows=self._rows,
            paths=self._paths,
            partitions=self._partitions,
            rounds=self._rounds,
            residuals=self._residuals,
            feeds=tuple(name for name, changed in self._epoch.differences.items() if changed.feed is not None),
        )

    def _loop(self, loop: LoopState) -> None:
        stage = LoopStage if loop.levelled else IterationStage
        stage = stage if loop.clusters is None else ClusteringStage
        done = stage(
            epoch=self._epoch,
            lowering=self._lowering,
            leaves=self._leaves,
            rules=self._rules,
            checkpoints=self._checkpoints,
        ).run(loop)
        if done.rounds:
            self._rounds[loop.name] = rows_by_phase(done.rounds)
        if done.residuals:
            self._residuals[loop.name] = [*done.residuals]
        self._rows += done.touched
        if done.path is not None:
            self._paths[loop.name] = done.path
        if loop.points is not None and done.points is not None:
            self._paths[loop.points] = done.points

    def _state(self, state: State) -> None:
        table = self._epoch.tables[state.name]
        layout = Layout.of(self._program, state, self._epoch.intent.buckets)
        before = self._epoch.before(state.name)
        touched: DataFrame | None = None
        groups: TouchedGroups | None = None
        if (changed := self._homomorphic(state, layout)) is not None:
            keys = changed.rows.select(*(F.col(quoted(name)) for name in layout.keys))
            written = self._epoch.is_written(state.name)
            groups = None if written else self._merge(state, layout, table, before, changed)
            touched = keys if written or groups is not None else None
        after = table.version() if touched is not None else before
        assert after is not None
        by_files = state.name in self._written and self._written[state.name].keeps_files
        self._leaves.states[state.name] = StateVersions(
            table=table, layout=layout, before=before, after=after, touched=touched, groups=groups, by_files=by_files
        )

    def _homomorphic(self, state: State, layout: Layout) -> Homomorphic | None:
        """Return h of the change of a state's input, or a reused state; None if nothing changed."""
        most = self._epoch.tuning.reported_partitions
        measures = touched_measures(layout, self._partition_key, most)
        if (reused := self._epoch.reused.get(state.name)) is not None:
            rows, measured = self._checkpoints.measure(reused.under(layout), measures, small=False)
            return Homomorphic(rows, touched_groups(measured, most))
        change = self._rules.change(state.input)
        if change is None:
            return None
        frame = self._lowering.frame(change, [(column, column.name) for column in state.reads])
        if self._epoch.before(state.name) is None:
            check_laws(state, frame, self._epoch.tuning)
        small = self._is_small(state.input)
        changed = drop_cancelled(state, frame.coalesce(1) if small else frame)
        rows, measured = self._checkpoints.measure(
            aggregate_change(layout, changed, self._lowering), measures, small=small
        )
        if self._epoch.before(state.name) is not None:
            check_merged_laws(state, rows, self._epoch.tuning)
        return Homomorphic(rows, touched_groups(measured, most))

    def _is_small(self, plan: Plan) -> bool:
        """Return whether one task computes the change of a plan faster than several with a shuffle."""
        return self._leaves.bytes_read(plan) <= self._epoch.tuning.local_bytes

    def _merge(
        self, state: State, layout: Layout, table: Table, before: int | None, changed: Homomorphic
    ) -> TouchedGroups | None:
        """Write one state; return the touched groups, None if the change cancels out."""
        merge, mark = Merge(self._lowering, layout), self._epoch.mark(state.name)
        homomorphic, groups = changed.rows, changed.groups
        if layout.in_place is not None:
            self._partitions = groups.partitions
        self._groups, self._rows = self._groups + groups.groups, self._rows + groups.rows
        if before is None:
            merge.first(table, homomorphic, mark, name_mapping=needs_mapping(layout.columns))
            self._paths[state.name] = REUSED if state.name in self._epoch.reused else "first load"
            return groups
        if not groups.groups or (not groups.rows and not state.keys):
            return None
        prepared = homomorphic.withColumn(REPLACE, F.lit(False))
        if groups.reached:
            recompute = GroupRecompute(self._lowering, self._rules, self._pruning, self._checkpoints)
            touched = in_buckets(groups.buckets)
            prepared = recompute.of(merge, lambda: table.in_partitions(before, touched), changed)
        self._written[state.name] = written = self._combine(merge, table, before, prepared, groups, mark)
        self._paths[state.name] = written.sentence
        return groups

    def _combine(
        self, merge: Merge, table: Table, before: int, prepared: DataFrame, groups: TouchedGroups, mark: Mark
    ) -> Written:
        """Merge a change into a state; returns how."""
        tuning, buckets = self._epoch.tuning, merge.layout.buckets
        extent = Extent(rows=groups.groups, buckets=groups.buckets, of_buckets=buckets, by_buckets=True)

        def stored(near: str | None) -> DataFrame:
            return table.at(before) if near is None else table.in_partitions(before, near)

        upsert = merge.upsert(prepared, extent, stored, few=extent.is_small(tuning))
        return apply_upsert(table, upsert, mark, extent.choose_path(*table.size(), tuning))

    def _view(self) -> None:
        """Publish the answer's change to the view table."""
        epoch, table = self._epoch, self._epoch.tables[VIEW]
        if epoch.is_written(VIEW):
            return
        columns = tuple(name for _, name in self._program.outputs)
        bag = Bag(epoch.spark, table, columns, epoch.intent.buckets, self._partition_key, epoch.tuning)
        before = epoch.before(VIEW)
        change = self._answer_change(table, before)
        if change is None:
            return
        frame, small = self._lowering.frame(change, self._program.outputs), self._is_small(self._program.answer)
        if before is None and not change.weighted:
            self._publish_first(bag, frame, small=small)
            return
        consolidated = bag.consolidate(frame.coalesce(1) if small else frame)
        rows, measured = self._checkpoints.measure(consolidated, bag.measures(consolidated), small=small)
        moved = bag.summarise(rows, measured)
        if before is not None and not moved.rows:
            return
        direct = bag.publish(rows, moved, before, epoch.mark(VIEW), name_mapping=needs_mapping(columns))
        self._partitions = moved.partitions
        if not self._program.states or not self._rows:  # no state changed, such as where a join's other input did
            self._rows += moved.rows
        self._paths[VIEW] = "changed" if direct else f"changed{BY_WRITER}"

    def _answer_change(self, table: Table, before: int | None) -> Relation | None:
        """Return the change of the answer, from its stored rows where only these are right, or fewer bytes."""
        answer, outputs = self._program.answer, self._program.outputs
        keys = None if before is None or self._leaves.initial else shown_keys(answer)
        if keys is None or before is None or {*answer.columns} - {column for column, _ in outputs}:
            return self._rules.change(answer)
        fewer = keys.unstable or table.size(before)[1] <= self._pruning.bytes(keys.node.child)
        if not fewer or not self._rules.has_changed(answer):
            return self._rules.change(answer)
        named = [(name, column) for column, name in dict(outputs).items()]
        stored = self._lowering.leaf(table.at(before), named, weighted=False)
        return self._rules.change_of_stored(answer, keys, stored)

    def _publish_first(self, bag: Bag, answer: DataFrame, *, small: bool) -> None:
        """Write the answer of a first load, of which no row cancels another."""
        loaded = bag.load(answer, self._epoch.mark(VIEW), name_mapping=needs_mapping(answer.columns), small=small)
        self._partitions, self._paths[VIEW] = loaded.partitions, "changed"
        if not self._program.states:
            self._rows += loaded.rows

    def _finish(self) -> None:
        """Commit the last table at the end of a chunk, which is always an epoch, even without effect (D-048).

        Readers see the epoch before the first chunk.
        """
        final = list(self._epoch.tables)[-1]
        if not self._epoch.intent.arrives and final not in self._paths and not self._epoch.is_written(final):
            self._epoch.tables[final].touch(self._epoch.mark(final))
            self._paths[final] = "unchanged"


def check_laws(state: State, rows: DataFrame, tuning: Tuning) -> None:
    """Check each declared monoid of a state by one Spark job; without one nothing is run.

    rows: the input of the state. Raises QueryError with a counterexample.
    """
    for slot in state.slots:
        if (monoid := slot.call.declared) is not None:
            x = quoted(slot.call.arguments[0].name)
            values = rows.where(f"{x} IS NOT NULL").limit(tuning.law_rows)
            check_values(monoid, values, monoid.unit_sql(f"CAST({x} AS {monoid.of_type})"), tuning.law_values)


def check_merged_laws(state: State, change: DataFrame, tuning: Tuning) -> None:
    """Check the same on the merged values of a later change: h, computed already. Raises QueryError as `check_laws`.

    Deletions of what the inverse does not cancel recompute their groups, so that law is not checked again.
    """
    for slot in state.slots:
        if slot.call.declared is not None:
            (kept,) = slot.accumulator.components
            value = quoted(slot.stored_name(kept))
            monoid = replace(slot.call.declared, inverse=None)
            check_values(monoid, change.limit(tuning.law_rows), value, tuning.law_values)


def check_values(monoid: DeclaredMonoid, rows: DataFrame, value: str, most: int) -> None:
    """Raise QueryError if a law does not hold for sampled values of an expression over rows."""
    values = rows.agg(F.expr(sample_sql(value, most)).alias("s"))
    values = values.selectExpr(f"{extended_sql(monoid, 's')} AS s")
    for variable in "uvw":
        values = values.selectExpr("*", f"explode(s) AS {variable}")
    example = values.agg(F.expr(counterexample_sql(monoid)).alias("example")).collect()[0]["example"]
    if example is None:
        return
    law = laws_of(monoid)[int(example["law"])]
    names = ("u", "v", "w", "left", "right")
    shown = {name: "NULL" if example[name] is None else repr(example[name]) for name in names}
    raise QueryError(
        f"monoid {monoid.name}: {law.fault}: {law.example.format(**shown)}. {law.instead}.",
        f"monoid {monoid.name}: {law.fault}. {law.instead}.",
    )
