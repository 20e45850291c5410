"""Compactions of a source that are taken back, or come together with other changes."""

from __future__ import annotations

import pytest

from deltafold.api import View
from tests.night import night
from tests.refresh.test_versions import QUERY
from tests.sandbox import DeltaSandbox, checked


@pytest.fixture
def compacted(delta: DeltaSandbox) -> list[View]:
    """Two views of a table that got deletion vectors since, and was compacted."""
    delta.source("t", "k int, v int", [(i % 5, i) for i in range(40)])
    views = [delta.view(QUERY), delta.view("select k, v from t where v > 1", "bag")]
    for view in views:
        checked(view)
    delta.sql("update {t} set v = v + 1 where k < 2")
    delta.sql("optimize {t}")
    return views


@night
def test_a_compaction_that_is_taken_back(delta: DeltaSandbox, compacted: list[View]) -> None:
    """The files from before it come a second time, which a list of what came and left cannot say."""
    delta.sql("restore table {t} to version as of 1")
    for view in compacted:
        assert view.status().lag["t"].versions == 3
        checked(view)
    delta.sql("restore table {t} to version as of 2")
    for view in compacted:
        checked(view)


@night
def test_a_file_from_before_a_compaction_that_is_taken_back_changes_again(
    delta: DeltaSandbox, compacted: list[View]
) -> None:
    """It came with one deletion vector, and comes with another: its rows were read by what only one of them leaves."""
    delta.sql("restore table {t} to version as of 0")
    delta.sql("delete from {t} where k = 3")
    checked(compacted[0])
    delta.vacuum("t")  # of what the compaction made, too
    checked(compacted[1])


@night
@pytest.mark.parametrize("after", ["repartitioned", pytest.param("repartitioned before", marks=night)])
def test_a_table_that_is_partitioned_anew_beside_a_compaction(delta: DeltaSandbox, after: str) -> None:
    """A file is read by the partitions of its time: in another's, the column that is not in it would be NULL."""
    delta.source("t", "k int, day string", [(1, "a"), (2, "b"), (3, "c")])
    view = delta.view("select day, count(*) n, sum(k) s from t group by day")
    checked(view)

    def repartition() -> None:
        table = delta.spark.read.format("delta").load(delta.path("t")).localCheckpoint()
        writer = table.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.partitionBy("day").save(delta.path("t"))

    if after == "repartitioned before":
        repartition()
    delta.insert("t", "k int, day string", [(4, "a"), (5, "c")])
    delta.sql("optimize {t}")
    if after == "repartitioned":
        repartition()
    delta.sql("delete from {t} where day = 'a'")
    checked(view)
