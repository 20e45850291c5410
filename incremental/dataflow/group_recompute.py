"""Recompute the groups whose value a deletion may have changed, from the rows that they have now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from incremental.algebra.sqltext import quoted
from incremental.dataflow.delta_rules import DeltaRules
from incremental.dataflow.lowering import Lowering
from incremental.dataflow.merge import REPLACE, Merge
from incremental.dataflow.partial_aggregate import Homomorphic, aggregate_change
from incremental.dataflow.pruning import Pruning
from incremental.dataflow.state_schema import Layout


@dataclass(frozen=True)
class GroupRecompute:
    """keep: computes a frame once for all its uses."""

    lowering: Lowering
    rules: DeltaRules
    pruning: Pruning
    keep: Callable[[DataFrame], DataFrame]

    def of(self, merge: Merge, stored: Callable[[], DataFrame], changed: Homomorphic) -> DataFrame:
        """Return h with the groups that a deletion reached recomputed; stored: the state's rows of its buckets."""
        layout, homomorphic = merge.layout, changed.rows
        if layout.state.recompute_always:
            keys = homomorphic.select(*(F.col(quoted(name)) for name in layout.keys))
        else:
            keys = self.keep(merge.keys_to_recompute(stored(), homomorphic))
        fresh = self._fresh(layout, keys)
        kept = homomorphic.withColumn(REPLACE, F.lit(False))
        if not layout.state.keys:
            return self.keep(fresh) if layout.state.recompute_always or keys.count() else kept
        if layout.state.recompute_always:  # what has no rows any more is not among the fresh, and goes
            fresh = keys = self.keep(fresh)
        same = [kept[quoted(name)].eqNullSafe(keys[quoted(name)]) for name in layout.keys]
        untouched = kept.join(keys, on=same, how="left_anti")
        return self.keep(untouched.unionByName(fresh))

    def _fresh(self, layout: Layout, keys: DataFrame) -> DataFrame:
        """h of all rows of some groups."""
        state = layout.state
        rows = self.rules.after(state.input)
        if state.keys:
            named = keys.toDF(*(key.name for key in state.keys))
            rows = self.pruning.rows_of_groups(state.input, state.keys, rows, named)
        frame = self.lowering.frame(rows, [(column, column.name) for column in state.reads])
        return aggregate_change(layout, frame, self.lowering).withColumn(REPLACE, F.lit(True))
