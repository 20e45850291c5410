"""Which partitions of a view a refresh touched: what lies downstream need not look at the others."""

from __future__ import annotations

from typing import cast

import pytest

from deltafold.api import Policy
from deltafold.dataflow import touched_partitions
from tests.night import sampled
from tests.sandbox import MemorySandbox, checked

SCHEMA = "day string, k int, v int"
QUERIES = {
    "the answer in its state": "select day, k, sum(v) s, max(v) most from t group by day, k",
    "a view table": "select a.day as d, a.v, b.v as w from t a join t b on a.k = b.k and a.day = b.day",
    "a window": "select day, v, rank() over (partition by day order by v) r from t",
}
ROWS = [("d1", 1, 1), ("d2", 1, 2), ("d2", 2, 3), ("d3", 1, 4)]


def partitioned(sandbox: MemorySandbox) -> None:
    frame = sandbox.spark.createDataFrame(ROWS, SCHEMA)
    sandbox.write("t", frame, partition="day")
    sandbox.declare("t")


BY_DAY = ("the answer in its state, incremental", "a view table, definition")
CASES = [f"{name}, {policy}" for name in QUERIES for policy in ("incremental", "definition")]


@pytest.mark.parametrize("case", sampled(CASES, BY_DAY.__contains__))
def test_a_report_names_the_partitions_that_changed(sandbox: MemorySandbox, case: str) -> None:
    """Each of the ways that an answer is written tells them; no change touches none."""
    name, policy = case.split(", ")
    query = QUERIES[name]
    partitioned(sandbox)
    view = sandbox.view(query, policy=cast(Policy, policy))
    assert view.description().partition_key == ("d" if "as d" in query else "day")
    assert checked(view).partitions == ("d1", "d2", "d3")
    sandbox.sql("insert into {t} values ('d4', 1, 1)")
    sandbox.sql("update {t} set v = 7 where day = 'd2' and k = 2")
    assert checked(view).partitions == ("d2", "d4")
    sandbox.sql("delete from {t} where day = 'd1'")
    assert checked(view).partitions == ("d1",)
    sandbox.sql("insert into {t} values (null, 1, 1)")
    if "join" not in query:
        assert checked(view).partitions == (touched_partitions.NONE,)
    assert checked(view).partitions == ()


def test_the_key_is_passed_on_to_a_view_above(sandbox: MemorySandbox) -> None:
    """A view's own table is partitioned by bucket, its answer by what it passes on."""
    partitioned(sandbox)
    sandbox.warehouse.source("sums", sandbox.view("select day, sum(v) s from t group by day", "sums"))
    above = sandbox.view("select s, day from sums where s > 1", "above")
    assert above.refresh().partitions == ("d2", "d3")
    sandbox.sql("update {t} set v = v + 5 where day = 'd3'")
    assert above.refresh().partitions == ("d3",)
    assert above.verify().ok


def test_a_view_without_the_key_and_too_many_partitions_tell_nothing(sandbox: MemorySandbox) -> None:
    """None means any of them: never a list that leaves some out."""
    partitioned(sandbox)
    total = sandbox.view("select k, sum(v) s from t group by k", "total")
    assert (checked(total).partitions, total.description().partition_key) == (None, "")
    sandbox.tune(reported_partitions=2)
    view = sandbox.view("select day, count(*) n from t group by day", "daily")
    assert checked(view).partitions is None
    sandbox.sql("delete from {t} where day < 'd3'")
    assert checked(view).partitions == ("d1", "d2")
