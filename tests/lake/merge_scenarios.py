"""The merges that are done to a table of both lakes."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.program import BUCKET
from deltafold.lake.protocol import Clause
from tests.lake.scenarios import Scenario, mark

FIRST = ((0, 1, 10), (0, 2, 20), (1, 3, 30), (1, None, 40))
CHANGE = [
    Clause("delete", "u.v < 0", {}),
    Clause("update", "u.v > 0", {"`v`": "t.v + u.v"}),
    Clause("insert", "u.v > 0", {BUCKET: "u.__bucket", "`k`": "u.k", "`v`": "u.v"}),
]


SAME = f"t.{BUCKET} = u.{BUCKET} AND t.k <=> u.k"


def merges(at: Scenario, near: str | None) -> None:
    """Merge into two buckets; near: the condition of the partitions, with which a merge is direct."""

    def merge(what: str, source: DataFrame, epoch: int, clauses: list[Clause] = CHANGE, where: str = SAME) -> None:
        found: list[bool] = []
        at.do(what, lambda table: found.append(table.merge(source, where, clauses, mark(epoch), near)))
        if near is not None:
            at.note("direct", found)

    change = at.rows((0, 1, 1), (0, 2, -1), (1, 9, 90), (1, 8, -8), (1, 3, 0))
    merge("merge", change, 4, where=f"t.{BUCKET} IN (0, 1) AND {SAME}")
    merge("merge again", change, 4)
    merge("merge of a NULL key", at.rows((1, None, 2)), 5)
    merge("merge without effect", at.rows((0, 77, 0)), 6)
    twice = at.rows((0, 1, 1), (0, 1, 2))
    merge("merge of two rows into one", twice, 7)
    merge("merge of two rows of which one is taken", at.rows((0, 1, 1), (0, 1, 0)), 8)
    if near is None:  # else Delta's MERGE does it
        merge("merge that deletes a row twice", twice, 9, [Clause("delete", None, {})])
    merge("merge that only inserts", at.rows((0, 6, 6), (0, 1, 1)), 10)


def merges_by_delta(at: Scenario) -> None:
    """Delta's own MERGE, which takes a change of any size."""
    at.do("append", lambda t: t.append(at.rows(*FIRST), mark(1), BUCKET))
    merges(at, None)
    at.do("overwrite", lambda t: t.overwrite(at.rows(*FIRST), mark(11), BUCKET))
    at.do("merge that takes a whole file", lambda t: t.merge(at.rows((0, 1, -1), (0, 2, -1)), SAME, CHANGE, mark(12)))


def direct_merges(at: Scenario) -> None:
    """The merges of a change of few rows, each in one commit that is not Delta's MERGE."""
    near = f"{BUCKET} IN (0, 1)"
    at.do("append", lambda t: t.append(at.rows(*FIRST), mark(1), BUCKET))
    merges(at, near)
    change = at.rows((0, 6, -1), (1, 9, -1), (1, 12, 3))
    at.do("merge that empties files", lambda t: t.merge(change, SAME, CHANGE, mark(11), near))
    at.do("sort", lambda t: t.sort(["0", "1"], ["k"], 1, "{}"))
    at.do("merge after it", lambda t: t.merge(at.rows((1, 3, 5)), SAME, CHANGE, mark(12), f"{BUCKET} IN (1)"))
    for column in (F.col("u.v"), F.expr("raise_error('no')").cast("bigint")):
        update = [
            Clause("update", "t.v > u.v", {"v": column}),
            Clause("insert", None, {"k": "u.k", "__bucket": "u.__bucket"}),
        ]
        at.do("merge by a column", lambda t, u=update: t.merge(at.rows((1, 3, 1), (0, 7, 7)), SAME, u, mark(13), near))
