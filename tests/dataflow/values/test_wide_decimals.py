"""Sums of decimals beyond 37 digits are Spark's: 38 digits, NULL or an error beyond them, and back after deletions."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from deltafold.algebra.errors import EvaluationError
from deltafold.api import View
from tests.night import night
from tests.sandbox import DeltaSandbox, MemorySandbox, Sandbox, checked, rows

MOST = 10**38 - 1
ANSI = "spark.sql.ansi.enabled"
GROUPED = "select k, sum(v) s, try_sum(v) t, count(v) n, sum(distinct v) u from t group by k"
QUERIES = {
    "in place": GROUPED,
    "own table": f"select s, n, k from ({GROUPED}) where n > 0",
    "total": "select sum(v) s, try_sum(v) t from t where k = 1",
    "window": "select k, v, sum(v) over (partition by k) s from t",
    "joined": "select t.k, sum(v) s from t join f on t.k = f.k group by t.k",
}
AVERAGES = (
    "select k, avg(v) a, try_avg(v) t, sum(v) s from t group by k"  # have four digits more, so fewer before the point
)

Digits = tuple[int, int | None]


def decimal(digits: int, scale: int) -> Decimal:
    """The decimal of these digits, as exact as it is."""
    return Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))


@contextmanager
def ansi(spark: SparkSession, on: bool) -> Iterator[None]:
    known = spark.conf.get(ANSI)
    spark.conf.set(ANSI, str(on).lower())
    try:
        yield
    finally:
        spark.conf.set(ANSI, known or "true")


def declare(sandbox: Sandbox, scale: int, content: list[Digits]) -> None:
    """Create the sources; content: k and the digits of v."""
    sandbox.source("t", f"k int, v decimal(38,{scale})", in_scale(content, scale))
    sandbox.source("f", "k int, w int", [(k, k) for k in range(4)])


def in_scale(content: list[Digits], scale: int) -> list[tuple[int, Decimal | None]]:
    return [(k, None if v is None else decimal(v, scale)) for k, v in content]


def follows(sandbox: Sandbox, view: View) -> bool:
    """Refresh and compare; where Spark's batch query fails, so does the refresh, and the view stays. Returns which."""
    before = rows(view) if view.history() else None
    try:
        checked(view)
    except EvaluationError as error:
        assert "overflow" in str(error).lower() or "cannot be represented as Decimal(38" in str(error), error
        with pytest.raises(PySparkException):
            view.batch({name: sandbox.table(name).version() or 0 for name in "tf"}).collect()
        assert before is None or rows(view) == before
        return False
    return True


@pytest.mark.parametrize(
    ("on", "scale", "names"),
    [
        (True, 18, ("in place",)),
        (False, 0, ("own table", "window")),
        pytest.param(True, 18, ("own table", "joined", "total"), marks=night),
        pytest.param(False, 0, ("in place", "joined", "total"), marks=night),
    ],
    ids=["ANSI", "NULL", "ANSI, others", "NULL, others"],
)
def test_a_history_of_large_sums(sandbox: MemorySandbox, on: bool, scale: int, names: tuple[str, ...]) -> None:
    """37 digits, 38, more than Spark has, and back: each by a merge, and by the first load of another view."""
    with ansi(sandbox.spark, on):
        declare(sandbox, scale, [(1, MOST // 10), (1, None), (2, -MOST // 10), (3, 7), (3, -8)])
        views = [sandbox.view(QUERIES[name], name.replace(" ", "_")) for name in names]
        assert all(follows(sandbox, view) for view in views)
        sandbox.do(("insert", "t", in_scale([(1, 1), (1, MOST - MOST // 10 - 1), (2, -1)], scale)))
        assert all(follows(sandbox, view) for view in views)
        sandbox.do(("insert", "t", in_scale([(1, 1), (2, -MOST), (3, MOST // 2), (3, -MOST // 4)], scale)))
        loaded = [sandbox.another(QUERIES["own table"])]
        averages = sandbox.another(AVERAGES)
        follows(sandbox, averages)
        assert {follows(sandbox, view) for view in views + loaded} == {not on}
        sandbox.sql(f"delete from {{t}} where v in ({decimal(1, scale):f}, {decimal(-MOST, scale):f}) or k = 4")
        assert all(follows(sandbox, view) for view in views + loaded)
        follows(sandbox, averages)
        assert decimal(MOST - 1, scale) in {row.s for row in views[0].answer().collect()}


@night
def test_large_sums_of_delta_tables(delta: DeltaSandbox) -> None:
    """In chunks, each an epoch, and through Delta's writer; the types are those of Delta, too."""
    declare(delta, 18, [(1, MOST // 10)])
    delta.do(("insert", "t", in_scale([(1, MOST // 2), (2, -MOST // 2)], 18)))
    view = delta.view(QUERIES["own table"])
    checked(view, chunk=1)
    assert len(view.history()) > 1
    delta.sql("delete from {t} where v > 0 and k = 1")
    checked(view)
    assert view.verify().ok


KEYS = {0: st.integers(0, MOST), 1: st.integers(-MOST, 0), 2: st.integers(-MOST // 32, MOST // 32)}
"""Values by k, of which no sums of some overflow and the sum of all does not: there Spark's answer is by the order."""
DIGITS = st.sampled_from(sorted(KEYS)).flatmap(lambda k: st.tuples(st.just(k), st.one_of(st.none(), KEYS[k])))


@settings(max_examples=max(1, settings().max_examples // 25))
@given(data=st.data())
def test_random_histories(spark: SparkSession, data: st.DataObject) -> None:
    """Whatever rows are added and deleted, the view is what Spark's batch query says, in both modes."""
    scale = data.draw(st.sampled_from((0, 5, 18, 30, 37)), "scale")
    with tempfile.TemporaryDirectory() as folder, ansi(spark, data.draw(st.booleans(), "ansi")):
        sandbox = MemorySandbox(spark, Path(folder))
        declare(sandbox, scale, data.draw(st.lists(DIGITS, max_size=8), "content"))
        query = QUERIES[data.draw(st.sampled_from(sorted(QUERIES)), "query")]
        views = [sandbox.another(query), sandbox.another(AVERAGES)]
        for _ in range(3):
            for view in views:
                follows(sandbox, view)
            if data.draw(st.booleans(), "delete"):
                bound = decimal(data.draw(st.integers(-MOST, MOST), "bound"), scale)
                sandbox.sql(f"delete from {{t}} where v {data.draw(st.sampled_from('<>'), 'side')} {bound:f}")
            more = data.draw(st.lists(DIGITS, max_size=8), "more")
            if more:
                sandbox.do(("insert", "t", in_scale(more, scale)))
