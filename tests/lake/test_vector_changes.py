"""What the deletion vectors of a file hide and show again, few rows or many, is the difference of its versions."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import pytest
from pyspark.sql import functions as F

from deltafold.algebra.program import WEIGHT
from deltafold.lake.delta_table import DeltaTable
from deltafold.lake.log import vector_changes
from deltafold.lake.version_diff import file_difference
from tests.night import night
from tests.sandbox import DeltaSandbox

STEPS = (
    "delete from {t} where k % 7 = 0",
    "update {t} set g = g + 1 where k % 5 = 1",
    "delete from {t} where k % 11 < 3",
    "restore table {t} to version as of 1",
    "restore table {t} to version as of 0",
    "delete from {t} where k < 40",
)


@pytest.mark.usefixtures("compiled")
def test_many_rows_of_one_file(delta: DeltaSandbox) -> None:
    """Protects from Delta's limit for a vector within an action: two deletes of a tenth of a file failed a refresh."""
    rows = delta.spark.range(0, 480_000, 1, 1).selectExpr("id k", "pmod(hash(id), 10) h")
    rows.write.format("delta").option("delta.enableDeletionVectors", "true").save(delta.path("t"))
    for h in (1, 2):
        delta.spark.sql(f"delete from delta.`{delta.path('t')}` where h = {h}")
    change = file_difference(DeltaTable(delta.spark, delta.path("t")), 1, 2).frame(["k", "h"], consolidate=False)
    net = change.groupBy("h").agg(F.sum(WEIGHT).alias("rows"), F.sum(F.col("k") * F.col(WEIGHT)).alias("sum"))
    removed = rows.where("h = 2").agg(-F.count("k"), -F.sum("k")).collect()[0]
    assert [tuple(row) for row in net.where("rows <> 0").collect()] == [(2, *removed)]


PAIRS = [(before, after) for before in range(len(STEPS) + 1) for after in range(len(STEPS) + 1) if before != after]
BY_DAY = ((1, 3), (4, 2), (1, 6))  # deleted, restored, both


@night
@pytest.mark.parametrize("most", [60, pytest.param(1 << 20, marks=night)], ids=["apart", "within"])
def test_the_difference_of_two_versions(delta: DeltaSandbox, long: bool, most: int) -> None:
    """Any two versions: rows deleted, restored, both, in some of the files."""
    rows = delta.spark.range(0, 200, 1, 2).selectExpr("id k", "id % 3 g")
    rows.write.format("delta").option("delta.enableDeletionVectors", "true").save(delta.path("t"))
    for step in STEPS:
        delta.spark.sql(step.format(t=f"delta.`{delta.path('t')}`"))
    table = DeltaTable(delta.spark, delta.path("t"))
    held = [Counter((row.k, row.g) for row in table.scan(version).collect()) for version in range(len(STEPS) + 1)]
    with mock.patch.object(vector_changes, "MOST_CHARACTERS", most):
        for before, after in PAIRS if long else BY_DAY:
            found = Counter[tuple[int, int]]()
            for row in file_difference(table, before, after).frame(["k", "g"], consolidate=False).collect():
                found[row.k, row.g] += row.asDict().get(WEIGHT, 1)
            expected = {key: held[after][key] - held[before][key] for key in held[after] | held[before]}
            assert {k: n for k, n in found.items() if n} == {k: n for k, n in expected.items() if n}
