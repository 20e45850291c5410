"""The verifier finds every difference that counts, and none that does not."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from decimal import Decimal
from functools import reduce

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.algebra.errors import QueryError, SourceError, UsageError
from deltafold.compilation import Compilation
from deltafold.operations.verify import Discrepancy, Sample, count_differences
from deltafold.spark.job_stats import Measure
from tests.local_rows import local
from tests.night import night
from tests.sandbox import DeltaSandbox, MemorySandbox, checked

NAN, INF = float("nan"), float("inf")
SCHEMA = "k int, v double, a array<double>, m map<string, int>, s struct<p: int, q: string>"
ROW = (1, 0.1 + 0.2, [1.0], {"x": 1}, (1, "a"))


SAME = [(0.3, 0.1 + 0.2), (0.0, -0.0), (NAN, NAN), (INF, INF), (0.0, 1e-13), (None, None)]
DIFFERENT = [(0.3, 0.3000001), (NAN, None), (NAN, INF), (INF, -INF), (0.0, None), (1e-3, 1.1e-3), (1.0, -1.0)]


def test_floats_that_are_the_same(spark: SparkSession) -> None:
    """Protects from alarms about the order in which Spark adds, and about values on a rounding edge."""
    one, other = (
        spark.createDataFrame(list(enumerate(side)) * 2, "k int, v double").groupBy("k").agg(F.max("v").alias("v"))
        for side in zip(*SAME, strict=True)
    )
    found = count_differences(one, other, 5)
    assert (found.missing, found.extra, found.sample) == (0, 0, ())


def test_floats_that_are_not(spark: SparkSession) -> None:
    """One row of each missing and one too many, each shown; equal ones beside them are not."""
    sides = ([*enumerate(side), (-1, 5.0)] for side in zip(*DIFFERENT, strict=True))
    one, other = (spark.createDataFrame(side, "k int, v double") for side in sides)
    found = count_differences(one, other, 99)
    assert (found.missing, found.extra) == (len(DIFFERENT), len(DIFFERENT))
    kinds = [text.split()[0] for text in found.sample]
    assert kinds == ["missing"] * len(DIFFERENT) + ["extra"] * len(DIFFERENT)
    shown = {text.split("'k': ")[1].split(",")[0] for text in found.sample}
    assert shown == {str(number) for number in range(len(DIFFERENT))}


def test_identity_of_copied_values(spark: SparkSession) -> None:
    """The sign of zero counts where a query only copies values, not where it combines rows."""
    schema = "k int, v double, s struct<x: float>"
    same = [(3, 1.0, None), (4, 1e-13, None)]
    one = local(spark, [(1, 0.0, (1.0,)), (2, 1.0, (0.0,)), *same], schema)
    other = local(spark, [(1, -0.0, (1.0,)), (2, 1.0, (-0.0,)), *same], schema)
    found = count_differences(one, other, 99)
    assert (found.missing, found.extra) == (2, 2)
    assert {text.split("'k': ")[1].split(",")[0] for text in found.sample} == {"1", "2"}
    greatest = [rows.groupBy("k").agg(F.max("v").alias("v"), F.max("s").alias("s")) for rows in (one, other)]
    assert not count_differences(greatest[0], greatest[1], 5).missing


NESTED = "k int, s struct<`a.b`: double, n: int>, l array<struct<x: float>>, m map<string, double>"


@pytest.mark.parametrize(("error", "differing"), [(1e-13, 0), (1e-3, 3)])
def test_floats_within_values(spark: SparkSession, error: float, differing: int) -> None:
    """Protects from alarms about the order of additions in structs, arrays and maps, and from missing a difference."""
    exact = [(1, (0.5, 1), [(0.5,), None], {"a": 0.5}), (2, None, None, None), (3, (None, 1), [], {"a": None})]
    one = spark.createDataFrame([(i, *row[1:]) for i in range(3) for row in exact], NESTED)
    off = 0.5 + error
    changed = [(off, 1), [(off,), None], {"a": off}]
    rows = [
        (i, *(changed[at] if at == i and row[0] == 1 else value for at, value in enumerate(row[1:])))
        for i in range(3)
        for row in exact
    ]
    found = count_differences(one, spark.createDataFrame(rows, NESTED), 5)
    assert (found.missing, found.extra) == (differing, differing)


def test_duplicates_and_nested_values(spark: SparkSession) -> None:
    """A copy more or less is a difference, and values of every type are compared."""
    expected = spark.createDataFrame([ROW, ROW, (2, None, None, None, None)], SCHEMA)
    assert count_differences(expected, expected, 5) == Discrepancy(0, 0, (), 3)
    empty = expected.limit(0)
    assert count_differences(empty, empty, 5) == Discrepancy(0, 0, (), 0)
    fewer = spark.createDataFrame([ROW, (2, None, None, None, None)], SCHEMA)
    assert count_differences(expected, fewer, 5).missing == 1 and count_differences(fewer, expected, 5).extra == 1
    changed = spark.createDataFrame([ROW, (*ROW[:4], (1, "b")), (2, None, None, {"x": 2}, None)], SCHEMA)
    found = count_differences(expected, changed, 1)
    assert (found.missing, found.extra, len(found.sample), found.rows) == (2, 2, 2, 3)


def test_an_equal_answer_takes_one_query(spark: SparkSession) -> None:
    """Protects a nightly check from queries for a sample and for counts."""
    rows = spark.createDataFrame([(1, 0.5), (1, 0.5), (2, 1.5)], "k int, v double")
    measure = Measure(spark)
    with measure.all("a check"):
        count_differences(rows, rows, 5)
    assert measure.cost.jobs == 1


def test_a_view_that_somebody_changed(sandbox: MemorySandbox) -> None:
    """`verify` reads the published table itself."""
    sandbox.source("t", "k int, v double", [(1, 0.5), (2, 0.25)])
    view = sandbox.view("select k, sum(v) s from t group by k")
    view.refresh()
    found = view.verify()
    assert (found.ok, found.rows) == (True, 2) and "epoch 1" in found.sentence
    sandbox.sql("update {v} set s = 7 where k = 1", v=view.path)
    verification = view.verify()
    assert not verification.ok and verification.sample == (
        "missing {'k': 1, 's': 0.5}",
        "extra {'k': 1, 's': 7.0}",
    )


def test_a_source_that_is_named_but_not_read(sandbox: MemorySandbox) -> None:
    """Pruning took its only use away: the batch query still names it."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2)])
    sandbox.source("d", "k int, w int", [(1, 5)])
    view = sandbox.view("select k, v from (select *, (select max(w) from d where d.k = t.k) unused from t)")
    checked(view)
    assert view.verify().ok


