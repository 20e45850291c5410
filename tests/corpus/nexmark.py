"""Nexmark's queries as batch queries, over random persons, auctions and bids."""

from __future__ import annotations

import datetime
import random
import re
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

SCHEMAS = {
    "person": "id bigint, name string, email string, city string, state string, at timestamp",
    "auction": "id bigint, item string, initial_bid bigint, reserve bigint, at timestamp, expires timestamp, "
    "seller bigint, category bigint",
    "bid": "auction bigint, bidder bigint, price bigint, channel string, url string, at timestamp",
}
TEXT = (Path(__file__).parent / "nexmark.sql").read_text()
NEXMARK = {int(number): query.strip() for number, query in re.findall(r"-- q(\d+)\n(.*?)(?=-- q|\Z)", TEXT, re.DOTALL)}


def nexmark_tables(spark: SparkSession) -> dict[str, DataFrame]:
    """A few hundred rows of each, with NULLs."""
    r = random.Random(7)
    begin = datetime.datetime(2024, 1, 1, 6, tzinfo=datetime.UTC)

    def moment() -> datetime.datetime:
        return begin + datetime.timedelta(seconds=r.randrange(86_400 // 4))

    people = [
        (
            i,
            f"name {i % 40}",
            f"{i}@x.org",
            r.choice(["rome", "oslo"]),
            r.choice(["or", "id", "ca", "wa", None]),
            moment(),
        )
        for i in range(120)
    ]
    auctions = []
    for i in range(150):
        start = moment()
        end = start + datetime.timedelta(hours=r.choice([1, 2, 8]))
        auctions.append(
            (
                i,
                f"item {i % 30}",
                r.randrange(50),
                r.randrange(900),
                start,
                end,
                r.randrange(120),
                r.choice([10, 11, 12]),
            )
        )
    bids = [
        (
            r.randrange(150), r.randrange(140), r.randrange(1000), r.choice(["Apple", "Google", None]),
            f"https://x.org/a{r.randrange(3)}/b?channel_id={r.randrange(9)}", moment(),
        )
        for _ in range(900)
    ]  # fmt: skip
    content = {"person": people, "auction": auctions, "bid": bids}
    return {name: spark.createDataFrame(rows, SCHEMAS[name]) for name, rows in content.items()}
