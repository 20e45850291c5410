"""Recompute the groups whose value a deletion may have changed, from their current rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.delta_rules import DeltaRules
from deltafold.dataflow.lowering import Lowering
from deltafold.dataflow.merge import REPLACE, Merge
from deltafold.dataflow.partial_aggregate import Homomorphic, aggregate_change
from deltafold.dataflow.pruning.pruning import Pruning
from deltafold.dataflow.pruning.reach import Reach
from deltafold.dataflow.state_schema import Layout
from deltafold.spark.checkpoint import Checkpoints


@dataclass(frozen=True)
class GroupRecompute:
    """Recomputes groups of states; checkpoints: frames computed once until the epoch ends."""

    lowering: Lowering
    rules: DeltaRules
    pruning: Pruning
    checkpoints: Checkpoints

    def of(self, merge: Merge, stored: Callable[[], DataFrame], changed: Homomorphic) -> DataFrame:
        """Return h with the groups that a deletion reached recomputed; stored: the state's rows of its buckets."""
        layout, homomorphic = merge.layout, changed.rows
        if layout.state.recompute_always:
            keys = homomorphic.select(*(F.col(quoted(name)) for name in layout.keys))
        else:
            keys = merge.keys_to_recompute(stored(), homomorphic)
        small = self.pruning.is_small(layout.state.input)
        keep = self.checkpoints.small if small else self.checkpoints.keep
        kept = homomorphic.withColumn(REPLACE, F.lit(False))
        if not layout.state.keys:
            return keep(self._fresh(layout)) if layout.state.recompute_always or keys.count() else kept
        named = keys.toDF(*(key.name for key in layout.state.keys))
        touched, ranges = self.pruning.keys_with_ranges(layout.state.input, layout.state.keys, named, small=small)
        fresh = self._fresh(layout, self.pruning.key_reach(layout.state.keys, touched, ranges))
        keys = touched.toDF(*layout.keys)
        if layout.state.recompute_always:  # a group without rows is not recomputed, and so it is deleted
            fresh = keys = keep(fresh)
        same = [kept[quoted(name)].eqNullSafe(keys[quoted(name)]) for name in layout.keys]
        untouched = kept.join(keys, on=same, how="left_anti")
        return keep(untouched.unionByName(fresh))

    def _fresh(self, layout: Layout, reach: Reach | None = None) -> DataFrame:
        """Return h of all current rows of a state's input, or of those of some groups."""
        state = layout.state
        rows = self.rules.after(state.input)
        if reach is not None:
            rows = reach.restrict(rows)
        frame = self.lowering.frame(rows, [(column, column.name) for column in state.reads])
        return aggregate_change(layout, frame, self.lowering).withColumn(REPLACE, F.lit(True))