ATTRIBUTION = """
with sessions as (
    select id, customer, started, coalesce(source, medium, campaign, 'direct') source,
        coalesce(medium, source, 'none') medium, coalesce(campaign, medium, 'none') term,
        coalesce(campaign, source, medium, 'none') campaign,
        case when click is not null then 'ads' when source is null then 'direct' else source end channel
    from t),
before as (
    select s.*, c.converted, c.revenue from sessions s join c on s.customer = c.customer
    where s.started <= c.converted and s.started >= c.converted - interval 30 days),
numbered as (
    select *, count(*) over (partition by customer) sessions,
        row_number() over (partition by customer order by started, id) number from before),
points as (
    select *, if(number = 1, 1.0, 0.0) first, if(number = sessions, 1.0, 0.0) last,
        case when sessions = 1 then 1.0 when sessions = 2 then 0.5 when number in (1, sessions) then 0.4
            else 0.2 / (sessions - 2) end forty_twenty_forty, 1.0 / sessions linear from numbered)
select *, revenue * first first_revenue, revenue * last last_revenue,
    revenue * forty_twenty_forty forty_twenty_forty_revenue, revenue * linear linear_revenue from points
"""
CONSTRAINTS = "spark.sql.constraintPropagation.enabled"


@night
@pytest.mark.timeout(300)
def test_columns_of_columns_of_columns(sandbox: MemorySandbox) -> None:
    """Spark inferred filters for hours, of every column under its own name and under that by which it is compared."""
    session = "id int, customer int, started timestamp, source string, medium string, campaign string, click string"
    times = [datetime(2024, 1, 1) + timedelta(days=day) for day in range(31)]
    names = [(i, i % 3, time, f"s{i % 2}", "m" if i % 4 else None, None, "g") for i, time in enumerate(times)]
    sandbox.source("t", session, names)
    revenues = [(i, times[-1], Decimal(i)) for i in range(3)]
    sandbox.source("c", "customer int, converted timestamp, revenue decimal(12,2)", revenues)
    view = sandbox.view(ATTRIBUTION)
    setting = sandbox.spark.conf.get(CONSTRAINTS)
    view.refresh()
    assert view.verify().ok and view.verify(0.5).ok
    sandbox.sql("update {c} set revenue = 7.5 where customer = 1")
    view.refresh()
    assert view.verify().rows == len(times)
    sandbox.sql("update {v} set medium = 'x' where id = 5", v=view.path)
    found = view.verify()
    assert (found.missing, found.extra, sandbox.spark.conf.get(CONSTRAINTS)) == (1, 1, setting)


