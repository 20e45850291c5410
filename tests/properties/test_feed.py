"""What is read between two versions of a Delta table is their difference, whatever was done to the table."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from deltafold.algebra.program import WEIGHT
from deltafold.lake.version_diff import file_difference
from tests.corpus.writer import Writer
from tests.sandbox import DeltaSandbox

DEAR = 6
COLUMNS = ["k", "v"]
WHERE = st.sampled_from(["k < 2", "k = 3", "v % 2 = 0", "v > 8", "true"])
operations = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(0, 9)),
        st.tuples(st.just("delete"), WHERE),
        st.tuples(st.just("update"), WHERE),
        st.tuples(st.just("restore"), st.integers(1, 4)),
        st.tuples(st.just("optimize"), st.none()),
    ),
    min_size=6,
    max_size=8,
)


@settings(max_examples=max(1, settings().max_examples // DEAR))
@given(operations)
def test_a_change_is_the_difference_of_two_versions(spark: SparkSession, done: list[tuple[str, Any]]) -> None:
    """Protects from rows counted twice where files come again or are read by what two deletion vectors differ in.

    What a version is read from is compared with what Delta gives for it, since other tests take it for granted.
    """
    with tempfile.TemporaryDirectory() as folder:
        lake = Writer(DeltaSandbox(spark, Path(folder)), "t")
        for verb, what in [("insert", 0), *done]:
            do(lake, verb, what)
        table = lake.sandbox.table("t")
        last = table.version()
        assert last is not None
        bags = weighed([table.scan(version) for version in range(last + 1)])
        assert weighed([table.at(version) for version in range(last + 1)]) == bags
        changes = weighed([file_difference(table, v, last).frame(COLUMNS, consolidate=False) for v in range(last)])
        for version, change in enumerate(changes):
            change.update(bags[version])
            assert {row: n for row, n in change.items() if n} == bags[last], f"from {version} after {done}"


def weighed(bags: Sequence[DataFrame], columns: Sequence[str] = COLUMNS) -> list[Counter[tuple[Any, ...]]]:
    """Each bag's rows and their weights, in one Spark job; 1 where rows have none."""
    counted = [Counter[tuple[Any, ...]]() for _ in bags]
    labelled = [
        bag.selectExpr(str(number), WEIGHT if WEIGHT in bag.columns else "1L", *columns)
        for number, bag in enumerate(bags)
    ]
    for number, weight, *row in reduce(DataFrame.union, labelled).collect() if bags else ():
        counted[number][tuple(row)] += weight
    return counted


def do(lake: Writer, verb: str, what: Any) -> None:
    """One operation; an insert's rows follow from its number, and a restore goes back by some versions."""
    match verb:
        case "insert":
            rows = [(i % 4, what * 3 + i) for i in range(6)]
            lake.write(lake.sandbox.spark.createDataFrame(rows, "k int, v int"), "append")
        case "delete":
            lake.delete(what)
        case "update":
            lake.update({"v": "v + 1"}, what)
        case "restore":
            lake.restore(what)
        case _:
            lake.optimize()
