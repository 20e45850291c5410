"""Queries that read the clock are recomputed at each refresh, at a time that the journal keeps (D-234)."""

from __future__ import annotations

import datetime
from typing import Any
from unittest import mock
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.algebra.errors import RefusedError
from deltafold.api import View, fixpoint
from deltafold.language.determinism.clock import bind_clock
from deltafold.refresh.sources import upstream
from deltafold.spark.catalyst import isolate_session
from tests.crash.points import Killed, watched
from tests.night import every
from tests.properties.comparing import difference
from tests.sandbox import MemorySandbox, checked, confirm, rows

LATE = "2026-03-31T23:30:00.000001+00:00"
NEXT_DAY = "2026-04-01T23:30:00.000001+00:00"
TABLE = "k int, d date, v int"
ROWS = [(k % 3, datetime.date(2026, 3, 28 + k % 4), None if k == 5 else k) for k in range(9)]

QUERIES = {
    "a column": "select k, {date} c, {timestamp} t, {now} n, unix_timestamp() > 0 u from t",
    "a condition": "select k, v from t where d = date_sub({date}, 1)",
    "a condition of a join": "select a.k, b.v from t a join t b on a.k = b.v and a.d < {date}",
    "an aggregate": "select k, sum(v) filter (where d < {date}) s, max(datediff({date}, d)) m from t group by k",
    "a group key": "select {date} c, d < {date} old, count(*) n from t group by all",
    "a having": "select k, count(*) n from t group by k having max(d) < {date}",
    "a window": "select k, lead(d, 1, {date}) over (partition by k order by d, v) n from t",
    "the order of a window": "select sum(v) over (order by abs(datediff(d, {date})), v, k rows 1 preceding) s from t",
    "a limit": "select k from t order by k limit abs(day({date}) - 29)",
    "what rows explode to": "select k, explode(sequence(d, {date})) e from t",
    "a grouping set": "select k, d < {date} old, count(*) n from t group by cube(k, d < {date})",
    "a subquery": "select k from t where d = (select max(d) from t where d < {date})",
    "a correlated subquery": "select k, (select max(datediff({date}, b.d)) from t b where b.k = a.k) m from t a",
    "a common table": "with c as (select k, {date} c from t) select a.k, a.c from c a join c b on a.k = b.k",
    "a recursion": "with recursive r(n) as (select k from t union all select n + 1 from r where n < day({date})) "
    "select n, count(*) c from r group by n",
    "a set operation": "select k, {date} c from t except select v, {date} from t",
}


def at(moment: str) -> Any:
    """Let refreshes run at a time."""
    return mock.patch.object(upstream, "now", lambda _: moment)


def bound(query: str, moment: str) -> str:
    """The query with constants in place of the clock; the session's time zone is UTC."""
    time = datetime.datetime.fromisoformat(moment)
    constant = f"timestamp '{time:%Y-%m-%d %H:%M:%S.%f}'"
    return query.format(date=f"date '{time:%Y-%m-%d}'", timestamp=constant, now=constant)


def reading(query: str) -> str:
    return query.format(date="current_date()", timestamp="current_timestamp()", now="now()")


@pytest.fixture
def clocked(sandbox: MemorySandbox) -> MemorySandbox:
    sandbox.spark.conf.set("spark.sql.session.timeZone", "UTC")
    return sandbox.sources({"t": (TABLE, ROWS)})


def test_all_views_of_a_run_read_one_time(clocked: MemorySandbox) -> None:
    """Protects from rows of yesterday beside rows of today in a run over midnight."""
    views = [clocked.another("select cast(now() as string) c from t", policy="auto") for _ in range(2)]
    with mock.patch.object(upstream, "now", mock.Mock(side_effect=[LATE, NEXT_DAY])):
        clocked.warehouse.refresh()
    assert {row["c"] for view in views for row in view.answer().collect()} == {LATE[:26].replace("T", " ")}


@pytest.mark.parametrize("case", every(3, QUERIES))
def test_the_answer_is_that_of_the_query_with_constants(clocked: MemorySandbox, case: str) -> None:
    view = clocked.view(reading(QUERIES[case]), policy="definition" if case == "a column" else "auto")
    for moment in (LATE, NEXT_DAY):
        with at(moment):
            checked(view)
        frame = clocked.table("t").scan(clocked.table("t").version() or 0)
        frame.createOrReplaceTempView("t")
        expected = clocked.spark.sql(bound(QUERIES[case], moment))
        assert not difference(expected.collect(), view.answer().collect())
        assert view.verify().ok
        clocked.do(("insert", "t", [(1, datetime.date(2026, 4, 1), 7)]), ("delete", "t", "v = 4"))


def test_incremental_is_refused(clocked: MemorySandbox) -> None:
    """Protects from states that keep yesterday's date."""
    for query in QUERIES.values():
        with pytest.raises(RefusedError, match="clock"):
            clocked.another(reading(query)).explain()


