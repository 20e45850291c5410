"""Runtime room: maintenance by definition. In: the batch query. Out: the difference of two of its answers, published.

Two modes. *recompute* (policy auto, where the compiler refuses): the batch answer minus what the view holds.
*definition*: the batch answer after minus the batch answer before, the oracle that the calculus is tested against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from incremental.algebra.constraints import Constraint
from incremental.algebra.program import WEIGHT
from incremental.algebra.upkeep import VIEW
from incremental.runtime.epoch import Epoch
from incremental.runtime.hold import held
from incremental.runtime.layout import quoted
from incremental.runtime.maintain import Effect, needs_mapping
from incremental.runtime.publish import Bag

Batch = Callable[[Mapping[str, DataFrame]], DataFrame]


@dataclass(frozen=True)
class Recomputed:
    """A view kept by running its query again; `by_definition` compares two answers instead of answer and view."""

    mode: ClassVar[str] = "recompute"
    verdict: ClassVar[str] = "recomputed"
    fingerprint: str
    sources: tuple[str, ...]
    columns: tuple[str, ...]
    batch: Batch
    by_definition: bool
    constraints: tuple[Constraint, ...] = ()

    @property
    def invariant(self) -> frozenset[str]:
        """Nothing needs to stay as it is."""
        return frozenset()

    @property
    def tables(self) -> tuple[str, ...]:
        """The view's own table alone."""
        return (VIEW,)

    def sorted_by(self, table: str) -> tuple[str, ...]:
        """A view's rows lie as they come."""
        return ()

    def run(self, epoch: Epoch) -> Effect:
        """One epoch: run the query, publish what differs."""
        if epoch.written(VIEW):
            return Effect()
        table, pins = epoch.tables[VIEW], epoch.intent.sources
        before = epoch.before(VIEW)
        bag = Bag(epoch.spark, table, self.columns, epoch.intent.buckets)
        with epoch.measure.phase("recompute"):
            new = self.batch({name: epoch.sources[name].at(pin.after) for name, pin in pins.items()})
            with held(bag.consolidated(self._minus(new, epoch, before))) as change:
                if before is not None and not epoch.resumed and change.isEmpty():
                    return Effect()
                rows = bag.publish(change, before, epoch.mark(VIEW), needs_mapping(self.columns))
        return Effect(0, rows, {VIEW: "recompute"})

    def _minus(self, new: DataFrame, epoch: Epoch, before: int | None) -> DataFrame:
        """The new answer minus the old one, unconsolidated."""
        new = new.toDF(*self.columns)
        if before is None:
            return new
        if self.by_definition:
            pins = epoch.intent.sources
            versions = {name: pin.before for name, pin in pins.items()}
            frames = {n: epoch.sources[n].origin.at(v) for n, v in versions.items() if v is not None}
            old = self.batch(frames).toDF(*self.columns)
        else:
            old = epoch.tables[VIEW].at(before).select(*(quoted(name) for name in self.columns))
        plus, minus = (frame.withColumn(WEIGHT, F.lit(sign).cast("bigint")) for frame, sign in ((new, 1), (old, -1)))
        return plus.union(minus)
