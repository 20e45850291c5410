"""Which partitions of a view a refresh touched: what lies downstream need not look at the others."""

from __future__ import annotations

import pytest

from incremental.dataflow import touched_partitions
from tests.examples.scene import Scene, checked

SCHEMA = "day string, k int, v int"
QUERIES = {
    "the answer in its state": "select day, k, sum(v) s, max(v) most from t group by day, k",
    "a view table": "select a.day as d, a.v, b.v as w from t a join t b on a.k = b.k and a.day = b.day",
    "a window": "select day, v, rank() over (partition by day order by v) r from t",
}
ROWS = [("d1", 1, 1), ("d2", 1, 2), ("d2", 2, 3), ("d3", 1, 4)]


def partitioned(scene: Scene) -> None:
    frame = scene.spark.createDataFrame(ROWS, SCHEMA)
    frame.write.format("delta").partitionBy("day").save(scene.path("t"))
    scene.declare("t")


@pytest.mark.parametrize("policy", ["incremental", "definition"])
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_report_names_the_partitions_that_changed(scene: Scene, query: str, policy: str) -> None:
    """Each of the ways that an answer is written tells them; no change touches none."""
    partitioned(scene)
    view = scene.view(query, policy=policy)
    assert view.description().partition_key == ("d" if "as d" in query else "day")
    assert checked(view).partitions == ("d1", "d2", "d3")
    scene.sql("insert into {t} values ('d4', 1, 1)")
    scene.sql("update {t} set v = 7 where day = 'd2' and k = 2")
    assert checked(view).partitions == ("d2", "d4")
    scene.sql("delete from {t} where day = 'd1'")
    assert checked(view).partitions == ("d1",)
    scene.sql("insert into {t} values (null, 1, 1)")
    if "join" not in query:
        assert checked(view).partitions == (touched_partitions.NONE,)
    assert checked(view).partitions == ()


def test_the_key_is_passed_on_to_a_view_above(scene: Scene) -> None:
    """A view's own table is partitioned by bucket, its answer by what it passes on."""
    partitioned(scene)
    scene.warehouse.source("sums", scene.view("select day, sum(v) s from t group by day", "sums"))
    above = scene.view("select s, day from sums where s > 1", "above")
    assert above.refresh().partitions == ("d2", "d3")
    scene.sql("update {t} set v = v + 5 where day = 'd3'")
    assert above.refresh().partitions == ("d3",)
    assert above.verify().ok


def test_a_view_without_the_key_and_too_many_partitions_tell_nothing(scene: Scene) -> None:
    """None means any of them: never a list that leaves some out."""
    partitioned(scene)
    total = scene.view("select k, sum(v) s from t group by k", "total")
    assert (checked(total).partitions, total.description().partition_key) == (None, "")
    scene.tune(reported_partitions=2)
    view = scene.view("select day, count(*) n from t group by day", "daily")
    assert checked(view).partitions is None
    scene.sql("delete from {t} where day < 'd3'")
    assert checked(view).partitions == ("d1", "d2")