def test_a_refresh_without_other_versions_follows_the_clock(clocked: MemorySandbox) -> None:
    view = clocked.view("select distinct current_date() c from t", policy="auto")
    with at(LATE):
        assert (view.refresh().verdict, view.refresh().verdict) == ("recomputed", "nothing to do")
    with at(NEXT_DAY):
        assert view.refresh().verdict == "recomputed"
    assert rows(view) == [(datetime.date(2026, 4, 1),)]


def test_a_kept_answer_is_one_of_the_new_time(clocked: MemorySandbox) -> None:
    """Protects from a journal with new versions and an old time, whose batch query has another answer."""
    view = clocked.view("select k, v from t where d = current_date()", policy="auto")
    with at(LATE):
        view.refresh()
    clocked.do(("delete", "t", "d = date '2026-03-31'"), ("insert", "t", [(0, datetime.date(2026, 4, 1), 3)]))
    clocked.do(("insert", "t", [(1, datetime.date(2026, 4, 1), 7)]))
    with at(NEXT_DAY):
        assert view.refresh().verdict == "nothing to do"
    assert view.verify().ok
    confirm(view)


def test_an_interrupted_refresh_keeps_its_time(clocked: MemorySandbox) -> None:
    """Protects from an answer of which a part is of one time and the rest, or the journal, of another."""
    view = clocked.view("select k, current_timestamp() c from t", policy="auto")
    with at(LATE), watched() as run:
        view.refresh()
    begun = next(
        number for number, point in enumerate(run.passed) if point.what.startswith("g0") and point.side == "after"
    )
    for stop in range(begun, len(run.passed), 2):
        view = clocked.another("select k, current_timestamp() c from t", policy="auto")
        with at(LATE), pytest.raises(Killed), watched(stop):
            view.refresh()
        with at(NEXT_DAY):
            view.refresh()
        assert [entry.intent.clock for entry in view.store.journal.entries()] == [LATE, NEXT_DAY]
        assert {row[1].isoformat() + "+00:00" for row in rows(view)} == {NEXT_DAY}
        assert view.verify().ok


def test_views_above_are_verified_at_the_time_of_those_below(clocked: MemorySandbox) -> None:
    """Protects from a definition of the view above that reads the clock when it is verified."""
    warehouse = clocked.warehouse
    warehouse.source("below", clocked.view("select k, v, current_timestamp() c from t", "below", policy="auto"))
    middle = clocked.view("select k, max(c) c, sum(v) s from below group by k", "middle", policy="incremental")
    warehouse.source("middle", middle)
    top = clocked.view("select m.k, m.c, current_date() d from middle m join below b on m.k = b.k", policy="auto")
    for moment in (LATE, NEXT_DAY):
        with at(moment):
            top.refresh()
            clocked.do(("insert", "t", [(7, None, 1)]))
        for view in (top, middle):
            assert view.verify().ok
            confirm(view)
        assert {row[1].isoformat() + "+00:00" for row in rows(top)} == {moment}


def counted_up(t: DataFrame) -> DataFrame:
    def step(found: DataFrame) -> DataFrame:
        return found.select((F.col("k") + 1).alias("k")).where(F.col("k") <= F.dayofmonth(F.current_date()))

    return fixpoint(t.select("k"), step)


def test_what_else_differs_from_run_to_run_is_refused(clocked: MemorySandbox) -> None:
    """Protects from a first reason that hides a second one."""
    for query in (
        "select k, current_date() c, rand() r from t",
        "select k, concat(current_date(), uuid()) r from t",
        "select k, year(current_date()) + rand() r from t",
        "select k, current_date() c from t limit 2",
        "select k, current_date() c, current_time() n from t",
        "select k, cast('now' as timestamp) c, current_date() d from t",
        counted_up,
    ):
        with pytest.raises(RefusedError):
            clocked.another(query, policy="auto").explain()


def test_functions_of_dataframes_read_the_clock_too(clocked: MemorySandbox) -> None:
    def old(t: DataFrame) -> DataFrame:
        return t.where(t.d < F.current_date()).withColumn("loaded", F.current_timestamp())

    view: View = clocked.view(old, policy="auto")
    with at(LATE):
        checked(view)
    assert {row[0] for row in view.answer().select("loaded").collect()} == {
        datetime.datetime(2026, 3, 31, 23, 30, 0, 1)
    }


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/St_Johns", "Europe/Berlin"])
def test_values_are_those_of_the_sessions_time_zone(spark: SparkSession, zone: str) -> None:
    clone = isolate_session(spark)
    clone.conf.set("spark.sql.session.timeZone", zone)
    query = "select current_date() d, cast(localtimestamp() as string) l, cast(now() as string) n, unix_micros(now()) u"
    row = bind_clock(clone, clone.sql(query), LATE).first()
    local = datetime.datetime.fromisoformat(LATE).astimezone(ZoneInfo(zone))
    micros = (datetime.datetime.fromisoformat(LATE) - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)).days
    assert row is not None
    assert row[:3] == (local.date(), f"{local:%Y-%m-%d %H:%M:%S.%f}", f"{local:%Y-%m-%d %H:%M:%S.%f}")
    assert row.u // 86_400_000_000 == micros
