"""PageRank of the airports: where a traveller is, who at each airport boards any flight, or else starts anywhere.

Every flight also flies back. The contract is an error of at most 1e-4 in the mean over the airports: a refresh starts
from the ranks of the last one, and publishes only ranks of which it measured that one more step hardly changes them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.api import iterate

BOARDS = 0.5  # how likely a traveller takes a flight; a step shrinks every difference to this part of it
ERROR = 1e-4


def query(flights: DataFrame) -> DataFrame:
    """Return airport and rank; the mean rank is 1."""
    out = flights.select(F.col("origin").alias("start"), F.col("dest").alias("end"))
    routes = out.union(out.select("end", "start")).groupBy("start", "end").agg(F.count("*").alias("flights"))
    total = routes.groupBy("start").agg(F.sum("flights").alias("total"))
    share = (F.lit(BOARDS) * F.col("flights") / F.col("total")).alias("share")
    links = routes.join(total, "start").select("start", "end", share)
    airports = total.select(F.col("start").alias("airport"))

    def step(ranks: DataFrame) -> DataFrame:
        parts = ranks.join(links, ranks["airport"] == links["start"])
        arrived = parts.groupBy("end").agg(F.sum(F.col("rank") * F.col("share")).alias("arrived"))
        joined = airports.join(arrived, airports["airport"] == arrived["end"], "left")
        return joined.select("airport", (F.lit(1 - BOARDS) + F.coalesce("arrived", F.lit(0.0))).alias("rank"))

    first = airports.select("airport", F.lit(1.0).alias("rank"))
    return iterate(first, step, key="airport", error=ERROR, contraction=BOARDS, norm="mean")
