"""The fewest legs of a journey between two airports, for all journeys of at most four.

Every flight also flies back, so the graph has a cycle at every airport. All flights of a route may be deleted: the
journeys over it are found by another way, get longer, or vanish.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.api import fixpoint

MOST_LEGS = 4


def query(flights: DataFrame) -> DataFrame:
    """Return start, end and legs, one row for each pair of airports."""
    out = flights.select(F.col("origin").alias("start"), F.col("dest").alias("end"))
    routes = out.union(out.select("end", "start")).distinct()

    def longer(journeys: DataFrame) -> DataFrame:
        shorter = journeys.where(F.col("legs") < MOST_LEGS)
        joined = shorter.join(routes, shorter["end"] == routes["start"])
        return joined.select(shorter["start"], routes["end"], shorter["legs"] + 1)

    return fixpoint(routes.select("start", "end", F.lit(1).alias("legs")), longer, key=("start", "end"))
