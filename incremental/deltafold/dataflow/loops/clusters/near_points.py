"""Read the old points of k-means that may have another nearest center than their reference, once for several steps.

A point whose margin in a step is greater than twice the distance that any center has moved from its reference keeps it
(triangle inequality). The others are read from the log, whose files are sorted by the least margin of a point; those
that further steps are expected to need are read with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltafold.dataflow.loops.clusters.cluster_table import MARGIN, MARGINS
from deltafold.spark.checkpoint import Checkpoints, compute_measures

OLD_POINT = "__old"
AHEAD = 2.0  # how much more the centers of further steps may have moved than it seems before near points are taken back
ROUNDED_UP = 1 + 1e-6  # so that a bound in FLOAT is not smaller


@dataclass(kw_only=True)
class NearPoints:
    """The near points of one refresh.

    log: the points as they are stored; changed: the change of them as further rows of the log; most: the most points
    that are read; bounds: the greatest margin of those that were read, by step.
    """

    log: DataFrame
    changed: DataFrame | None
    most: float
    checkpoints: Checkpoints
    bounds: dict[int, float] = field(default_factory=dict[int, float])
    read: int = 0
    _rows: DataFrame | None = None

    def of_step(self, step: int, needs: Sequence[float]) -> DataFrame | None:
        """Return points with all whose margin in a step is at most what it needs; None if too many have to be read.

        needs: of all steps; those of later ones are expectations.
        """
        if self._rows is None or needs[step] > self.bounds.get(step, -math.inf):
            further = {later: AHEAD * max(needs[step], needs[later]) for later in range(step, len(needs))}
            self.bounds |= {step: max(bound, self.bounds.get(step, bound)) for step, bound in further.items()}
            self._rows = self._read()
        return self._rows

    def count_old(self, needs: Mapping[int, float]) -> dict[int, int]:
        """Return how many old points were near in each of some steps."""
        if self._rows is None or not needs:
            return dict.fromkeys(needs, 0)
        measures = [F.count_if(F.col(OLD_POINT) & within(step, need)).alias(str(step)) for step, need in needs.items()]
        measured = compute_measures(self._rows.coalesce(1), measures)
        return {step: int(measured[str(step)]) for step in needs}

    def _read(self) -> DataFrame | None:
        least = F.lit(max(self.bounds.values()) * ROUNDED_UP).cast("float")
        near = reduce(Column.__or__, (within(step, bound) for step, bound in self.bounds.items()))
        rows = self.log.withColumn(OLD_POINT, F.lit(True)).where((F.col(MARGIN) <= least) & near)
        if self.changed is not None:
            rows = rows.unionByName(self.changed.withColumn(OLD_POINT, F.lit(False)).where(near))
        held, measured = self.checkpoints.measure(rows, [F.count_if(OLD_POINT).alias("old")], small=True)
        self.read = max(self.read, int(measured["old"]))
        return held if self.read <= self.most else None


def within(step: int, bound: float) -> Column:
    """Return the condition that the margin of a logged point in a step is at most a bound."""
    return F.col(MARGINS)[step].cast("double") <= F.lit(bound)