def test_a_sample_is_of_keys(sandbox: MemorySandbox) -> None:
    """Protects from samples that part the copies of a row, lose NULL keys, or differ between view and batch query."""
    rows = [(k % 50 or None, k, k / 3) for k in range(200)]
    sandbox.source("t", "k int, u int, v double", [*rows, *rows])
    sums = sandbox.view("select avg(v) a, k as `the key` from t group by k having count(*) > 1", "sums")
    bag = sandbox.view("select k, v from t", "bag")
    for view, by in ((sums, "the key"), (bag, "k")):
        view.refresh()
        found = view.verify(0.5)
        assert found.ok and 0 < found.rows < view.answer().count()
        assert (
            found.sentence
            == f"{view.name}: equals the batch query at epoch 1 in a sample of 50% by {by} ({found.rows} rows)"
        )
    kept = Sample(("k",), 0.5, 1).of(bag.answer())
    assert kept.count() == bag.verify(0.5).rows
    assert not kept.join(bag.answer().exceptAll(kept), "k", "left_semi").count()
    of_no_key = [Sample(("k",), 0.5, epoch).of(bag.answer().where("k is null")) for epoch in range(20)]
    counts = Counter(row["epoch"] for row in union_numbered(of_no_key).collect())
    assert {counts[epoch] for epoch in range(20)} == {0, 8}
    sandbox.sql("delete from {bag} where k is not null and v < 1", bag=bag.path)
    assert {bag.verify(share).missing > 0 for share in (0.9, 1.0)} == {True}


def union_numbered(frames: list[DataFrame]) -> DataFrame:
    """One query of all frames instead of one of each: of each row the number of its frame."""
    numbered = (frame.select(F.lit(number).alias("epoch")) for number, frame in enumerate(frames))
    return reduce(DataFrame.union, numbered)


def test_what_no_sample_can_be_of(sandbox: MemorySandbox) -> None:
    """Protects from a check that compares nothing and says that all is well."""
    sandbox.source("t", "v double", [(0.5,)])
    view = sandbox.view("select v from t")
    view.refresh()
    assert view.verify(1).ok
    for share, says in (
        (0.5, "Verify all of it"),
        (0, "invalid share"),
        (2, "invalid share"),
        (float("nan"), "invalid share"),
    ):
        with pytest.raises(QueryError if share == 0.5 else UsageError, match=says):
            view.verify(share)


def test_a_refresh_while_it_is_verified(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer and versions are those of one epoch, whatever ends meanwhile."""
    sandbox.source("t", "k int, v int", [(1, 2), (2, 3)])
    view = sandbox.view("select k, sum(v) s from t group by k")
    checked(view)
    sandbox.sql("delete from {t} where k = 1")
    sample = Compilation.sample

    def beside(compilation: Compilation, share: float, epoch: int) -> Sample | None:
        view.refresh()
        return sample(compilation, share, epoch)

    monkeypatch.setattr(Compilation, "sample", beside)
    verification = view.verify()
    assert verification.ok and len(view.history()) == 2, verification


def test_files_that_are_gone_are_said(delta: DeltaSandbox) -> None:
    """Protects from Spark's own error, which names neither the source nor what to do."""
    delta.source("t", "k int, v int", [(1, 2)])
    view = delta.view("select k, sum(v) s from t group by k")
    view.refresh()
    for file in (delta.folder / "t").glob("*.parquet"):
        file.unlink()
    with pytest.raises(SourceError, match=r"source t \(version 0\): a data file is gone"):
        view.verify()


def test_versions_of_a_batch(sandbox: MemorySandbox) -> None:
    """Protects from a KeyError where a source is left out."""
    sandbox.source("t", "k int, v int", [(1, 2)])
    view = sandbox.view("select k, sum(v) s from t group by k")
    for wrong, says in (({}, "versions: t missing"), ({"t": "x"}, "is not valid")):
        with pytest.raises(UsageError, match=says):
            view.batch(wrong)  # type: ignore[arg-type]
    assert view.batch({"t": 0}).collect() == [(1, 2)]
