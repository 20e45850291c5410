"""An upsert: which path is chosen, and that each path leaves the same rows, on both lakes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.algebra.program import BUCKET
from deltafold.algebra.tuning import MB, Tuning
from deltafold.lake.delta_table import DELTA
from deltafold.lake.protocol import Lake, Table
from deltafold.lake.upsert import Extent, Matching, Upsert, WritePath, Written, apply_upsert, merge_exactly
from tests.lake.memory.table import MemoryLake
from tests.lake.merge_scenarios import CHANGE, FIRST, SAME
from tests.lake.scenarios import SCHEMA, mark
from tests.local_rows import local

CHANGED = ((0, 1, 1), (0, 2, -1), (0, 9, 90), (0, 8, -8))
EXPECTED = ((0, 1, 11), (0, 9, 90), (1, 3, 30), (1, None, 40))


@pytest.mark.parametrize(
    ("rows", "buckets", "of_buckets", "by_buckets", "files", "size", "path"),
    [
        (9, (0,), 1, True, 4, 4 * MB, WritePath.REWRITE),
        (60_000, (0,), 1, True, 4, 4 * MB, WritePath.REWRITE),
        (9, (0,), 1, True, 5, 4 * MB, WritePath.BUCKETS),
        (9, (0,), 1, True, 1, 9 * MB, WritePath.VECTORS),
        (9, (0, 1), 8, True, 1, MB, WritePath.BUCKETS),
        (9, (0, 1), 8, True, 8, 32 * MB, WritePath.BUCKETS),
        (9, (0, 1), 8, True, 8, 33 * MB, WritePath.VECTORS),
        (60_000, (0, 1), 8, True, 8, MB, WritePath.MERGE),
        (9, (0, 1), 8, False, 4, MB, WritePath.REWRITE),
        (9, (0, 1), 8, False, 5, MB, WritePath.VECTORS),
        (50_000, (0,), 8, False, 5, MB, WritePath.VECTORS),
        (50_001, (0,), 8, False, 5, MB, WritePath.MERGE),
    ],
)
def test_the_path_follows_from_sizes(
    rows: int, buckets: tuple[int, ...], of_buckets: int, by_buckets: bool, files: int, size: int, path: WritePath
) -> None:
    """Protects from a state, a view and a loop of one size that are written differently."""
    extent = Extent(rows=rows, buckets=buckets, of_buckets=of_buckets, by_buckets=by_buckets)
    assert extent.choose_path(files, size, Tuning()) is path


@pytest.mark.parametrize("lake", [DELTA, MemoryLake()], ids=["delta", "memory"])
def test_each_path_leaves_the_same_rows(spark: SparkSession, tmp_path: Path, lake: Lake) -> None:
    """Protects from a path that writes other rows than the others, or twice in one epoch, or that says another one."""
    for path in (WritePath.REWRITE, WritePath.BUCKETS, WritePath.VECTORS, WritePath.MERGE):
        table = lake.table(spark, str(tmp_path / path.name))
        table.append(local(spark, FIRST, SCHEMA).coalesce(1), mark(1), BUCKET)
        direct = path is not WritePath.MERGE
        assert apply_upsert(table, upsert(spark, table, 0), mark(2), path) == Written(path=path, is_direct=direct)
        assert shown(table) == Counter(EXPECTED), path
        apply_upsert(table, upsert(spark, table, 0), mark(2), path)
        assert shown(table) == Counter(EXPECTED), f"{path} again"


@pytest.mark.parametrize("lake", [DELTA, MemoryLake()], ids=["delta", "memory"])
def test_a_merge_of_another_number_of_rows_writes_nothing(spark: SparkSession, tmp_path: Path, lake: Lake) -> None:
    """Protects from copies of a row that are deleted although some of them are to stay."""
    table = lake.table(spark, str(tmp_path))
    table.append(local(spark, FIRST, SCHEMA).coalesce(1), mark(1), BUCKET)
    change = upsert(spark, table, 0)
    assert not merge_exactly(table, change.extent, change.matching(), mark(2), matched=3)
    assert (table.version(), shown(table)) == (0, Counter(FIRST))
    assert merge_exactly(table, change.extent, change.matching(), mark(2), matched=2)


def upsert(spark: SparkSession, table: Table, before: int) -> Upsert:
    """Return the change of bucket 0."""
    change = local(spark, CHANGED, SCHEMA).coalesce(1)

    def merged(stored: DataFrame) -> DataFrame:
        both = stored.alias("t").join(change.alias("u"), F.expr(SAME), "full")
        kept = both.where("u.v IS NULL OR u.v > 0").selectExpr(
            f"coalesce(t.{BUCKET}, u.{BUCKET}) AS {BUCKET}",
            "coalesce(t.k, u.k) AS k",
            "coalesce(t.v, 0L) + coalesce(u.v, 0L) AS v",
        )
        return kept.coalesce(1)

    return Upsert(
        extent=Extent(rows=len(CHANGED), buckets=(0,), of_buckets=2, by_buckets=True),
        matching=lambda: Matching(change=change, same=SAME, clauses=CHANGE),
        stored=lambda near: table.at(before) if near is None else table.in_partitions(before, near),
        merged=merged,
    )


def shown(table: Table) -> Counter[tuple[Any, ...]]:
    version = table.version()
    assert version is not None
    return Counter(tuple(row) for row in table.scan(version).select(BUCKET, "k", "v").collect())
