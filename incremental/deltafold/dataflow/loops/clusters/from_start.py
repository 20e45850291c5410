"""Evaluate k-means from the start, over all points; the centers of each step are the next references."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame

from deltafold.dataflow.loops.clusters.assignment import STRANGE
from deltafold.dataflow.loops.clusters.cluster_sums import Clustered, ClusterSums, can_be_references
from deltafold.dataflow.loops.rounds import Round
from deltafold.dataflow.partial_aggregate import TOUCHED


def from_start(sums: ClusterSums, start: DataFrame, points: DataFrame) -> Clustered | None:
    """Return the evaluation of all steps; None if some centers cannot be references.

    points: read once a step.
    """
    parts, rounds, touched = list[DataFrame](), list[Round](), 0
    centers = first = sums.compute(sums.number_start(start))
    for step in range(sums.table.loop.limit):
        if not can_be_references(sums.coordinates(centers).get(step, {}).values()):
            return None
        added = sums.assignment.sum_points(sums.assignment.assign(points, centers))
        references, found = sums.measure(sums.add(sums.drop_points(centers), added))
        if int(found[STRANGE]):
            return None
        rounds.append(Round("steps", int(found["centers"])))
        touched = max(touched, int(found[TOUCHED]))
        parts.append(references)
        centers = sums.next_centers(references)
    return Clustered(reduce(DataFrame.unionByName, parts), first, centers, tuple(rounds), touched)
