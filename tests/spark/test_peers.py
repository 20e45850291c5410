"""Windows and limits over rows that come in any order."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from deltafold.language.determinism.tie_breaking import break_ties
from tests.night import sampled
from tests.sandbox import MemorySandbox, rows

SCHEMA = "k int, n int, d double, c string, m map<string, int>"
ROWS = [
    *("(1,1,0.0D,'a',map('a',1))", "(1,1,-0.0D,'a',map('a',1))", "(1,1,-0.0D,'A',map('a',1))"),
    *("(2,1,0.1D,'x',map('a',1))", "(2,1,0.2D,'x',map('b',2))", "(2,1,0.3D,'x',map('c',3))", "(2,2,1e9D,'x',null)"),
    *("(3,1,5D,'x',map('a',1))", "(3,1,5D,'x',map('b',2))", "(3,1,double('nan'),'X',null)", "(null,1,1D,null,null)"),
]
BYTES = "cast(hex({}) as string)".format
COLLATED = "(select k, n, d, c collate utf8_lcase c, m from t)"
BY_N = "over (partition by k order by n)"
QUERIES = {
    "a list": "select to_json(collect_list(d) over (partition by k)) a from t",
    "a sum": f"select sum(d) over (partition by k) a from {COLLATED}",
    "a running sum": f"select sum(d) {BY_N} a from t",
    "a sum of quotients": "select sum(n / (k + 2.7D)) over (partition by n) a, n from t",
    "a sum over all rows": f"select sum(d) over () a, {BYTES('c')} b from {COLLATED}",
    "numbered doubles": f"select cast(d as string) a, row_number() {BY_N} b from t",
    "numbered texts": f"select {BYTES('c')} a, row_number() {BY_N} b from {COLLATED}",
    "numbered maps": f"select to_json(m) a, row_number() {BY_N} b from t",
    "the first text": f"select {BYTES(f'first_value(c) {BY_N}')} a from {COLLATED}",
    "the largest text": f"select {BYTES('max(c) over (partition by k)')} a from {COLLATED}",
    "the least double": "select cast(min(d) over (partition by k) as string) a from t",
    "a limit": f"select cast(d as string) a, {BYTES('c')} b, to_json(m) c from {COLLATED} order by n limit 2",
    "a limit of maps": "select to_json(m) a from t where k = 3 order by n limit 1",
    "a group above": "select a, count(*) b from (select sum(d) over (partition by k) a from t) group by a",
}


BY_DAY = ("a list", "numbered texts", "a limit of maps")


def values(texts: list[str]) -> str:
    """Return a relation of rows, in the given order and one task."""
    return f"(select /*+ coalesce(1) */ * from values {', '.join(texts)} as v(k, n, d, c, m))"


@pytest.mark.parametrize("name", QUERIES)
def test_the_answer_does_not_depend_on_the_order_of_the_rows(spark: SparkSession, name: str) -> None:
    """Protects from rows that a refresh computes otherwise than the refresh that wrote them."""
    shuffled, answers = [*ROWS], set[str]()
    order = random.Random(7)
    for _ in range(4):
        spark.sql(f"select * from {values(shuffled)}").createOrReplaceTempView("t")
        answers.add(str(sorted(map(repr, break_ties(spark, spark.sql(QUERIES[name])).collect()))))
        order.shuffle(shuffled)
    assert len(answers) == 1


@pytest.mark.parametrize("name", sampled(QUERIES, BY_DAY.__contains__))
def test_a_hidden_key(sandbox: MemorySandbox, name: str) -> None:
    """Protects from a view that is stuck for ever: «lacks 2 of the rows to delete»."""
    sandbox.source("t", SCHEMA, [])
    view = sandbox.view(QUERIES[name])
    order, shuffled = random.Random(3), [*ROWS]
    for number in range(3):
        sandbox.insert("t", SCHEMA, sandbox.spark.sql(f"select * from {values(shuffled)}").collect(), "overwrite")
        view.refresh()
        sandbox.insert("t", SCHEMA, [(number + 1, 1, 0.7, "y", {"z": number})])
        view.refresh()
        order.shuffle(shuffled)
    assert view.verify().ok
    assert rows(view)
